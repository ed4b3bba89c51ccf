"""The watch over an application: it observes the listener, asks Spark, and reports how each run ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import RunEvent, decode_event
from waybill.facets.causes import telling
from waybill.transport.clock import SYSTEM_CLOCK

from .corrections import failure_event, success_event, unknown_run
from .executions import Execution, Executions
from .exit_status import ProgramFailure
from .match_failures import SLACK_MS, Matched, is_part, lost_writes, match, may_be_of
from .observed_runs import FailedExecution, ObservedRun, ObservedRuns
from .plans import EXISTS, command_of, is_discarded, why_nothing, writes
from .termination import within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.facets.event import DatasetName

log = logging.getLogger("waybill.spark")

SETTLE_TIMEOUT_S: Final = 10.0
"""How long `stop()` waits at most for events that the listener has not handled yet."""

STOPPED_TIMEOUT_S: Final = 2.0
"""How long it takes at most to decide what had to wait until Spark has stopped."""

CONFIRM_TIMEOUT_S: Final = 1.0
"""How long it waits for these while the application is running; otherwise the next round confirms."""

NOTED_WITHIN_S: Final = (0.05, 0.2, 0.5)
"""Pauses before each further check at the end: the store's own worker may note an end after `settle`."""

LOOKS_EVERY_S: Final = 5.0
"""How often it looks while the listener reports nothing, as of a write that it does not notice."""

UNMATCHED_MAX: Final = 1000
"""The most failures that wait for their run; beyond, the oldest are given up."""


