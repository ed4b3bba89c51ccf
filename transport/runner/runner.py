"""The runner: the one process of a home that runs its projections, each in its own thread."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from .. import locks
from ..errors import JournalError, RootError, WaybillError, sentence_of
from ..journal import NEARLY_FULL
from ..root import check_root
from .isolation import TRIES, is_held_up, isolate
from .projection import Projection, Step, open_projections
from .unended import UnendedRuns

if TYPE_CHECKING:
    from ..config import Settings
    from ..journal import Journal

log = logging.getLogger("waybill.runner")

IDLE_S: Final = 15.0
"""A runner ends when nothing is left to do and no entry has arrived for this long."""
BLOCKED_S: Final = 3600.0
"""A runner that only waits for an unreachable backend ends after this long without a new entry."""

_RUNNER: Final = "runner"
_STATUSES_FROM: Final = "runner_pid"
_POLL_S: Final = 0.1
_HOUSEKEEPING_EVERY_S: Final = 1.0
_PRUNE_EVERY_S: Final = 60.0
_OPEN_RUNS_EVERY_S: Final = 1.0
_FOR_MEMORY_S: Final = 1.0
_SHORT_OF_MEMORY_MAX: Final = 5
"""So often a projection waits for memory before its entries are suspected."""
_FAILED_RETRY_S: Final = 5.0
_IDLE_S_MIN: Final = 0.005
"""A turn that had nothing to do and waits less than this comes too early; two in a row are a fault."""
_COUNT_EVERY_S: Final = 1.0
_DAY_MS: Final = 86_400_000
_ISOLATE_EVERY_S: Final = 600.0
_STARTS: Final = "runner starts"
_CHECKPOINT_WAL_BYTES: Final = 4 * 2**20
_ANY_TIME_MS: Final = 2**63 - 1
_ROOM_ENTRIES: Final = 1_000
"""Small, so that no more than necessary is removed from a full journal."""


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A runner's last report on a projection, as in `Step`.

    Attributes:
        seq: the cursor at the problem.
        empty_turns: how often the projection had nothing to do and asked to be called again at once.
    """

    problem: str | None = None
    to_correct: str | None = None
    seq: int = 0
    empty_turns: int = 0


class _Start(msgspec.Struct, frozen=True, array_like=True):
    """A projection's cursor when a runner started, and how many in a row started there without ending."""

    cursor: int
    count: int = 1


def statuses(journal: Journal) -> dict[str, ProjectionStatus]:
    """The last report of the home's last runner on each projection, by name."""
    return {
        name: msgspec.json.decode(value, type=ProjectionStatus)
        for name, value in journal.state(_RUNNER).items()
    }


def forget_problems(journal: Journal, names: Iterable[str]) -> None:
    """Report no problem of these projections until a runner finds one; the caller holds its lease."""
    known = journal.state(_RUNNER).keys()
    none = msgspec.json.encode(ProjectionStatus())
    journal.commit(_RUNNER, put={name: none for name in names if name in known})


def has_live_statuses(journal: Journal) -> bool:
    """Whether `statuses` come from the live runner; a new runner takes a moment to report."""
    return journal.meta(_STATUSES_FROM) == str(locks.holder(journal.home))


