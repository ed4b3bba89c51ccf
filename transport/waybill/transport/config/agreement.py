"""The agreed settings: those that a home's one runner works by, kept in the home.

A home has one runner, so the projections' settings are the home's, not the process's. A setting that nobody
gave a value follows the home. A value that differs is adopted while no runner is alive. While one is, it
yields to the home's, with a warning; `strict` makes that an error. If emitters start at once and disagree,
the first one's values count: it takes the runner's lease before it changes them, and hands the lease to the
runner that it starts. `change` changes them whatever is alive.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from waybill.transport import locks
from waybill.transport.config.backends import freed_of_users, without_users
from waybill.transport.config.settings import HOME, SETTINGS, Settings
from waybill.transport.errors import JournalError, SettingsConflictError
from waybill.transport.fork_safety import without_forks
from waybill.transport.permissions import set_home_mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.transport")

_META_KEY: Final = "settings"
_LOCK: Final = "agreement.lock"
_AGREED: Final = tuple(name for name, setting in SETTINGS.items() if setting.of_home and not setting.secret)

_warned: Final[set[Path]] = set()
"""The homes of which this process has said that their settings differ; a fork has said it, too."""


def agreed(journal: Journal) -> dict[str, Any]:
    """The home's settings as plain JSON values without secrets; empty before the first emitter."""
    # An earlier version kept the passwords of URLs, until the next agreement.
    return cast("dict[str, Any]", freed_of_users(msgspec.json.decode(journal.meta(_META_KEY) or "{}")))


def conflicts(journal: Journal, settings: Settings) -> list[SettingsConflictError]:
    """Where values that somebody gave differ from the home's."""
    home = agreed(journal)
    names = _differing(home, settings)
    way_out = (
        f"use that, wait until it has ended (`waybill status` tells), give another home, or change what the "
        f"home works with by `{_command(journal.home, home, settings, names)}`"
    )
    return [
        SettingsConflictError(
            name,
            without_users(settings.plain(name)),
            settings.origins[name],
            f"the live runner of {journal.home} works with {home[name]!r}; {way_out}",
        )
        for name in names
    ]


def _differing(home: Mapping[str, Any], settings: Settings) -> list[str]:
    return [
        name
        for name in _AGREED
        if name in home and settings.explicit(name) and freed_of_users(settings.plain(name)) != home[name]
    ]


def _command(path: Path, home: Mapping[str, Any], settings: Settings, names: Collection[str]) -> str:
    """The command that makes the values of these settings the home's, with all that either redacts."""
    words = ["waybill", "settings", "apply", "--home", str(path)]
    for name in names:
        value, flag = freed_of_users(settings.plain(name)), name.replace("_", "-")
        if name == "redact":
            value = _both(home, settings)
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif name == "backends":
            words += [f"--{flag}", msgspec.json.encode(value).decode()]
        else:
            words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def warn_of_conflicts(journal: Journal, settings: Settings) -> None:
    """Log where values that somebody gave differ from the home's; once a process and home."""
    if journal.home in _warned:
        return
    home = agreed(journal)
    names = _differing(home, settings)
    if not names:
        return
    _warned.add(journal.home)
    said = "; ".join(
        f"{name} = {without_users(settings.plain(name))!r} (from {settings.origins[name]}), "
        f"agreed is {home[name]!r}" + (", and both redact" if name == "redact" else "")
        for name in names
    )
    log.warning(
        "every event is kept, by the agreed settings of %s, which differ from those of this program: %s; "
        "to change what is agreed: %s",
        journal.home,
        said,
        _command(journal.home, home, settings, names),
    )


def _both(home: Mapping[str, Any], settings: Settings) -> list[str]:
    """What either of the two redacts."""
    return list(dict.fromkeys([*home["redact"], *settings.redact]))


@contextlib.contextmanager
def agreeing(
    journal: Journal, settings: Settings, *, as_runner: bool = False
) -> Iterator[tuple[Settings, locks.Lease | None]]:
    """Agree on the home's settings, and let nobody else do so until the end of the block.

    The caller's settings change the home's where they differ, unless another process is the runner. A caller
    that holds the runner's lease says so by `as_runner`.

    Yields:
        The settings with the home's values; and the runner's lease if it was free, which is released at the
        end of the block unless it was handed over.

    Raises:
        SettingsConflictError: a live runner works with another value, and the settings are strict.
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
        elif not as_runner:
            yielding = _differing(agreed(journal), settings)
            if yielding and settings.strict:
                raise conflicts(journal, settings)[0]
            warn_of_conflicts(journal, settings)
        values = _store(journal, settings, yielding)
        followed = follow(settings, values, yielding)
        journal.max_bytes = followed.journal_max_bytes
        yield followed, lease


def agree(journal: Journal, settings: Settings, *, as_runner: bool = False) -> Settings:
    """Agree on the home's settings without starting a runner; see `agreeing`."""
    with agreeing(journal, settings, as_runner=as_runner) as (followed, _):
        return followed


def change(journal: Journal, settings: Settings) -> None:
    """Make the values that somebody gave the home's, whatever is alive; a live runner takes them over.

    Raises:
        JournalError: the home cannot be locked.
    """
    with _locked(journal.home):
        _store(journal, settings)


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
    return JournalError(f"{home} cannot be locked ({error}); check its disk and its permissions")


def _store(journal: Journal, settings: Settings, yielding: Collection[str] = ()) -> dict[str, Any]:
    """Keep the values that somebody gave, but those of `yielding`, as the home's; returns all of these."""
    home, stored = agreed(journal), journal.meta(_META_KEY)
    own = {name: freed_of_users(settings.plain(name)) for name in _AGREED}
    values = {
        name: own[name] if settings.explicit(name) and name not in yielding else home.get(name, own[name])
        for name in _AGREED
    }
    kept = msgspec.json.encode(values).decode()
    if stored is not None and msgspec.json.decode(stored) != home:
        journal.overwrite_meta(_META_KEY, kept)  # there were passwords in it
    elif stored != kept:
        journal.set_meta(_META_KEY, kept)
    if set_home_mode(journal.home, values["home_mode"]):
        log.warning(
            "%s was open to other users, and is not any more; see the setting home_mode", journal.home
        )
    return values


def follow(settings: Settings, home: dict[str, Any], yielding: Collection[str] = ()) -> Settings:
    """The settings with a home's values in place of those that nobody gave, and of those that yield.

    What either of the two redacts is redacted. A key for one backend is never sent to another.
    """
    followed: dict[str, object] = {
        name: home[name]
        for name in _AGREED
        if name in home and (name in yielding or not settings.explicit(name))
    }
    if "redact" in yielding:
        followed["redact"] = _both(home, settings)
    if "marquez_url" in yielding:
        followed["marquez_api_key"] = None
    return settings.with_values(followed, HOME)


def obey(journal: Journal, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of a home's runner: the agreed ones, whatever this process's environment and files say.

    Only secrets come from these, because the home does not keep them; without `env`, from the process's own.
    """
    home = {name: value for name, value in agreed(journal).items() if name in _AGREED}
    settings = Settings.load({**home, "home": journal.home}, origin=HOME, env=env)
    # A setting without a value in the home has none, whatever the environment says. The others have been
    # completed by their secrets.
    settings = settings.with_values({name: None for name, value in home.items() if value is None}, HOME)
    journal.max_bytes = settings.journal_max_bytes
    return settings
