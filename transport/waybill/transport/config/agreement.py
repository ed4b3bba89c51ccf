"""The agreed settings: those that a home's one runner works by, kept in the home.

A home has one runner, so the projections' settings are the home's, not the process's. A setting that nobody
gave a value follows the home. A value that differs is adopted while no runner is alive, and refused while one
is. If emitters start at once and disagree, the first one's values count: it takes the runner's lease before
it changes them, and hands the lease to the runner that it starts.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from waybill.transport import locks
from waybill.transport.config.backends import freed_of_users, without_users
from waybill.transport.config.settings import SETTINGS, Settings
from waybill.transport.errors import JournalError, SettingsConflictError
from waybill.transport.fork_safety import without_forks
from waybill.transport.permissions import set_home_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.transport")

_META_KEY: Final = "settings"
_LOCK: Final = "agreement.lock"
_AGREED: Final = tuple(name for name, setting in SETTINGS.items() if setting.of_home and not setting.secret)


def agreed(journal: Journal) -> dict[str, Any]:
    """The home's settings as plain JSON values without secrets; empty before the first emitter."""
    # An earlier version kept the passwords of URLs, until the next agreement.
    return cast("dict[str, Any]", freed_of_users(msgspec.json.decode(journal.meta(_META_KEY) or "{}")))


def conflicts(journal: Journal, settings: Settings) -> list[SettingsConflictError]:
    """Where values that somebody gave differ from the home's."""
    home = agreed(journal)
    return [
        SettingsConflictError(
            name,
            without_users(settings.plain(name)),
            settings.origins[name],
            f"the live runner of {journal.home} works with {home[name]!r}; use that, or wait "
            "until it has ended (`waybill status` tells), or give another home",
        )
        for name in _AGREED
        if name in home and settings.explicit(name) and freed_of_users(settings.plain(name)) != home[name]
    ]


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
        SettingsConflictError: a live runner works with another value.
        JournalError: the home cannot be locked.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_forks())
        try:
            stack.enter_context(locks.locked(journal.home / _LOCK))
            lease = None if as_runner else locks.reserve(journal.home)
        except OSError as error:
            what = f"{journal.home} cannot be locked ({error}); check its disk and its permissions"
            raise JournalError(what) from None
        if lease is not None:
            stack.callback(lease.release)
        elif not as_runner and (differing := conflicts(journal, settings)):
            raise differing[0]
        home, stored = agreed(journal), journal.meta(_META_KEY)
        own = {name: freed_of_users(settings.plain(name)) for name in _AGREED}
        values = {
            name: own[name] if settings.explicit(name) else home.get(name, own[name]) for name in _AGREED
        }
        kept = msgspec.json.encode(values).decode()
        if stored is not None and msgspec.json.decode(stored) != home:
            journal.overwrite_meta(_META_KEY, kept)  # there were passwords in it
        elif stored != kept:
            journal.set_meta(_META_KEY, kept)
        followed = follow(settings, values)
        journal.max_bytes = followed.journal_max_bytes
        if set_home_mode(journal.home, followed.home_mode):
            log.warning(
                "%s was open to other users, and is not any more; see the setting home_mode", journal.home
            )
        yield followed, lease


def agree(journal: Journal, settings: Settings, *, as_runner: bool = False) -> Settings:
    """Agree on the home's settings without starting a runner; see `agreeing`."""
    with agreeing(journal, settings, as_runner=as_runner) as (followed, _):
        return followed


def follow(settings: Settings, home: dict[str, Any]) -> Settings:
    """The settings with a home's values in place of those that nobody gave."""
    followed: dict[str, object] = {
        name: home[name] for name in _AGREED if name in home and not settings.explicit(name)
    }
    return settings.with_values(followed, "home")


def obey(journal: Journal, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of a home's runner: the agreed ones, whatever this process's environment and files say.

    Only secrets come from these, because the home does not keep them; without `env`, from the process's own.
    """
    home = {name: value for name, value in agreed(journal).items() if name in _AGREED}
    settings = Settings.load({**home, "home": journal.home}, origin="home", env=env)
    # A setting without a value in the home has none, whatever the environment says. The others have been
    # completed by their secrets.
    settings = settings.with_values({name: None for name, value in home.items() if value is None}, "home")
    journal.max_bytes = settings.journal_max_bytes
    return settings
