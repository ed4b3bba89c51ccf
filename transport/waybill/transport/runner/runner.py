"""The runner: the one process of a home that works its projections, each in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import locks
from waybill.transport.errors import JournalError
from waybill.transport.journal import adopt, waiting
from waybill.transport.runner.projection import PROJECTIONS_GROUP, OpenProjection, Projection, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.runner")

IDLE_S: Final = 15.0
"""A runner ends when nothing is left to do and nothing has come for this long."""
BLOCKED_S: Final = 3600.0
"""A runner that only waits for a backend that is down ends after this long without a new entry."""

_RUNNER: Final = "runner"
_STATUSES_FROM: Final = "runner_pid"
_POLL_S: Final = 0.05
_ADOPT_EVERY_S: Final = 0.2
_HOUSEKEEPING_EVERY_S: Final = 1.0
_PRUNE_EVERY_S: Final = 60.0
_FAILED_RETRY_S: Final = 5.0
_CHECKPOINT_WAL_BYTES: Final = 4 * 2**20
_FULL_SHARE: Final = 0.8


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner last reported of a projection, as in `Step`."""

    problem: str | None = None
    to_correct: str | None = None


def open_projections(journal: Journal, settings: Settings) -> tuple[list[Projection], dict[str, str]]:
    """The projections that the settings ask for, and by name the problem of each that could not be loaded."""
    opened: list[Projection] = []
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=PROJECTIONS_GROUP), key=lambda point: point.name):
        try:
            open_projection: OpenProjection = point.load()
            offered = open_projection(journal, settings)
        except Exception as error:  # which never stops the others
            log.exception("projection %s cannot be loaded", point.name)
            problems[point.name] = f"{point.value} cannot be loaded: {error}"
        else:
            if isinstance(offered, Sequence):
                opened.extend(offered)
            elif offered is not None:
                opened.append(offered)
    return opened, problems


def statuses(journal: Journal) -> dict[str, ProjectionStatus]:
    """What the home's last runner reported of each of its projections, by name."""
    return {
        name: msgspec.json.decode(value, type=ProjectionStatus)
        for name, value in journal.state(_RUNNER).items()
    }


def has_live_statuses(journal: Journal) -> bool:
    """Whether `statuses` are those of the live runner; a new one has reported none for a moment."""
    return journal.meta(_STATUSES_FROM) == str(locks.holder(journal.home))


def lag_s(journal: Journal, cursor: int) -> float:
    """How old the first entry after a projection's cursor is, in seconds; 0 if there is none."""
    for entry in journal.read(cursor, limit=1):
        return max(time.time() - entry.received_ms / 1000, 0.0)
    return 0.0


