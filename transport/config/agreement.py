"""The agreed settings: those that a home's one runner uses, stored in the home.

A home has one runner, so the projections' settings belong to the home, not to the process. A setting without
a given value follows the home. If a given value differs, the home adopts it while no runner is alive. While
one is alive, the home's value wins, with a warning; `strict` makes that an error. If emitters start at the
same time and disagree, the first one's values win: it takes the runner's lease before it changes them, and
hands the lease to the runner that it starts. `change` changes them even while a runner is alive.

The root is the exception: a folder that is not the home's root is never adopted, since it may be a typo. And
no file that is found by its place changes where the home's events go, nor what is redacted of them: that
takes an option, a variable, or `change`.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .. import locks
from ..errors import JournalError, RootError, SettingsConflictError, reason_of
from ..fork_safety import without_forks
from ..permissions import set_home_mode
from ..root import check_root, known_root, where_filed
from .backends import freed_of_users, without_users
from .settings import HOME, SETTINGS, Settings

if TYPE_CHECKING:
    from ..journal import Journal

log = logging.getLogger("waybill.transport")

_META_KEY: Final = "settings"
_LOCK: Final = "agreement.lock"
AGREED: Final = tuple(name for name, setting in SETTINGS.items() if setting.of_home and not setting.secret)
"""Every setting that a home stores."""

DESTINATIONS: Final = frozenset({"marquez_url", "backends", "redact"})
"""Where events go, and what of them."""

_warned: Final[set[Path]] = set()
"""The homes about whose different settings this process, or the one it was forked from, has warned."""


def agreed(journal: Journal) -> dict[str, Any]:
    """The home's settings as plain JSON values without secrets; empty before the first emitter."""
    return cast("dict[str, Any]", msgspec.json.decode(journal.meta(_META_KEY) or "{}"))


def conflicts(journal: Journal, settings: Settings) -> list[SettingsConflictError]:
    """The given values that differ from the home's."""
    home = agreed(journal)
    way_out = (
        "use that value, wait until the runner has ended (see `waybill status`), give another home, or "
        f"change the home's value: `{taking_over(journal, settings)}`"
    )
    return [
        SettingsConflictError(
            name,
            without_users(settings.plain(name)),
            settings.origins[name],
            f"the live runner of {journal.home} uses {home[name]!r}; {way_out}",
        )
        for name in _differing(home, settings)
    ]


def check_options(journal: Journal, settings: Settings, names: Collection[str]) -> None:
    """Check that no option differs from what the home keeps, where another process works by that.

    Raises:
        SettingsConflictError: one of these settings does.
    """
    home = agreed(journal)
    for name in _differing(home, settings):
        if name in names and settings.optional(name):
            given = settings.plain(name)
            values = {name: _both(home, settings) if name == "redact" else freed_of_users(given)}
            what = (
                f"but {journal.home} uses {home[name]!r}; leave the option out, or change the home's value: "
                f"`{apply_command(journal.home, values)}`"
            )
            raise SettingsConflictError(name, without_users(given), settings.origins[name], what)


def check_agreed_root(journal: Journal, settings: Settings) -> None:
    """Check that the given root is the home's, wherever that is mounted, or may become the home's root.

    Any folder may become it while the home has filed nothing and has agreed only on its own folder.

    Raises:
        SettingsConflictError: it is not.
    """
    home = agreed(journal)
    if "root" not in _differing(home, settings):
        return
    given, own, known = settings.root, Path(home["root"]), known_root(journal)
    if known is None and (own == journal.home or own.resolve() == given.resolve()):
        return
    is_there = False
    with contextlib.suppress(RootError, OSError):
        is_there = given.is_dir()
        if known is not None:
            check_root(journal, given)
            return
    command = apply_command(journal.home, {"root": str(given)})
    what = (
        f"{'is not the root of this home' if is_there else 'is not there'}, and {journal.home} files into "
        f"{where_filed(known) or own}; correct it, or change the root of the home by `{command}`"
    )
    raise SettingsConflictError("root", str(given), settings.origins["root"], what)


def _differing(home: Mapping[str, Any], settings: Settings) -> list[str]:
    return [
        name
        for name in AGREED
        if name in home and settings.explicit(name) and freed_of_users(settings.plain(name)) != home[name]
    ]


def taking_over(journal: Journal, settings: Settings) -> str | None:
    """The command that stores the given values in the home, with all that either redacts.

    None if they are there already.
    """
    home = agreed(journal)
    values: dict[str, Any] = {
        name: freed_of_users(settings.plain(name)) for name in _differing(home, settings)
    }
    if "redact" in values:
        values["redact"] = _both(home, settings)
    return apply_command(journal.home, values) if values else None


def apply_command(home: Path, values: Mapping[str, Any]) -> str:
    """The command line that makes these values, in their JSON form, a home's agreed ones."""
    words = ["waybill", "settings", "apply", "--home", str(home)]
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif name == "backends":
            words += [f"--{flag}", msgspec.json.encode(value).decode()]
        else:
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def warn_of_conflicts(journal: Journal, settings: Settings) -> None:
    """Log which given values differ from the home's, once per process and home."""
    if journal.home in _warned:
        return
    home = agreed(journal)
    names = _differing(home, settings)
    if not names:
        return
    _warned.add(journal.home)
    said = "; ".join(
        f"{name} = {without_users(settings.plain(name))!r} (from {settings.origins[name]}), "
        f"agreed: {home[name]!r}" + (", and both apply" if name == "redact" else "")
        for name in names
    )
    log.warning(
        "every event is kept, but the agreed settings of %s differ from this program's, and win: %s; "
        "to change the agreed settings: %s",
        journal.home,
        said,
        taking_over(journal, settings),
    )


