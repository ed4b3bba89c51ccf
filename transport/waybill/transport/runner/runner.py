"""The runner: the one process of a home that works its projections, each in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import locks
from waybill.transport.errors import JournalError, RootError
from waybill.transport.journal import NEARLY_FULL, adopt, waiting
from waybill.transport.root import check_root
from waybill.transport.runner.isolation import TRIES, is_held_up, isolate
from waybill.transport.runner.projection import Projection, Step, open_projections
from waybill.transport.runner.vanished import VanishedPrograms

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
_VANISHED_EVERY_S: Final = 1.0
_FAILED_RETRY_S: Final = 5.0
_ISOLATE_EVERY_S: Final = 600.0
_STARTS: Final = "runner starts"
_CHECKPOINT_WAL_BYTES: Final = 4 * 2**20
_ANY_TIME_MS: Final = 2**63 - 1
_ROOM_ENTRIES: Final = 1_000
"""Few, so that no more of a full journal goes than has to."""


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner last reported of a projection, as in `Step`; `seq` is the cursor it had a problem at."""

    problem: str | None = None
    to_correct: str | None = None
    seq: int = 0


class _Start(msgspec.Struct, frozen=True, array_like=True):
    """Where a projection's cursor was when a runner started, and how many have in a row without ending."""

    cursor: int
    count: int = 1


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
    """Works a home's projections by its agreed settings; the caller holds the runner's lease.

    Args:
        lease: the lease's descriptor, for processes that work projections apart.
    """

    def __init__(self, journal: Journal, settings: Settings, *, lease: int | None = None) -> None:
        self._journal = journal
        self._settings = settings
        self._lease = lease
        self._has_unloadable = False
        self._workers: list[_Worker] = []
        self._stopping = threading.Event()
        self._vanished = VanishedPrograms(journal)
        self._adoption_due_s = self._housekeeping_due_s = self._prune_due_s = self._vanished_due_s = 0.0

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
        projections, unloadable = open_projections(self._journal, self._settings)
        self._has_unloadable = bool(unloadable)
        suspects = self._note_start([projection.name for projection in projections])
        self._workers = [
            _Worker(
                projection,
                self._journal,
                self._settings,
                self._stopping,
                lease=self._lease,
                is_suspect=projection.name in suspects,
            )
            for projection in projections
        ]
        reported = {name: ProjectionStatus(problem=problem) for name, problem in unloadable.items()}
        reported |= {projection.name: ProjectionStatus() for projection in projections}
        put = {name: msgspec.json.encode(status) for name, status in reported.items()}
        self._journal.commit(_RUNNER, put=put, delete=self._journal.state(_RUNNER).keys() - put.keys())
        self._journal.set_meta(_STATUSES_FROM, str(os.getpid()))

    def _note_start(self, names: list[str]) -> set[str]:
        """Note that a runner starts; returns the projections at whose cursor `TRIES` of them have died."""
        stored, cursors = self._journal.state(_STARTS), self._journal.cursors()
        starts: dict[str, _Start] = {}
        for name in names:
            starts[name] = _Start(cursors.get(name, 0))
            if name in stored and (last := _START.decode(stored[name])).cursor == starts[name].cursor:
                starts[name] = _Start(last.cursor, last.count + 1)
        put = {name: msgspec.msgpack.encode(start) for name, start in starts.items()}
        self._journal.commit(_STARTS, put=put, durable=False)
        return {name for name, start in starts.items() if start.count > TRIES}

    def _work(self, idle_s: float, blocked_s: float, until: Callable[[], bool] | None) -> int:
        for worker in self._workers:
            worker.start()
        last_seq, quiet_since_s = -1, time.monotonic()
        while not (until and until()):
            if not self._journal.home.is_dir():
                break  # deleted as a whole, on purpose then
            newest, now_s = self._journal.last_seq(), time.monotonic()
            if newest != last_seq:
                last_seq, quiet_since_s = newest, now_s
                for worker in self._workers:
                    worker.wake()
            self._keep_house(now_s)
            quiet_s = now_s - quiet_since_s
            settled = all(worker.settled or quiet_s > blocked_s for worker in self._workers)
            # Nobody else would notice that a program is gone; one that is silent for so long may live on.
            settled = settled and not (self._vanished.waits and quiet_s <= blocked_s)
            if quiet_s > idle_s and settled and not waiting(self._journal.home):
                break
            self._stopping.wait(_POLL_S)
        return last_seq

    def _close(self) -> None:
        home_exists = self._journal.path.exists()
        for worker in self._workers:
            worker.close(finish=home_exists)
        if home_exists:
            names = [worker.projection_name for worker in self._workers]
            self._tidy(lambda: self._journal.commit(_STARTS, delete=names, durable=False))
            self._tidy(self._journal.checkpoint)

    def _keep_house(self, now_s: float) -> None:
        """Adopt, checkpoint, prune, and end what programs that are gone have left, each when it is due."""
        if now_s >= self._vanished_due_s:
            is_behind = self._tidy(lambda: self._vanished.look(time.time_ns() // 1_000_000))
            self._vanished_due_s = now_s if is_behind else now_s + _VANISHED_EVERY_S
        if now_s >= self._housekeeping_due_s:
            self._housekeeping_due_s = now_s + _HOUSEKEEPING_EVERY_S
            if self._journal.wal_bytes() > _CHECKPOINT_WAL_BYTES:
                self._tidy(self._journal.checkpoint)
            if now_s >= self._prune_due_s or self._journal.filled >= NEARLY_FULL:
                if self._tidy(self._prune):
                    self._housekeeping_due_s = now_s  # there may be more
                else:
                    self._prune_due_s = now_s + _PRUNE_EVERY_S
        if now_s >= self._adoption_due_s:
            self._adoption_due_s = now_s + _ADOPT_EVERY_S
            # What the journal cannot take now stays in the spools.
            with contextlib.suppress(JournalError):
                adopt(self._journal)

    def _tidy(self, work: Callable[[], int | None]) -> int | None:
        """Do what can be done later: a disk that is full or fails must not end the projections' work."""
        try:
            return work()
        except JournalError:
            log.exception("the journal cannot be tidied; it is tried again")
            return None

    def _prune(self) -> int:
        """Remove entries that every projection has.

        While the journal is nearly full, the oldest go; otherwise the old ones, if a projection stores their
        content. A journal that no projection works keeps everything.

        A projection that cannot be loaded now still needs them later; so does a root that is not there, or is
        put back to an older copy.
        """
        if self._has_unloadable or not self._workers:
            return 0
        try:
            check_root(self._journal, self._settings.root)
        except (OSError, RootError):
            return 0
        cursors = self._journal.cursors()
        upto = min(cursors.get(worker.projection_name, 0) for worker in self._workers)
        if self._journal.filled >= NEARLY_FULL:
            return self._journal.prune(upto, _ANY_TIME_MS, limit=_ROOM_ENTRIES)
        if not any(worker.stores for worker in self._workers):
            return 0
        retained_ms = int(self._settings.journal_retain_days * 86_400_000)
        return self._journal.prune(upto, time.time_ns() // 1_000_000 - retained_ms)


class _Worker(threading.Thread):
    """The thread of one projection; with `is_suspect` it is worked apart first."""

    def __init__(
        self,
        projection: Projection,
        journal: Journal,
        settings: Settings,
        stopping: threading.Event,
        *,
        lease: int | None,
        is_suspect: bool,
    ) -> None:
        super().__init__(name=f"waybill-{projection.name}", daemon=True)
        self.projection_name = projection.name
        self.stores = projection.stores
        self.settled = False
        """Whether its last step found nothing to do and left nothing pending."""
        self._projection: Projection | None = projection
        self._journal = journal
        self._settings = settings
        self._stopping = stopping
        self._lease = lease
        self._is_suspect = is_suspect
        self._isolation_due_s = float("-inf")
        self._reported = ProjectionStatus()
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

    def close(self, *, finish: bool) -> None:
        """Close the projection; with `finish` its output is completed first."""
        if self._projection is None:
            return
        if finish:
            try:
                self._projection.finish()
            except Exception:
                log.exception("projection %s cannot finish; it is taken up later", self.projection_name)
        self._projection.close()
        self._projection = None

    def _step(self) -> tuple[Step, int]:
        """Do a step, and count what is pending if it found nothing to do."""
        try:
            if self._is_suspect:
                self._is_suspect = False
                self._isolate()
            if self._projection is None:
                (self._projection,) = open_projections(self._journal, self._settings, self.projection_name)[0]
            step = self._projection.step()
            return step, 0 if step.applied or step.problem is not None else self._projection.pending()
        except Exception as error:
            log.exception("projection %s failed", self.projection_name)
            failed = Step(retry_s=_FAILED_RETRY_S, problem=f"{type(error).__name__}: {error}")
            if is_held_up(error) or time.monotonic() < self._isolation_due_s:
                return failed, 0
            return (Step(applied=1) if self._isolate() else failed), 0

    def _isolate(self) -> bool:
        """Have the projection worked apart; if that gets it no further, it is done again much later."""
        self.close(finish=True)
        moved = False
        try:
            moved = isolate(
                self._journal,
                self._settings,
                self.projection_name,
                lease=self._lease,
                stopping=self._stopping,
            )
        except Exception:
            log.exception("projection %s cannot be worked apart", self.projection_name)
        if not moved:
            self._isolation_due_s = time.monotonic() + _ISOLATE_EVERY_S
        return moved

    def _report(self, step: Step) -> None:
        if step.problem is None and self._reported.problem is None:
            return
        name = self.projection_name
        with contextlib.suppress(Exception):  # it is tried again after the next step
            seq = self._journal.cursor(name) if step.problem else 0
            status = ProjectionStatus(problem=step.problem, to_correct=step.to_correct, seq=seq)
            if status == self._reported:
                return
            if step.to_correct is not None and step.problem != self._reported.problem:
                log.error("projection %s: %s", name, step.problem)
            self._journal.commit(_RUNNER, put={name: msgspec.json.encode(status)})
            self._reported = status


_START: Final = msgspec.msgpack.Decoder(_Start)