class FailureWatch:
    """Watches one application from its first event to its end, and reports once how each write ended.

    A write without a known run is reported as a separate run, whether it failed or not. A success is
    confirmed once the listener has reported everything about it and no remaining failure could belong to it.
    All calls to the JVM are made by one thread, so that a JVM that hangs blocks nothing else.

    Args:
        emit: stores an event.
        application: returns the application's own run, if it is known.
        looks_s: pauses before each check of Spark's status store after a run ended; the store lags behind.
    """

    def __init__(
        self,
        emit: Callable[[bytes], None],
        application: Callable[[], ObservedRun],
        looks_s: Sequence[float] = (0.05, 0.2, 0.75, 2.0),
    ) -> None:
        self._emit = emit
        self._application = application
        self._looks_s = looks_s
        self._observed = ObservedRuns()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._unmatched: list[Execution] = []
        self._written: list[Execution] = []
        """The executions that wrote and are not confirmed yet."""
        self._told: set[int] = set()
        """The statements that have a record, of those that are not parts of others."""
        self._unnamed: set[str] = set()
        """The commands of which a record has no sink, since nothing names what they wrote."""
        self._lost_ms: list[int] = []
        """The end times of the executions whose run is unknown."""
        self._behind: Executions | None = None
        """What is still to be decided after Spark has stopped."""
        self._thread: threading.Thread | None = None

    def observe(self, body: bytes) -> ObservedRun | None:
        """Add one of the listener's events; returns the run that it belongs to, if any."""
        event = decode_event(body)
        if not isinstance(event, RunEvent):
            return None
        with self._lock:
            run = self._observed.observe(event)
        if run.ended_ms is not None:
            self._woken.set()
        return run

    def open_runs(self) -> list[ObservedRun]:
        """The runs whose end is not reported yet."""
        with self._lock:
            return self._observed.open_runs()

    def attach(self, spark: SparkSession) -> None:
        """Start the thread that asks Spark."""
        self._thread = threading.Thread(target=self._work, args=(spark,), name="waybill-watch", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Report everything that failed, in bounded time; the application is about to stop."""
        self._closing.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(SETTLE_TIMEOUT_S * 1.5)
            if self._thread.is_alive():
                log.warning("Spark does not answer; a failed write may be recorded as COMPLETE")

    def finish_stopped(self) -> None:
        """Report what `finish` could not: Spark has stopped, and its listener has reported everything."""
        if self._thread is not None:
            self._thread.join(STOPPED_TIMEOUT_S)  # what it waited for is there now
        if (behind := self._behind) is not None and not within(
            STOPPED_TIMEOUT_S, lambda: self._decide_all(behind)
        ):
            log.warning("Spark does not answer; a failed write may be recorded as COMPLETE")

    def _work(self, spark: SparkSession) -> None:
        try:
            executions = Executions(spark)
        except Exception:
            log.warning("the final states of this application cannot be checked", exc_info=True)
            return
        self.watch(executions)

    def watch(self, executions: Executions) -> None:
        """Check an application's executions whenever a run has ended, until `finish`."""
        every_s: float | None = LOOKS_EVERY_S
        while not self._closing.is_set():
            if not self._woken.wait(every_s):
                if not self._quietly(self._look, executions, last=False):
                    every_s = None  # Java is gone
                if not self._unmatched and not self._written:
                    continue
            self._woken.clear()
            waiting = {failure.id for failure in self._unmatched}
            for number, pause_s in enumerate(self._looks_s, 1):
                if self._closing.wait(pause_s):
                    break
                self._quietly(self._look, executions, last=number == len(self._looks_s))
            else:
                self._quietly(self._give_up, executions, waiting)
                self._quietly(self._confirm, executions, CONFIRM_TIMEOUT_S)
        self._quietly(self._look_at_last, executions)

    def _look_at_last(self, executions: Executions) -> None:
        """Decide on everything; what the listener has not reported yet waits until Spark has stopped."""
        if _has_settled(executions, SETTLE_TIMEOUT_S, "failed writes are matched once Spark has stopped"):
            self._decide_all(executions)
            return
        self._behind = executions
        self._quietly(self._look, executions, last=True)
        self._quietly(executions.keep, self._unmatched, SLACK_MS)

    def _decide_all(self, executions: Executions) -> None:
        self._quietly(self._look, executions, last=True)
        for pause_s in NOTED_WITHIN_S:
            if not executions.are_open:
                break
            SYSTEM_CLOCK.sleep(pause_s)
            self._quietly(self._look, executions, last=True)
        self._quietly(self._decide, executions, list(self._unmatched))
        self._quietly(self._confirm, executions, SETTLE_TIMEOUT_S)

    def _quietly(self, work: Callable[..., None], *args: object, **kwargs: object) -> bool:
        try:
            work(*args, **kwargs)
        except Exception:
            log.warning("the final states of this application cannot be checked", exc_info=True)
            return False
        return True

    def _look(self, executions: Executions, *, last: bool) -> None:
        """Match failed executions with the listener's runs, and report those that are certain.

        A backend believes the event that comes last, so ours waits for the listener's, but not forever: until
        the last look, if the failure was known at the one before.
        """
        known = {failure.id for failure in self._unmatched}
        for ended in executions.newly_ended():
            (self._written if ended.wrote else self._unmatched).append(ended)
        matched = self._match(self._unmatched, None)
        for failed, run in _parts_first(matched.pairs):
            if run.ended_ms == failed.completed_ms or (last and failed.id in known):
                self._tell(failed, run, executions)
        with self._lock:
            rdds = [run for run in self._observed.runs.values() if run.of_rdd and run.error]
        for run in rdds:
            # The listener reports these correctly, but with the reason in its own facet.
            self._fail_once(run, run.error or "", run.ended_ms or 0)
        if len(self._unmatched) > UNMATCHED_MAX:
            self._decide(executions, self._unmatched[:-UNMATCHED_MAX])
        if last and self._unmatched:
            self._woken.set()  # These wait for another round of checks.

    def _give_up(self, executions: Executions, waiting: Collection[int]) -> None:
        """Decide on failures that have waited for a round of checks, unless the listener is still behind."""
        old = [failure for failure in self._unmatched if failure.id in waiting]
        if old and _has_settled(executions, SETTLE_TIMEOUT_S, f"{len(old)} failures wait for their runs"):
            self._decide(executions, old)

    def _decide(self, executions: Executions, failed: Collection[Execution]) -> None:
        """Report failures for good: the listener has reported everything about them."""
        try:
            succeeded = list(executions.succeeded_beside(failed, SLACK_MS))
        except Exception as error:  # noqa: BLE001 - py4j's, or the JVM's own
            log.info("Spark does not report successes, so only strong evidence counts: %s", error)
            succeeded = None
        matched = self._match(failed, succeeded)
        for failure, run in _parts_first(matched.pairs):
            self._tell(failure, run, executions)
        lost = lost_writes(matched.left, self._told)
        for failure in lost:
            sinks = executions.locate(failure)
            run = unknown_run(failure, self._application(), executions.application_id, sinks)
            run.sources = tuple(executions.read_by(failure, ()))
            self._fail_once(run, failure.error, failure.completed_ms)
            self._told.add(failure.statement)
        self._lost_ms += [failure.completed_ms for failure in matched.left]
        if lost:
            log.warning(
                "%d failed writes match none of the listener's runs and have separate records, marked "
                '"run: not known"; other records may say that they are COMPLETE. The first: %s',
                len(lost),
                telling(lost[0].error),
            )
        self._unmatched = [failure for failure in self._unmatched if failure not in failed]

    def _match(self, failed: Collection[Execution], succeeded: Collection[Execution] | None) -> Matched:
        with self._lock:
            return match(failed, self._observed.runs.values(), succeeded)

    def _tell(self, failure: Execution, run: ObservedRun, executions: Executions) -> None:
        self._unmatched.remove(failure)
        run.is_part = is_part(failure, run, self._told)
        if not failure.error:
            self._succeed_once(run, nothing=why_nothing(failure.plan) or EXISTS)
        else:
            run.failed = FailedExecution(executions.application_id, failure.id)
            if not run.outputs and writes(failure.plan):
                run.sinks = tuple(one for one in executions.locate(failure) if one not in failure.written)
            self._fail_once(run, failure.error, failure.completed_ms)
            if failure.written:
                before = msgspec.structs.replace(failure, error="", wrote=True)
                self._report(before, executions, failure.written)
        if not run.is_part:
            self._told.add(failure.statement)

    def _sinks_of(self, written: Execution, executions: Executions) -> tuple[DatasetName, ...]:
        """Where it wrote; warns once of each command of which nothing says that."""
        sinks, command = executions.locate(written), command_of(written.plan) or ""
        is_part = written.statement != written.id
        if not (sinks or is_part or is_discarded(written.plan) or command in self._unnamed):
            self._unnamed.add(command)
            log.warning("Spark does not say where %s writes; its records have no sink", command)
        return tuple(sinks)

    def _report(self, written: Execution, executions: Executions, sinks: Collection[DatasetName]) -> None:
        """Report a write of which the listener said nothing."""
        run = unknown_run(written, self._application(), executions.application_id, list(sinks))
        run.sources = tuple(executions.read_by(written, ()))
        self._succeed_once(run)
        self._told.add(written.statement)

    def _confirm(self, executions: Executions, timeout_s: float) -> None:
        """Confirm each write that nothing contradicts, and report those that the listener did not notice."""
        with self._lock:
            ended = [run for run in self._observed.runs.values() if run.outputs and run.ended_ms is not None]
        ended = [run for run in ended if not run.is_reported and not run.has_failed and not run.error]
        if not ended and not self._written:
            return
        if not _has_settled(executions, timeout_s, f"{len(ended)} writes are not confirmed yet"):
            return
        self._look(executions, last=True)
        if self._unmatched:
            return  # One of the writes may be theirs; the next round decides.
        self._confirm_written(executions)
        for run in ended:
            if executions.may_have_failed(run.started_ms, run.ended_ms or 0, SLACK_MS):
                continue
            if not self._is_doubtful(run):
                # As of a stream's batch, which a table format writes in a query of its own.
                run.is_part |= any(other.encloses(run) for other in ended)
                self._succeed_once(run)

    def _confirm_written(self, executions: Executions) -> None:
        """Confirm the runs of what wrote, and report what has none; the parts of a command come before it."""
        written, self._written = self._written, []
        owners = {one.id: run for one, run in self._match(written, ()).pairs}
        taken = {run.run_id for run in owners.values()}
        with self._lock:
            free = [run for run in self._observed.runs.values() if run.run_id not in taken]
        for execution in sorted(written, key=lambda one: -one.id):
            run = owners.get(execution.id)
            if run is None:
                sinks = self._sinks_of(execution, executions)
                is_told = execution.statement in self._told or is_part(execution, None, self._told)
                if not is_told and not any(may_be_of(execution, sinks, other) for other in free):
                    self._report(execution, executions, sinks)
            elif run.ended_ms is not None and not self._is_doubtful(run):
                run.is_part = is_part(execution, run, self._told)
                run.sources = tuple(executions.read_by(execution, run.inputs))
                run.sinks = () if run.outputs else self._sinks_of(execution, executions)
                run.is_unnamed = not (run.outputs or run.sinks or run.is_part or is_discarded(execution.plan))
                self._succeed_once(run)
                if not run.is_part:
                    self._told.add(execution.statement)

    def _is_doubtful(self, run: ObservedRun) -> bool:
        """Whether it failed, or a failure without a run ended when it did."""
        return (
            run.has_failed
            or bool(run.error)
            or any(abs((run.ended_ms or 0) - lost_ms) <= SLACK_MS for lost_ms in self._lost_ms)
        )

    def _fail_once(self, run: ObservedRun, error: str, time_ms: int) -> None:
        if not run.is_reported:
            self._emit(failure_event(run, ProgramFailure.of_write(error), time_ms, language="JAVA"))
            run.is_reported = True

    def _succeed_once(self, run: ObservedRun, *, nothing: str | None = None) -> None:
        if not run.is_reported:
            self._emit(success_event(run, nothing=nothing))
            run.is_reported = True


def _has_settled(executions: Executions, timeout_s: float, what: str) -> bool:
    """Whether the listener has reported everything so far; if not, what that means is logged."""
    try:
        executions.settle(timeout_s)
    except Exception as error:  # noqa: BLE001 - as above
        log.info("Spark's listener is behind; %s: %s", what, error)
        return False
    return True


def _parts_first(pairs: Iterable[tuple[Execution, ObservedRun]]) -> list[tuple[Execution, ObservedRun]]:
    """The pairs in an order in which the parts of a command come before it."""
    return sorted(pairs, key=lambda pair: -pair[0].id)
