"""One tracked application: its journal, its endpoint, its watch, and how it ended."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from waybill.spark.tracking import exit_status
from waybill.spark.tracking.corrections import failure_event
from waybill.spark.tracking.failure_watch import FailureWatch
from waybill.spark.tracking.observed_runs import ObservedRun
from waybill.transport.home import Home
from waybill.transport.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from waybill.spark.tracking.exit_status import ProgramFailure
    from waybill.transport import Settings

log = logging.getLogger("waybill.spark")


class Application:
    """A Spark application whose driver is this process; `name` is for the case that Spark never says it.

    Raises:
        SettingsConflictError: the home's live runner works with other settings, and these are strict.
        JournalError: the home cannot hold a journal.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._home = Home.open(settings)
        self.given = settings
        self.settings = self._home.settings
        self.run_id = str(generate_new_uuid())
        self._run = ObservedRun(self.run_id, settings.system_name, name)
        self._watch = FailureWatch(self._home.emit, lambda: self._run)
        self._receiver = Receiver(
            self._home, system_name=settings.system_name, on_event=self._hear, redaction=self._home.redaction
        )
        self._receiver.start()
        self._failure: tuple[ProgramFailure, int] | None = None
        self._stopped = False
        self._told = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where the listener sends its events."""
        return self._receiver.url

    def attach(self, spark: SparkSession) -> None:
        """Watch the session that was just made."""
        self._watch.attach(spark)

    def fail(self, failure: ProgramFailure) -> None:
        """Note that the application failed; told once Spark has stopped, after the listener's COMPLETE."""
        with self._lock:
            self._failure = self._failure or (failure, time.time_ns() // 1_000_000)
        if self._stopped:
            self._tell_end()

    def stopping(self) -> None:
        """Spark is about to stop: make sure of every write's final state, in bounded time."""
        self._quietly(self._watch.finish)

    def stopped(self) -> None:
        """Spark has stopped, the listener with it."""
        self._quietly(self._receiver.close)
        self._stopped = True
        self._tell_end()

    def discard(self) -> None:
        """Let go of everything: Spark did not start."""
        self._quietly(self._receiver.close)
        self.close()

    def close(self) -> None:
        """Close the home; what is in its spool goes into the journal first."""
        self._quietly(self._home.close)

    def _tell_end(self) -> None:
        with self._lock:
            if self._failure is None or self._told:
                return
            self._told = True
            failure, time_ms = self._failure
        self._quietly(lambda: self._emit(self._run, failure, time_ms, "PYTHON"))

    def _hear(self, body: bytes) -> None:
        run = self._watch.observe(body)
        if run is not None and run.run_id == self.run_id:
            self._run = run

    def _emit(self, run: ObservedRun, failure: ProgramFailure, time_ms: int, language: str = "JAVA") -> None:
        self._home.emit(failure_event(run, failure, time_ms, language=language))

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.warning("the end of this application is not fully recorded", exc_info=True)


_latest: tuple[Application, Callable[[], None]] | None = None
_pid: int | None = None


def begin(application: Application, stop: Callable[[], None]) -> None:
    """Make an application the one that an end of this process concerns; `stop` stops its Spark."""
    global _latest, _pid  # noqa: PLW0603 - one process, one driver
    if _latest is not None:
        _latest[0].close()
    _latest = application, stop
    if _pid != os.getpid():
        _pid = os.getpid()
        exit_status.watch()
        atexit.register(_at_exit)


def _at_exit() -> None:
    if _latest is None or _pid != os.getpid():
        return
    application, stop = _latest
    failure = exit_status.failure_at_exit()
    if failure is not None:
        application.fail(failure)
    stop()
    application.close()
