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
"""A runner ends when nothing is left to do and nothing came for this long."""
BLOCKED_S: Final = 3600.0
"""A runner whose only work left waits for a backend that is down ends after this long without a new entry."""

_RUNNER: Final = "runner"
_SAID_BY: Final = "runner_pid"
_POLL_S: Final = 0.05
_ADOPT_EVERY_S: Final = 0.2
_HOUSEKEEPING_EVERY_S: Final = 1.0
_PRUNE_EVERY_S: Final = 60.0
_FAILED_RETRY_S: Final = 5.0
_CHECKPOINT_WAL_BYTES: Final = 4 * 2**20
_FULL_SHARE: Final = 0.8


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner last said of a projection, as in `Step`: `problem` is None when all was well."""

    problem: str | None = None
    to_correct: str | None = None


def open_projections(journal: Journal, settings: Settings) -> tuple[list[Projection], dict[str, str]]:
    """Load what the entry points offer.

    Returns:
        The projections that the settings ask for, and by name the problem of each that could not be loaded:
        one that fails never stops the others.
    """
    opened: list[Projection] = []
    problems: dict[str, str] = {}
    for point in sorted(entry_points(group=PROJECTIONS_GROUP), key=lambda point: point.name):
        try:
            open_projection: OpenProjection = point.load()
            offered = open_projection(journal, settings)
        except Exception as error:
            log.exception("projection %s cannot be loaded", point.name)
            problems[point.name] = f"{point.value} cannot be loaded: {error}"
        else:
            if isinstance(offered, Sequence):
                opened.extend(offered)
            elif offered is not None:
                opened.append(offered)
    return opened, problems


def statuses(journal: Journal) -> dict[str, ProjectionStatus]:
    """What the home's last runner said of each projection it worked, by name."""
    return {
        name: msgspec.json.decode(value, type=ProjectionStatus)
        for name, value in journal.state(_RUNNER).items()
    }


def lag_s(journal: Journal, cursor: int) -> float:
    """How old the oldest entry is that a projection has not dealt with, in seconds; 0 where there is none.

    Args:
        journal: where the entries are.
        cursor: the projection's.
    """
    for entry in journal.read(cursor, limit=1):
        return max(time.time() - entry.received_ms / 1000, 0.0)
    return 0.0


def has_said(journal: Journal) -> bool:
    """Whether `statuses` are those of the runner that is alive; a new one has said none for a moment."""
    return journal.meta(_SAID_BY) == str(locks.holder(journal.home))