class Runner:
    """Runs a home's projections by its agreed settings; the caller holds the runner's lease.

    Args:
        lease: the lease's descriptor, for processes that isolate projections.
    """

    def __init__(self, journal: Journal, settings: Settings, *, lease: int | None = None) -> None:
        self._journal = journal
        self._clock = journal.clock
        self._settings = settings
        self._lease = lease
        self._has_unloadable = False
        self._workers: list[_Worker] = []
        self._stopping = threading.Event()
        days = settings.close_stale_after
        self._unended = UnendedRuns(journal, None if days is None else int(days * _DAY_MS))
        self._housekeeping_due_s = self._prune_due_s = self._open_runs_due_s = 0.0

    def run(
        self, *, idle_s: float = IDLE_S, blocked_s: float = BLOCKED_S, until: Callable[[], bool] | None = None
    ) -> int:
        """Load the projections and run them until nothing is left to do, or `until` is true.

        Returns the sequence number of the last entry known when the runner decided to end.
        """
        self.open()
        try:
            last_seq = self._work(idle_s, blocked_s, until)
        finally:
            # The workers must end before the lease is released, even after a KeyboardInterrupt.
            self._stopping.set()
            for worker in self._workers:
                if worker.ident is not None:
                    worker.wake()
                    worker.join()
        self.close()
        return last_seq

    def open(self) -> None:
        """Open the projections, and report that they are this runner's; `run` does this itself."""
        projections, unloadable = open_projections(self._journal, self._settings)
        self._has_unloadable = bool(unloadable)
        suspects = self._note_start([projection.name for projection in projections])
        self._workers = [
            _Worker(
                projection,
                self._journal,
                self._settings,
                self._stopping,
                self._note_progress,
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
        """Note that a runner starts; return the projections at whose cursor `TRIES` runners have died."""
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
        last_seq, last_mark, quiet_since_s = -1, -1, self._clock.monotonic_s()
        while not (until and until()):
            if not self._journal.home.is_dir():
                break  # the whole home was deleted, so on purpose
            newest, now_s = self._journal.last_seq(), self._clock.monotonic_s()
            if newest != last_seq:
                last_seq, quiet_since_s = newest, now_s
                mark = self._journal.last_mark()
                for worker in self._workers:
                    worker.note_entries(is_marked=mark != last_mark)
                last_mark = mark
            self.keep_house(now_s)
            quiet_s = now_s - quiet_since_s
            settled = all(worker.settled or quiet_s > blocked_s for worker in self._workers)
            # Nobody else would notice that a program is gone. A program that is silent for that long may
            # still be alive.
            settled = settled and not (self._unended.waits and quiet_s <= blocked_s)
            if quiet_s > idle_s and settled:
                break
            self._clock.wait(self._stopping, _POLL_S)
        return last_seq

    def _note_progress(self, name: str) -> None:
        for worker in self._workers:
            worker.note_progress(name)

    def close(self) -> None:
        """Complete what the projections leave open, and close them."""
        home_exists = self._journal.path.exists()
        for worker in self._workers:
            worker.close(finish=home_exists)
        if home_exists:
            names = [worker.projection_name for worker in self._workers]
            self._tidy(lambda: self._journal.commit(_STARTS, delete=names, durable=False))
            self._tidy(self._journal.checkpoint)

    @property
    def projections(self) -> list[Projection]:
        """Those that are open, for a caller who steps them in an order of their own instead of `run`."""
        return [worker.projection for worker in self._workers if worker.projection is not None]

    def step(self, name: str) -> Step:
        """Do one step of a projection, as its thread would."""
        [worker] = [worker for worker in self._workers if worker.projection_name == name]
        return worker.step()[0]

    def keep_house(self, now_s: float) -> None:
        """Checkpoint, prune, and end the runs that nobody else ends, each when it is due."""
        if now_s >= self._open_runs_due_s:
            now_ms = self._clock.now_ms()
            is_behind = self._tidy(lambda: self._unended.look(now_ms))
            self._open_runs_due_s = now_s if is_behind else now_s + _OPEN_RUNS_EVERY_S
        if now_s >= self._housekeeping_due_s:
            self._housekeeping_due_s = now_s + _HOUSEKEEPING_EVERY_S
            if self._journal.wal_bytes() > _CHECKPOINT_WAL_BYTES:
                self._tidy(self._journal.checkpoint)
            if now_s >= self._prune_due_s or self._journal.filled >= NEARLY_FULL:
                if self._tidy(self._prune):
                    self._housekeeping_due_s = now_s  # there may be more to prune
                else:
                    self._prune_due_s = now_s + _PRUNE_EVERY_S

    def _tidy(self, work: Callable[[], int | None]) -> int | None:
        """Do work that can also be done later: a full or failing disk must not stop the projections."""
        try:
            return work()
        except JournalError:
            log.exception("the journal cannot be cleaned up now; it will be tried again")
            return None

    def _prune(self) -> int:
        """Remove entries that every projection has processed.

        While the journal is nearly full, the oldest entries go. Otherwise entries go when they are old
        enough, if a projection stores their content. A journal without projections keeps everything, and so
        does one whose projections only note what entries say.

        Nothing is removed while a projection cannot be loaded, or while the root is missing or is an older
        copy: they need the entries later.
        """
        if self._has_unloadable or all(worker.stores is None for worker in self._workers):
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
        retained_ms = int(self._settings.journal_retain_days * _DAY_MS)
        return self._journal.prune(upto, self._clock.now_ms() - retained_ms)


class _Worker(threading.Thread):
    """The thread of one projection; with `is_suspect` the projection is isolated first."""

    def __init__(
        self,
        projection: Projection,
        journal: Journal,
        settings: Settings,
        stopping: threading.Event,
        on_progress: Callable[[str], None],
        *,
        lease: int | None,
        is_suspect: bool,
    ) -> None:
        super().__init__(name=f"waybill-{projection.name}", daemon=True)
        self.projection_name = projection.name
        self.stores = projection.stores
        self.settled = False
        """Whether its last step found nothing to do and left nothing pending."""
        self.projection: Projection | None = projection
        self._journal = journal
        self._clock = journal.clock
        self._settings = settings
        self._stopping = stopping
        self._on_progress = on_progress
        self._lease = lease
        self._is_suspect = is_suspect
        self._isolation_due_s = float("-inf")
        self._short_of_memory = 0
        self._reported = ProjectionStatus()
        self._short_turns = self._empty_turns = 0
        self._count_due_s = float("-inf")
        self._woken = threading.Event()
        self._rests: Step | None = None
        """The step after which it rests."""

    def note_entries(self, *, is_marked: bool) -> None:
        """Note that entries have arrived, and whether one is a mark."""
        self.settled = False
        if is_marked or self._rests is None or not self._rests.gathers:
            self._woken.set()

    def note_progress(self, name: str) -> None:
        """Note that a projection has done something."""
        if self._rests is None or self._rests.follows == name:
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._rests = None
            self._woken.clear()
            began_s, used_s = self._clock.monotonic_s(), time.thread_time()
            step, pending = self.step()
            waited_s = self._clock.monotonic_s() - began_s - (time.thread_time() - used_s)
            self._count(step, waited_s)
            self._report(step)
            if step.applied:
                self._on_progress(self.projection_name)
            else:
                self.settled = step.problem is None and pending == 0 and not self._woken.is_set()
                self._rest(step)

    def _count(self, step: Step, waited_s: float) -> None:
        """Count an empty turn, given how long the step itself has waited."""
        is_short = not step.applied and step.retry_s is not None and step.retry_s + waited_s < _IDLE_S_MIN
        self._short_turns = self._short_turns + 1 if is_short else 0
        if self._short_turns > 1:
            if not self._empty_turns:
                log.error("projection %s has nothing to do and asks again at once", self.projection_name)
            self._empty_turns += 1

    def _rest(self, step: Step) -> None:
        if step.problem is not None and step.retry_s is not None:
            # New entries do not wake a projection that is backing off from its backend.
            self._clock.wait(self._stopping, step.retry_s)
            return
        self._rests = step
        if not self._stopping.is_set():
            self._clock.wait(self._woken, step.retry_s)

    def close(self, *, finish: bool) -> None:
        """Close the projection; with `finish`, complete its output first."""
        if self.projection is None:
            return
        if finish:
            try:
                self.projection.finish()
            except Exception:
                log.exception(
                    "projection %s could not complete its output; it will continue later",
                    self.projection_name,
                )
        self.projection.close()
        self.projection = None

    def step(self) -> tuple[Step, int]:
        """Do a step; if there was nothing to do, count what is pending."""
        try:
            if self._is_suspect:
                self._is_suspect = False
                self._isolate()
            if self.projection is None:
                (self.projection,) = open_projections(self._journal, self._settings, self.projection_name)[0]
            step = self.projection.step()
            self._short_of_memory = 0
            return step, 0 if step.applied or step.problem is not None else self.projection.pending()
        except Exception as error:
            if isinstance(error, MemoryError) and self._short_of_memory < _SHORT_OF_MEMORY_MAX:
                # Another projection may have it, for as long as a large entry takes.
                self._short_of_memory += 1
                self.close(finish=True)
                return Step(retry_s=_FOR_MEMORY_S), 1
            log.exception("projection %s failed", self.projection_name)
            failed = Step(retry_s=_FAILED_RETRY_S, problem=_said(error))
            if is_held_up(error) or self._clock.monotonic_s() < self._isolation_due_s:
                return failed, 0
            return (Step(applied=1) if self._isolate() else failed), 0

    def _isolate(self) -> bool:
        """Isolate the projection; if that does not help, the next isolation comes much later."""
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
            log.exception("projection %s cannot be isolated", self.projection_name)
        if not moved:
            self._isolation_due_s = self._clock.monotonic_s() + _ISOLATE_EVERY_S
        return moved

    def _report(self, step: Step) -> None:
        now_s, reported = self._clock.monotonic_s(), self._reported
        turns = reported.empty_turns if now_s < self._count_due_s else self._empty_turns
        if step.problem is None and reported.problem is None and turns == reported.empty_turns:
            return
        name = self.projection_name
        with contextlib.suppress(Exception):  # tried again after the next step
            seq = self._journal.cursor(name) if step.problem else 0
            status = ProjectionStatus(
                problem=step.problem, to_correct=step.to_correct, seq=seq, empty_turns=turns
            )
            if status == self._reported:
                return
            if step.to_correct is not None and step.problem != self._reported.problem:
                log.error("projection %s: %s", name, step.problem)
            self._journal.commit(_RUNNER, put={name: msgspec.json.encode(status)})
            self._reported, self._count_due_s = status, now_s + _COUNT_EVERY_S
            self._on_progress(self.projection_name)


def _said(error: Exception) -> str:
    """An error as the problem of a projection; of one that was not foreseen, the type tells most."""
    if isinstance(error, (OSError, WaybillError)):
        return sentence_of(error)
    return f"{type(error).__name__}: {error}"


_START: Final = msgspec.msgpack.Decoder(_Start)
