"""The watch over an application: it observes the listener, asks Spark, and reports each run that failed."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waybill.spark.tracking.executions import Executions, Failed
from waybill.spark.tracking.exit_status import ProgramFailure, headline
from waybill.spark.tracking.match_failures import match_failure
from waybill.spark.tracking.observed_runs import ObservedRun, ObservedRuns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("waybill.spark")

SETTLE_TIMEOUT_S: Final = 10.0
"""How long `stop()` waits at most for events that the listener has not handled yet."""

_LOOKS_S: Final = (0.05, 0.2, 0.75, 2.0)
"""Pauses before each look at Spark's status store after a run ended, since the store lags behind."""
_UNMATCHED_MAX: Final = 1000

Report = Callable[[ObservedRun, ProgramFailure, int], None]
"""Takes a run that failed, the reason, and the time in epoch milliseconds."""


class FailureWatch:
    """Watches one application from its first event to its end, and reports each write that failed once.

    All calls to the JVM are made by one thread, so that a JVM that hangs blocks nothing else.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._observed = ObservedRuns()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._unmatched: deque[Failed] = deque(maxlen=_UNMATCHED_MAX)
        self._thread: threading.Thread | None = None

    def observe(self, body: bytes) -> ObservedRun | None:
        """Add an event of the listener's; the run it belongs to."""
        with self._lock:
            run = self._observed.observe(body)
        if run is not None and run.ended_ms is not None:
            self._woken.set()
        return run

    def open_runs(self) -> list[ObservedRun]:
        """The runs whose end is still to be told."""
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

    def _work(self, spark: SparkSession) -> None:
        try:
            executions = Executions(spark)
        except Exception:
            log.warning("the final states of this application cannot be checked", exc_info=True)
            return
        while not self._closing.is_set():
            self._woken.wait()
            self._woken.clear()
            for pause_s in _LOOKS_S:
                if self._closing.wait(pause_s):
                    break
                self._look(executions, last=pause_s == _LOOKS_S[-1])
        try:
            executions.settle(SETTLE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - py4j's, or the JVM's own
            log.warning("Spark's listener is behind, a failed write may read as complete: %s", error)
        self._look(executions, last=True, is_end=True)

    def _look(self, executions: Executions, *, last: bool, is_end: bool = False) -> None:
        """Match failed executions with the listener's runs, and report them.

        A backend believes the event that comes last, so ours waits for the listener's, but not forever: until
        the last look, if the failure was known at the one before, or until the end of the application.
        """
        try:
            known = list(self._unmatched)
            self._unmatched.extend(executions.newly_failed())
            if last and len(self._unmatched) > len(known):
                self._woken.set()  # These wait for another round of looks.
            with self._lock:
                found = match_failure(self._unmatched, self._observed)
                rdds = [run for run in self._observed.runs.values() if run.of_rdd and run.error]
            for failed, run in found:
                if is_end or run.ended_ms == failed.completed_ms or (last and failed in known):
                    self._report_once(run, failed.error, failed.completed_ms)
                    self._unmatched.remove(failed)
            for run in rdds:
                # The listener reports these rightly, but with the reason in a facet of its own.
                self._report_once(run, run.error or "", run.ended_ms or 0)
        except Exception:
            log.warning("the final states of this application cannot be checked", exc_info=True)

    def _report_once(self, run: ObservedRun, error: str, time_ms: int) -> None:
        if not run.is_reported:
            self._report(run, ProgramFailure(headline(error), error), time_ms)
            run.is_reported = True
