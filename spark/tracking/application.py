"""One tracked application: its journal, its endpoint, its watch, and its end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from waybill.facets.json_events import new_run_id
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.home import Home
from waybill.transport.receiver import Receiver

from . import exit_status, termination
from .corrections import failure_event, success_event
from .datasets import Datasets
from .executions import Executions
from .exit_status import ProgramFailure
from .failure_watch import FailureWatch
from .observed_runs import ObservedRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waybill.transport import Settings

log = logging.getLogger("waybill.spark")

DRAIN_TIMEOUT_S: Final = 0.8 * termination.TERMINATION_TIMEOUT_S
"""How long SIGTERM waits for the listener; the rest of the time is for ending open runs."""

TELLS_WITHIN_S: Final = 2.0
"""How long the listener may still report after Spark has stopped, if something else stopped its Java."""

JAVA_ENDS_WITHIN_S: Final = 1.0
"""How long a Java that ends takes at most to end after it has stopped Spark."""

_BY_SIGNAL: Final = (130, 143, -signal.SIGINT, -signal.SIGTERM)
"""The statuses of a Java that somebody stopped, as a notebook does at its end."""
_OUT_OF_MEMORY: Final = 52
"""Spark's own exit status for that."""


class Application:
    """A Spark application whose driver is this process; `name` is used if Spark never reports one.

    Raises:
        SettingsConflictError: the home's live runner uses other settings, and these are strict.
        JournalError: the home cannot hold a journal.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._home = Home.open(settings)
        self.given = settings
        self.settings = self._home.settings
        self.run_id = new_run_id(SYSTEM_CLOCK.now_ms())
        self._run = ObservedRun(self.run_id, settings.system_name, name)
        self._watch = FailureWatch(self._home.emit, lambda: self._run)
        self._receiver = Receiver(self._keep, self._hear)
        self._receiver.start()
        self._spark: SparkSession | None = None
        self._datasets: Datasets | None = None
        self._failure: tuple[ProgramFailure, int] | None = None
        self._stopped = False
        self._told = False
        self._heard_end = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where the listener sends its events."""
        return self._receiver.url

    def attach(self, spark: SparkSession) -> None:
        """Watch the session that was just created."""
        self._spark = spark
        self._datasets = Datasets(spark)
        self._watch.attach(spark)

    def fail(self, failure: ProgramFailure) -> None:
        """Note that the application failed, to report it after the listener's COMPLETE."""
        with self._lock:
            self._failure = self._failure or (failure, SYSTEM_CLOCK.now_ms())
        if self._stopped:
            self._tell_end()

    def stopping(self) -> None:
        """Spark is about to stop: make sure of every write's final state, in bounded time."""
        self._quietly(self._notice_early_end)
        self._quietly(self._watch.finish)

    def stopped(self) -> None:
        """Spark has stopped, the listener with it."""
        # The listener reports the application's end last. It arrives late if something else ended Java with a
        # signal, as a notebook does: PySpark's stop() then cannot reach Java.
        has_begun = self._run.started_ms is not None
        self._end(is_all_told=self._heard_end.wait(TELLS_WITHIN_S if has_begun else 0))

    def drain(self) -> None:
        """Wait in bounded time until everything that Spark did so far is stored; nothing ends."""
        if not self._stopped:
            self._quietly(self._settle)

    def terminate(self) -> None:
        """Record Spark's work in bounded time, and end open runs: the program is about to be killed."""
        if not self._stopped:
            if self._run.ended_ms is None:
                self.fail(ProgramFailure("terminated by SIGTERM", cancelled=True))
            deadline_s = SYSTEM_CLOCK.monotonic_s() + DRAIN_TIMEOUT_S
            is_all_told = termination.within(DRAIN_TIMEOUT_S, self._settle)
            termination.within(max(0.0, deadline_s - SYSTEM_CLOCK.monotonic_s()), self.stopping)
            if not is_all_told:
                self._tell_end()  # where Java hangs, what asks it takes longer than is left
            self._end(is_all_told=is_all_told)
        self.close()

    def discard(self) -> None:
        """Release everything: Spark did not start."""
        self._quietly(self._receiver.close)
        self.close()

    def close(self) -> None:
        """Close the home."""
        self._quietly(self._home.close)

    def _notice_early_end(self) -> None:
        """Note it as a failure if Spark ended before its program, unless a signal ended its Java."""
        if self._spark is None:
            return
        context = self._spark.sparkContext
        java: Any = getattr(context._gateway, "proc", None)  # noqa: SLF001 - PySpark does not tell
        is_stopped = True
        with contextlib.suppress(Exception):  # Java is gone
            is_stopped = bool(context._jsc.sc().isStopped())  # noqa: SLF001 - as above
        if not is_stopped:
            return
        status = None
        with contextlib.suppress(AttributeError, subprocess.TimeoutExpired):  # not our child, or it goes on
            status = java.wait(JAVA_ENDS_WITHIN_S)
        if status is None:
            self.fail(ProgramFailure("Spark stopped before its program did"))
        elif status not in _BY_SIGNAL:
            what = f"Spark's Java ended with status {status}"
            self.fail(ProgramFailure(what + ", out of memory" * (status == _OUT_OF_MEMORY)))

    def _settle(self) -> None:
        if self._spark is not None:
            Executions(self._spark).settle(DRAIN_TIMEOUT_S)

    def _end(self, *, is_all_told: bool) -> None:
        self._quietly(self._receiver.close)
        self._stopped = True
        self._quietly(self._watch.finish_stopped)
        self._quietly(lambda: self._end_open_runs(is_all_told=is_all_told))
        self._tell_end()

    def _end_open_runs(self, *, is_all_told: bool) -> None:
        """End the open runs, which nothing else can end any more.

        If the listener has not reported everything, an open run may belong to a write that returned; it stays
        open.
        """
        reason = ProgramFailure("the application ended before it", cancelled=True)
        if self._failure is not None and self._failure[0].cancelled:
            reason = self._failure[0]
        runs = [run for run in self._watch.open_runs() if run.run_id != self.run_id]
        if runs and not is_all_told:
            log.warning("the listener has not reported all; %d runs stay open: %s", len(runs), runs[0].name)
            return
        for run in runs:
            self._emit(run, reason, SYSTEM_CLOCK.now_ms())

    def _tell_end(self) -> None:
        """Report how the application ended; a failure may still follow the report that there was none."""
        with self._lock:
            failed, is_told = self._failure, self._told
            self._told = failed is not None
        if failed is not None and not is_told:
            self._quietly(lambda: self._emit(self._run, *failed))
        elif failed is None and self._run.started_ms is not None and not self._run.has_failed:
            # The listener may have broken down in between.
            self._run.ended_ms = self._run.ended_ms or SYSTEM_CLOCK.now_ms()
            self._quietly(lambda: self._home.emit(success_event(self._run)))

    def _keep(self, body: bytes) -> None:
        self._home.emit(body if self._datasets is None else self._datasets.correct(body))

    def _hear(self, body: bytes) -> None:
        run = self._watch.observe(body)
        if run is not None and run.run_id == self.run_id:
            self._run = run
            if run.ended_ms is not None:
                self._heard_end.set()

    def _emit(self, run: ObservedRun, failure: ProgramFailure, time_ms: int) -> None:
        self._home.emit(failure_event(run, failure, time_ms, language="PYTHON"))

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.warning("the end of this application is not fully recorded", exc_info=True)


_latest: tuple[Application, Callable[[], None]] | None = None
_pid: int | None = None


def begin(application: Application, stop: Callable[[], None]) -> None:
    """Register the application that ends with this process; `stop` stops its Spark."""
    global _latest, _pid  # noqa: PLW0603 - one process, one driver
    if _latest is not None:
        _latest[0].close()
    _latest = application, stop
    if _pid != os.getpid():
        _pid = os.getpid()
        exit_status.watch()
        atexit.register(_at_exit)
    termination.watch(_drain, _terminate)


def _of_this_process() -> tuple[Application, Callable[[], None]] | None:
    """The latest application, unless this is a fork of its driver."""
    return _latest if _pid == os.getpid() else None


def _drain() -> None:
    if (latest := _of_this_process()) is not None:
        latest[0].drain()


def _terminate() -> None:
    if (latest := _of_this_process()) is not None:
        latest[0].terminate()


def _at_exit() -> None:
    if (latest := _of_this_process()) is None:
        return
    application, stop = latest
    failure = exit_status.failure_at_exit()
    if failure is not None:
        application.fail(failure)
    stop()
    application.close()
    if failure is not None and isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        termination.stay_interrupted()
