"""The watch over an application: it observes the listener, asks Spark, and reports how each run ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from waybill.facets import RunEvent, decode_event
from waybill.facets.causes import telling

from .corrections import failure_event, success_event, unknown_run
from .executions import Execution, Executions
from .exit_status import ProgramFailure
from .match_failures import SLACK_MS, Matched, is_part, lost_writes, match
from .observed_runs import FailedExecution, ObservedRun, ObservedRuns
from .plans import EXISTS, why_nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("waybill.spark")

SETTLE_TIMEOUT_S: Final = 10.0
"""How long `stop()` waits at most for events that the listener has not handled yet."""

STOPPED_TIMEOUT_S: Final = 2.0
"""How long it takes at most to decide what had to wait until Spark has stopped."""

CONFIRM_TIMEOUT_S: Final = 1.0
"""How long it waits for these while the application is running; otherwise the next round confirms."""

NOTED_WITHIN_S: Final = (0.05, 0.2, 0.5)
"""Pauses before each further check at the end: the store's own worker may note an end after `settle`."""

UNMATCHED_MAX: Final = 1000
"""The most failures that wait for their run; beyond, the oldest are given up."""


class FailureWatch:
    """Watches one application from its first event to its end, and reports once how each write ended.

    A failed write without a known run is reported as a separate run. A success is confirmed once the listener
    has reported everything about it and no remaining failure could belong to it. All calls to the JVM are
    made by one thread, so that a JVM that hangs blocks nothing else.

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
        self._told: set[int] = set()
        """The roots of the failures that were reported with their run."""
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
        if self._behind is None:
            return
        thread = threading.Thread(target=self._decide_all, args=(self._behind,), daemon=True)
        thread.start()
        thread.join(STOPPED_TIMEOUT_S)
        if thread.is_alive():
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
        while not self._closing.is_set():
            self._woken.wait()
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
        try:
            executions.settle(SETTLE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - py4j's, or the JVM's own
            log.info(
                "Spark's listener is behind; failed writes are matched once Spark has stopped: %s", error
            )
            self._behind = executions
            self._quietly(self._look, executions, last=True)
            self._quietly(executions.keep, self._unmatched, SLACK_MS)
            return
        self._decide_all(executions)

    def _decide_all(self, executions: Executions) -> None:
        self._quietly(self._look, executions, last=True)
        for pause_s in NOTED_WITHIN_S:
            if not executions.are_open:
                break
            time.sleep(pause_s)
            self._quietly(self._look, executions, last=True)
        self._quietly(self._decide, executions, list(self._unmatched))
        self._quietly(self._confirm, executions, SETTLE_TIMEOUT_S)

    def _quietly(self, work: Callable[..., None], *args: object, **kwargs: object) -> None:
        try:
            work(*args, **kwargs)
        except Exception:
            log.warning("the final states of this application cannot be checked", exc_info=True)

    def _look(self, executions: Executions, *, last: bool) -> None:
        """Match failed executions with the listener's runs, and report those that are certain.

        A backend believes the event that comes last, so ours waits for the listener's, but not forever: until
        the last look, if the failure was known at the one before.
        """
        known = {failure.id for failure in self._unmatched}
        self._unmatched += executions.newly_without_write()
        matched = self._match(self._unmatched, None)
        for failed, run in matched.pairs:
            if run.ended_ms == failed.completed_ms or (last and failed.id in known):
                self._tell(failed, run, executions.application_id)
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
        if not old:
            return
        try:
            executions.settle(SETTLE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - as above
            log.info("Spark's listener is behind; %d failures wait for their runs: %s", len(old), error)
            return
        self._decide(executions, old)

    def _decide(self, executions: Executions, failed: Collection[Execution]) -> None:
        """Report failures for good: the listener has reported everything about them."""
        try:
            succeeded = list(executions.succeeded_beside(failed, SLACK_MS))
        except Exception as error:  # noqa: BLE001 - as above
            log.info("Spark does not report successes, so only strong evidence counts: %s", error)
            succeeded = None
        matched = self._match(failed, succeeded)
        for failure, run in matched.pairs:
            self._tell(failure, run, executions.application_id)
        lost = lost_writes(matched.left, self._told)
        for failure in lost:
            run = unknown_run(failure, self._application(), executions.application_id)
            self._fail_once(run, failure.error, failure.completed_ms)
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

    def _tell(self, failure: Execution, run: ObservedRun, application_id: str) -> None:
        self._unmatched.remove(failure)
        if failure.error:
            run.failed, run.is_part = FailedExecution(application_id, failure.id), is_part(failure, run)
            self._fail_once(run, failure.error, failure.completed_ms)
        else:
            self._succeed_once(run, nothing=why_nothing(failure.plan) or EXISTS)
        if not run.is_part:
            self._told.add(failure.root_id)

    def _confirm(self, executions: Executions, timeout_s: float) -> None:
        """Confirm each write that the listener reported as complete and that nothing contradicts."""
        with self._lock:
            ended = [run for run in self._observed.runs.values() if run.outputs and run.ended_ms is not None]
        ended = [run for run in ended if not run.is_reported and not run.has_failed and not run.error]
        if not ended:
            return
        try:
            executions.settle(timeout_s)
        except Exception as error:  # noqa: BLE001 - as above
            log.info("Spark's listener is behind; %d writes are not confirmed yet: %s", len(ended), error)
            return
        self._look(executions, last=True)
        if self._unmatched:
            return  # One of the writes may be theirs; the next round decides.
        for run in ended:
            if executions.may_have_failed(run.started_ms, run.ended_ms or 0, SLACK_MS):
                continue
            if not any(abs((run.ended_ms or 0) - lost_ms) <= SLACK_MS for lost_ms in self._lost_ms):
                self._succeed_once(run)

    def _fail_once(self, run: ObservedRun, error: str, time_ms: int) -> None:
        if not run.is_reported:
            self._emit(failure_event(run, ProgramFailure.of_write(error), time_ms, language="JAVA"))
            run.is_reported = True

    def _succeed_once(self, run: ObservedRun, *, nothing: str | None = None) -> None:
        if not run.is_reported:
            self._emit(success_event(run, nothing=nothing))
            run.is_reported = True
