"""The agreement: the settings that a home's one runner works by, kept in the home.

A home has one runner, so the projections' settings are the home's, not the process's. What nobody gave a
value follows the home; a value that differs is taken over while no runner is alive and refused while one is.
Of emitters that start at once and disagree, the first one's values count: it takes the lease before it
changes them, and hands it to the runner that it starts.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport import locks
from waybill.transport.config.backends import without_users
from waybill.transport.config.settings import SETTINGS, Settings
from waybill.transport.errors import JournalError, SettingsConflictError
from waybill.transport.fork_safety import without_forks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from waybill.transport.journal import Journal

_META_KEY: Final = "settings"
_LOCK: Final = "agreement.lock"
_AGREED: Final = tuple(name for name, one in SETTINGS.items() if one.of_home and not one.secret)


def agreed(journal: Journal) -> dict[str, Any]:
    """What the home's runner works by, as plain JSON values; empty before the first emitter."""
    stored = journal.meta(_META_KEY)
    return {} if stored is None else msgspec.json.decode(stored, type=dict[str, Any])


def conflicts(journal: Journal, settings: Settings) -> list[SettingsConflictError]:
    """Where somebody's own values differ from the home's."""
    home = agreed(journal)
    return [
        SettingsConflictError(
            name,
            without_users(settings.plain(name)),
            settings.origins[name],
            f"the live runner of {journal.home} works with {without_users(home[name])!r}; use that, or wait "
            "until it has ended (`waybill status` tells), or give another home",
        )
        for name in _AGREED
        if name in home and settings.explicit(name) and settings.plain(name) != home[name]
    ]


@contextlib.contextmanager
def joined(journal: Journal, settings: Settings) -> Iterator[tuple[Settings, locks.Lease | None]]:
    """Join the home's agreement, changing it where the settings differ and no runner is alive.

    Yields:
        The settings with the home's values; and, where no runner is alive, its lease, which is released at
        the end unless it was handed over. Until then nobody else joins.

    Raises:
        SettingsConflictError: a live runner works with another value.
        JournalError: the home cannot be locked.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_forks())
        with _locking(journal):
            stack.enter_context(locks.locked(journal.home / _LOCK))
            held = locks.reserve(journal.home)
        if held is not None:
            stack.callback(held.release)
        yield _join(journal, settings, alone=held is not None), held


def agree(journal: Journal, settings: Settings) -> Settings:
    """Join the home's agreement and start no runner; see `joined`."""
    with joined(journal, settings) as (followed, _):
        return followed


def agree_as_runner(journal: Journal, settings: Settings) -> Settings:
    """Join the home's agreement as the holder of its lease, so that nobody's values are in the way."""
    with contextlib.ExitStack() as stack:
        with _locking(journal):
            stack.enter_context(locks.locked(journal.home / _LOCK))
        return _join(journal, settings, alone=True)


@contextlib.contextmanager
def _locking(journal: Journal) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{journal.home} cannot be locked ({error}); check its disk and its permissions"
        raise JournalError(what) from None


def _join(journal: Journal, settings: Settings, *, alone: bool) -> Settings:
    home = agreed(journal)
    differing = conflicts(journal, settings)
    if differing and not alone:
        raise differing[0]
    values = {
        name: settings.plain(name) if settings.explicit(name) or name not in home else home[name]
        for name in _AGREED
    }
    if values != home:
        journal.set_meta(_META_KEY, msgspec.json.encode(values).decode())
    followed = follow(settings, values)
    journal.max_bytes = followed.journal_max_bytes
    return followed


def follow(settings: Settings, home: dict[str, Any]) -> Settings:
    """The settings with a home's values in place of those that nobody gave."""
    followed: dict[str, object] = {
        name: home[name] for name in _AGREED if name in home and not settings.explicit(name)
    }
    return settings.with_values(followed, "home")


def obey(journal: Journal, env: Mapping[str, str] | None = None) -> Settings:
    """The settings of a home's runner: what was agreed, whatever this process's environment and files say.

    Args:
        journal: the home's.
        env: where keys come from, which the home has not, beside the files; None: the process's environment.
    """
    home = {name: value for name, value in agreed(journal).items() if name in _AGREED}
    settings = Settings.load({**home, "home": journal.home}, origin="home", env=env)
    # What nobody gave a value stays without one; the backends have by now the keys that the home has not.
    settings = settings.with_values({n: v for n, v in home.items() if n != "backends"}, "home")
    journal.max_bytes = settings.journal_max_bytes
    return settings