def _unnamed(home: Mapping[str, Any], settings: Settings) -> list[str]:
    """The values that do not change the home's, because they are from a file that nobody named."""
    return [
        name for name in _differing(home, settings) if name in DESTINATIONS and settings.found_by_place(name)
    ]


def _both(home: Mapping[str, Any], settings: Settings) -> list[str]:
    """Everything that either of the two redacts."""
    return list(dict.fromkeys([*home["redact"], *settings.redact]))


@contextlib.contextmanager
def agreeing(
    journal: Journal, settings: Settings, *, as_runner: bool = False, for_now: bool = False
) -> Iterator[tuple[Settings, locks.Lease | None]]:
    """Agree on the home's settings, and keep others from doing so until the end of the block.

    The caller's settings change the home's where they differ, unless another process is the runner. A root
    that is not the home's never changes them. A caller that holds the runner's lease sets `as_runner`. With
    `for_now`, what is given as an option of a command holds for the caller, and the home keeps its own.

    Yields:
        The settings with the home's values; and the runner's lease if it was free, which is released at the
        end of the block unless it was handed over.

    Raises:
        SettingsConflictError: a live runner uses another value, or the root is not the home's, and the
            settings are strict; or the caller is the runner, and the root is not the home's.
        JournalError: the home cannot be locked.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_locked(journal.home))
        try:
            lease = None if as_runner else locks.reserve(journal.home)
        except OSError as error:
            raise _unlockable(journal.home, error) from None
        yielding: list[str] = []
        if lease is not None:
            stack.callback(lease.release)
        if lease is not None or as_runner:
            try:
                check_agreed_root(journal, settings)
            except SettingsConflictError:
                # A program that emits must lose no event to a wrong path, nor change the root by it.
                if as_runner or settings.strict:
                    raise
                yielding = ["root"]
        else:
            yielding = _differing(agreed(journal), settings)
            if yielding and settings.strict:
                raise conflicts(journal, settings)[0]
        yielding += _unnamed(agreed(journal), settings)
        if yielding:
            warn_of_conflicts(journal, settings)
        own = [name for name in _differing(agreed(journal), settings) if for_now and settings.optional(name)]
        values = _store(journal, settings, [*yielding, *own])
        followed = follow(settings, values, yielding)
        journal.max_bytes = followed.journal_max_bytes
        yield followed, lease


def agree(
    journal: Journal, settings: Settings, *, as_runner: bool = False, for_now: bool = False
) -> Settings:
    """Agree on the home's settings without starting a runner; see `agreeing`."""
    with agreeing(journal, settings, as_runner=as_runner, for_now=for_now) as (followed, _):
        return followed


def change(journal: Journal, settings: Settings, unset: Collection[str] = ()) -> None:
    """Store the given values in the home, even while a runner is alive; a live runner takes them over.

    The values of the settings in `unset` are stored, too, although they are the defaults.

    Raises:
        JournalError: the home cannot be locked.
    """
    with _locked(journal.home):
        _store(journal, settings, unset=unset)


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_forks())
        try:
            stack.enter_context(locks.locked(home / _LOCK))
        except OSError as error:
            raise _unlockable(home, error) from None
        yield


def _unlockable(home: Path, error: OSError) -> JournalError:
    return JournalError(f"{home} cannot be locked ({reason_of(error)}); check its disk and its permissions")


def _store(
    journal: Journal, settings: Settings, yielding: Collection[str] = (), unset: Collection[str] = ()
) -> dict[str, Any]:
    """Store the given values except those of `yielding`, and the values of `unset`, in the home.

    Returns:
        All settings of the home.
    """
    home, stored = agreed(journal), journal.meta(_META_KEY)
    own = {name: freed_of_users(settings.plain(name)) for name in AGREED}
    changed = {name for name in AGREED if settings.explicit(name) and name not in yielding} | {*unset}
    values = {name: own[name] if name in changed else home.get(name, own[name]) for name in AGREED}
    kept = msgspec.json.encode(values).decode()
    if stored != kept:
        journal.set_meta(_META_KEY, kept)
    if set_home_mode(journal.home, values["home_mode"]):
        log.warning(
            "%s was open to other users and no longer is; to let its group in: `%s`",
            journal.home,
            apply_command(journal.home, {"home_mode": "group"}),
        )
    return values


def follow(settings: Settings, home: dict[str, Any], yielding: Collection[str] = ()) -> Settings:
    """The settings, with the home's values for those that nobody gave and for those that yield.

    Everything that either of the two redacts is redacted. A key for one backend is never sent to another.
    """
    yielding = {*yielding, *_unnamed(home, settings)}
    followed: dict[str, object] = {
        name: home[name]
        for name in AGREED
        if name in home and (name in yielding or not settings.explicit(name))
    }
    if "redact" in yielding:
        followed["redact"] = _both(home, settings)
    if "marquez_url" in yielding:
        followed["marquez_api_key"] = None
    return settings.with_values(followed, HOME)


def obey(journal: Journal, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of a home's runner: the agreed ones, whatever this process's environment and files say.

    Only the secrets come from `env`, by default the process's environment, and from the files, because the
    home does not store them.
    """
    home = {name: value for name, value in agreed(journal).items() if name in AGREED}
    settings = Settings.load({**home, "home": journal.home}, origin=HOME, env=env, goes_on=True)
    # A setting without a value in the home has none, whatever the environment says. The others have got
    # their secrets by now.
    settings = settings.with_values({name: None for name, value in home.items() if value is None}, HOME)
    journal.max_bytes = settings.journal_max_bytes
    return settings
