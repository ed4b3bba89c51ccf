"""The flush: every projection processes everything accepted so far, without delay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from .. import locks
from ..clock import SYSTEM_CLOCK
from ..config import agree
from ..fallback import adopt_fallback
from ..journal import Journal
from .projection import published
from .runner import Runner, has_live_statuses, statuses

if TYPE_CHECKING:
    from ..config import Settings

_POLL_S: Final = 0.05
_RUNNER: Final = "runner"

OnProgress = Callable[[int, int, Sequence[str]], None]
"""Called with the entries that every projection has processed, their total, and the projections still behind,
the furthest first."""


class FlushReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a flush.

    Attributes:
        files: the files that were published for it, as paths below the root.
        left: by projection, how many entries it has not processed, 0 where only its files are not made yet;
            under the name ``runner``, those of a runner that has not reported its projections yet.
        problems: by projection, what stops it, in one sentence.
        poison: by projection, how many entries are set aside because it cannot apply them.
    """

    files: tuple[str, ...] = ()
    left: dict[str, int] = {}
    problems: dict[str, str] = {}
    poison: dict[str, int] = {}


def flush(
    settings: Settings, *, timeout_s: float | None = None, on_progress: OnProgress | None = None
) -> FlushReport:
    """Put a flush mark into the journal, and wait until every projection is past it or reports a problem.

    The layout settles the runs that have ended, writes raw files and compacts every hour, even the current
    one. If the home has no runner, this process runs the projections itself.

    It stops waiting after `timeout_s`; a live runner continues the work.

    Raises:
        SettingsConflictError: a live runner uses other settings, and these are strict.
        JournalError: the journal cannot be used.
    """
    with contextlib.closing(Journal(settings.home)) as journal:
        adopt_fallback(journal, agree(journal, settings, for_now=True))
        return _Flush(journal, settings, timeout_s, on_progress).run()


class _Flush:
    def __init__(
        self, journal: Journal, settings: Settings, timeout_s: float | None, on_progress: OnProgress | None
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._deadline_s = float("inf") if timeout_s is None else SYSTEM_CLOCK.monotonic_s() + timeout_s
        self._on_progress = on_progress
        self._cursors: dict[str, int] = {}
        self._mark = self._first = 0

    def run(self) -> FlushReport:
        # Read before the mark is put: a live runner may be past it at once.
        self._cursors = self._journal.cursors()
        self._first = min(self._cursors.values(), default=0)
        self._mark = self._journal.mark(b"flush")
        left, problems = {}, {}
        while (lease := locks.take(self._journal.home)) is None:
            live = has_live_statuses(self._journal)
            if self._expired and not live:
                left[_RUNNER] = self._journal.waiting(self._first, self._mark).entries
                problems[_RUNNER] = "it has only just started; flush again, or give a longer --timeout"
            if self._expired or (live and self._done()):
                break
            SYSTEM_CLOCK.sleep(_POLL_S)
        else:
            try:
                settings = agree(self._journal, self._settings, as_runner=True, for_now=True)
                runner = Runner(self._journal, settings, lease=lease.descriptor)
                runner.run(until=self._done, idle_s=float("inf"))
            finally:
                lease.release()
        reported = statuses(self._journal)
        cursors = self._journal.cursors()
        left |= {
            name: self._journal.waiting(cursors.get(name, 0), self._mark).entries for name in self._left()
        }
        # A problem from before the mark is over once the projection is past it.
        problems |= {
            name: one.problem
            for name, one in reported.items()
            if one.problem and (name in left or one.seq >= self._mark)
        }
        poison = self._journal.poison.counts()
        return FlushReport(files=self._files(), left=left, problems=problems, poison=poison)

    def _files(self) -> tuple[str, ...]:
        """The files published for this flush, and for earlier ones that were still waiting when it began."""
        files: dict[str, None] = {}
        for name in statuses(self._journal):
            for seq, names in published(self._journal, name).items():
                if self._cursors.get(name, 0) < seq <= self._mark:
                    files.update(dict.fromkeys(names))
        return tuple(files)

    @property
    def _expired(self) -> bool:
        return SYSTEM_CLOCK.monotonic_s() >= self._deadline_s

    def _left(self) -> dict[str, int]:
        cursors = self._journal.cursors()
        left = {name: self._mark - cursors.get(name, 0) for name in statuses(self._journal)}
        return {name: count for name, count in left.items() if count > 0}

    def _done(self) -> bool:
        reported = statuses(self._journal)
        moving = {name: count for name, count in self._left().items() if not reported[name].problem}
        if self._on_progress:
            total = max(self._mark - self._first, 1)
            behind = sorted(moving, key=lambda name: -moving[name])
            self._on_progress(total - min(max(moving.values(), default=0), total), total, behind)
        return self._expired or not moving