class Runner:
    """Works a home's projections by its agreed settings; the caller holds the runner's lease."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._projections: list[Projection] = []
        self._has_unloadable = False
        self._workers: list[_Worker] = []
        self._stopping = threading.Event()
        self._adoption_due_s = self._housekeeping_due_s = self._prune_due_s = 0.0

    def run(
        self, *, idle_s: float = IDLE_S, blocked_s: float = BLOCKED_S, until: Callable[[], bool] | None = None
    ) -> int:
        """Load the projections and work until nothing is left to do, or `until` is true.

        Returns the sequence number of the last entry that was known when the runner decided to end.
        """
        self._open()
        try:
            last_seq = self._work(idle_s, blocked_s, until)
        finally:
            # After a KeyboardInterrupt, too, the workers have to end before the lease is released.
            self._stopping.set()
            for worker in self._workers:
                if worker.ident is not None:
                    worker.join()
        self._close()
        return last_seq

    def _open(self) -> None:
        self._projections, unloadable = open_projections(self._journal, self._settings)
        self._has_unloadable = bool(unloadable)
        self._workers = [_Worker(one, self._journal, self._stopping) for one in self._projections]
        reported = {name: ProjectionStatus(problem=problem) for name, problem in unloadable.items()}
        reported |= {projection.name: ProjectionStatus() for projection in self._projections}
        put = {name: msgspec.json.encode(status) for name, status in reported.items()}
        self._journal.commit(_RUNNER, put=put, delete=self._journal.state(_RUNNER).keys() - put.keys())
        self._journal.set_meta(_STATUSES_FROM, str(os.getpid()))

    def _work(self, idle_s: float, blocked_s: float, until: Callable[[], bool] | None) -> int:
        for worker in self._workers:
            worker.start()
        last_seq, quiet_since_s = -1, time.monotonic()
        while not (until and until()):
            newest, now_s = self._journal.last_seq(), time.monotonic()
            if newest != last_seq:
                last_seq, quiet_since_s = newest, now_s
                for worker in self._workers:
                    worker.wake()
            if not self._keep_house(now_s):
                break
            quiet_s = now_s - quiet_since_s
            settled = all(worker.settled or quiet_s > blocked_s for worker in self._workers)
            if quiet_s > idle_s and settled and not waiting(self._journal.home):
                break
            self._stopping.wait(_POLL_S)
        return last_seq

    def _close(self) -> None:
        home_exists = self._journal.path.exists()
        for projection in self._projections:
            if home_exists:
                try:
                    projection.finish()
                except Exception:
                    log.exception("projection %s cannot finish; the next runner takes it up", projection.name)
            projection.close()
        if home_exists:
            self._tidy(self._journal.checkpoint)

    def _keep_house(self, now_s: float) -> bool:
        """Adopt, checkpoint and prune, each when it is due; False if the home no longer exists."""
        if now_s >= self._housekeeping_due_s:
            if not self._journal.path.exists():
                return False
            self._housekeeping_due_s = now_s + _HOUSEKEEPING_EVERY_S
            if self._journal.wal_bytes() > _CHECKPOINT_WAL_BYTES:
                self._tidy(self._journal.checkpoint)
            if now_s >= self._prune_due_s and not self._tidy(self._prune):
                self._prune_due_s = now_s + _PRUNE_EVERY_S
        if now_s >= self._adoption_due_s:
            self._adoption_due_s = now_s + _ADOPT_EVERY_S
            # What the journal cannot take now stays in the spools.
            with contextlib.suppress(JournalError):
                adopt(self._journal)
        return True

    def _tidy(self, work: Callable[[], int | None]) -> int | None:
        """Do what can be done later: a disk that is full or fails must not end the projections' work."""
        try:
            return work()
        except JournalError:
            log.exception("the journal cannot be tidied; it is tried again")
            return None

    def _prune(self) -> int:
        """Remove old entries that every projection has, if one of them stores their content.

        A projection that cannot be loaded now still needs them later.
        """
        if self._has_unloadable or not any(projection.stores for projection in self._projections):
            return 0
        cursors = self._journal.cursors()
        upto = min(cursors.get(projection.name, 0) for projection in self._projections)
        now_ms = time.time_ns() // 1_000_000
        before_ms = now_ms - int(self._settings.journal_retain_days * 86_400_000)
        if self._settings.journal_when_full == "drop-delivered":
            room_bytes = self._settings.journal_max_bytes * _FULL_SHARE
            before_ms = now_ms if self._journal.size_bytes() > room_bytes else before_ms
        return self._journal.prune(upto, before_ms)


class _Worker(threading.Thread):
    """The thread of one projection."""

    def __init__(self, projection: Projection, journal: Journal, stopping: threading.Event) -> None:
        super().__init__(name=f"waybill-{projection.name}", daemon=True)
        self.settled = False
        """Whether its last step found nothing to do and left nothing pending."""
        self._projection = projection
        self._journal = journal
        self._stopping = stopping
        self._problem: str | None = None
        self._woken = threading.Event()

    def wake(self) -> None:
        self.settled = False
        self._woken.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            step, pending = self._step()
            self._report(step)
            if not step.applied:
                self.settled = step.problem is None and pending == 0 and not self._woken.is_set()
                self._rest(step)

    def _rest(self, step: Step) -> None:
        if step.problem is not None and step.retry_s is not None:
            # A projection that backs off from its backend is not woken by new entries.
            self._stopping.wait(step.retry_s)
            return
        deadline_s = time.monotonic() + step.retry_s if step.retry_s is not None else float("inf")
        while not self._stopping.is_set() and (remaining_s := deadline_s - time.monotonic()) > 0:
            if self._woken.wait(min(remaining_s, _POLL_S)):
                return

    def _step(self) -> tuple[Step, int]:
        """Do a step, and count what is pending if it found nothing to do."""
        try:
            step = self._projection.step()
            return step, 0 if step.applied or step.problem is not None else self._projection.pending()
        except Exception as error:
            log.exception("projection %s failed", self._projection.name)
            return Step(retry_s=_FAILED_RETRY_S, problem=f"{type(error).__name__}: {error}"), 0

    def _report(self, step: Step) -> None:
        if step.problem == self._problem:
            return
        if step.to_correct is not None:
            log.error("projection %s: %s", self._projection.name, step.problem)
        self._problem = step.problem
        status = msgspec.json.encode(ProjectionStatus(problem=step.problem, to_correct=step.to_correct))
        with contextlib.suppress(Exception):
            self._journal.commit(_RUNNER, put={self._projection.name: status})