class Runner:
    """Works a home's projections; the caller holds the home's lease.

    Args:
        journal: the home's journal.
        settings: those of the home's agreement.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        """Load the projections and say which there are."""
        self.journal = journal
        self.settings = settings
        self.projections, unloadable = open_projections(journal, settings)
        self._unloadable = frozenset(unloadable)
        self._stopping = threading.Event()
        self._workers = [_Worker(projection, self) for projection in self.projections]
        self._adoption_due_s = self._housekeeping_due_s = self._prune_due_s = 0.0
        said = {
            name: msgspec.json.encode(ProjectionStatus(problem=problem))
            for name, problem in unloadable.items()
        }
        said |= {projection.name: msgspec.json.encode(ProjectionStatus()) for projection in self.projections}
        journal.commit(_RUNNER, put=said, delete=journal.state(_RUNNER).keys() - said.keys())
        journal.set_meta(_SAID_BY, str(os.getpid()))

    def run(
        self, *, idle_s: float = IDLE_S, blocked_s: float = BLOCKED_S, until: Callable[[], bool] | None = None
    ) -> int:
        """Work until nothing is left to do, or `until` says so, or a stop is requested.

        Returns:
            The last entry that the decision to end knew of.
        """
        try:
            seen = self._work(idle_s, blocked_s, until)
        finally:
            # Whatever ends this, KeyboardInterrupt too: the lease goes next, and the workers go before it.
            self._halt()
        self._end()
        return seen

    def _work(self, idle_s: float, blocked_s: float, until: Callable[[], bool] | None) -> int:
        for worker in self._workers:
            worker.start()
        seen, quiet_since_s = -1, time.monotonic()
        while not self._stopping.is_set() and not (until and until()):
            last, now_s = self.journal.last_seq(), time.monotonic()
            if last != seen:
                seen, quiet_since_s = last, now_s
                for worker in self._workers:
                    worker.wake()
            if not self._keep_house(now_s):
                break
            self._adopt(now_s)
            quiet_s = now_s - quiet_since_s
            settled = all(worker.settled or quiet_s > blocked_s for worker in self._workers)
            if quiet_s > idle_s and settled and not waiting(self.journal.home):
                break
            self._stopping.wait(_POLL_S)
        return seen

    def stop(self) -> None:
        """Ask `run` to end after the steps that are under way; safe in a signal handler."""
        self._stopping.set()

    @property
    def problems(self) -> dict[str, str]:
        """What holds projections up, by name."""
        return {worker.projection.name: worker.problem for worker in self._workers if worker.problem}

    @property
    def stopping(self) -> bool:
        """Whether the runner is about to end."""
        return self._stopping.is_set()

    def wait_for_stop(self, timeout_s: float) -> None:
        """Wait until the runner is about to end, at most for so long."""
        self._stopping.wait(timeout_s)

    def _halt(self) -> None:
        self._stopping.set()
        for worker in self._workers:
            if worker.ident is not None:
                worker.join()

    def _end(self) -> None:
        home_is_there = self.journal.path.exists()
        for projection in self.projections:
            if home_is_there:
                self._finish(projection)
            projection.close()
        if home_is_there:
            self._tidy(self.journal.checkpoint)

    def _finish(self, projection: Projection) -> None:
        try:
            projection.finish()
        except Exception:
            log.exception("projection %s cannot finish; the next runner takes it up", projection.name)

    def _keep_house(self, now_s: float) -> bool:
        """Now and then adopt, checkpoint and prune; False when the home is gone."""
        if now_s < self._housekeeping_due_s:
            return True
        if not self.journal.path.exists():
            return False
        self._housekeeping_due_s = now_s + _HOUSEKEEPING_EVERY_S
        if self.journal.wal_bytes() > _CHECKPOINT_WAL_BYTES:
            self._tidy(self.journal.checkpoint)
        if now_s >= self._prune_due_s and not self._tidy(self._prune):
            self._prune_due_s = now_s + _PRUNE_EVERY_S
        return True

    def _tidy(self, do: Callable[[], int | None]) -> int | None:
        """Do what can wait: a disk that is full or fails now must not end the projections' work."""
        try:
            return do()
        except JournalError:
            log.exception("the journal cannot be tidied; it is tried again")
            return None

    def _adopt(self, now_s: float) -> None:
        if now_s >= self._adoption_due_s:
            self._adoption_due_s = now_s + _ADOPT_EVERY_S
            # What the journal cannot take now stays in the spools.
            with contextlib.suppress(JournalError):
                adopt(self.journal)

    def _prune(self) -> int:
        """Let go of old entries that every projection has, provided that one of them keeps what they said.

        One that cannot be loaded now has to see them all the same, once it can.
        """
        if self._unloadable or not any(projection.stores for projection in self.projections):
            return 0
        cursors = self.journal.cursors()
        upto = min(cursors.get(projection.name, 0) for projection in self.projections)
        now_ms = time.time_ns() // 1_000_000
        before_ms = now_ms - int(self.settings.journal_retain_days * 86_400_000)
        if self.settings.journal_when_full == "drop-delivered":
            room_bytes = self.settings.journal_max_bytes * _FULL_SHARE
            before_ms = now_ms if self.journal.size_bytes() > room_bytes else before_ms
        return self.journal.prune(upto, before_ms)


class _Worker(threading.Thread):
    """The thread of one projection."""

    def __init__(self, projection: Projection, runner: Runner) -> None:
        super().__init__(name=f"waybill-{projection.name}", daemon=True)
        self.projection = projection
        self.problem: str | None = None
        self.settled = False
        """Whether its last step found nothing to do and left nothing pending."""
        self._runner = runner
        self._woken = threading.Event()

    def wake(self) -> None:
        self.settled = False
        self._woken.set()

    def run(self) -> None:
        while not self._runner.stopping:
            self._woken.clear()
            step, pending = self._step()
            self._tell(step)
            if step.applied:
                continue
            self.settled = step.problem is None and pending == 0 and not self._woken.is_set()
            self._rest(step)

    def _rest(self, step: Step) -> None:
        if step.problem is not None and step.retry_s is not None:
            # A projection that backs off from its backend is not woken by new entries.
            self._runner.wait_for_stop(step.retry_s)
            return
        deadline_s = time.monotonic() + step.retry_s if step.retry_s is not None else float("inf")
        while not self._runner.stopping and (remaining_s := deadline_s - time.monotonic()) > 0:
            if self._woken.wait(min(remaining_s, _POLL_S)):
                return

    def _step(self) -> tuple[Step, int]:
        """A step, and how much is pending after one that found nothing to do."""
        try:
            step = self.projection.step()
            return step, 0 if step.applied or step.problem is not None else self.projection.pending()
        except Exception as error:
            log.exception("projection %s failed", self.projection.name)
            return Step(retry_s=_FAILED_RETRY_S, problem=f"{type(error).__name__}: {error}"), 0

    def _tell(self, step: Step) -> None:
        if step.problem == self.problem:
            return
        if step.to_correct is not None:
            log.error("projection %s: %s", self.projection.name, step.problem)
        self.problem = step.problem
        status = msgspec.json.encode(ProjectionStatus(problem=step.problem, to_correct=step.to_correct))
        with contextlib.suppress(Exception):
            self._runner.journal.commit(_RUNNER, put={self.projection.name: status})
