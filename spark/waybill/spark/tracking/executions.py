"""Spark's own record of its SQL executions, read from its status store.

The listener reports a failed write as complete. Spark's record of the same execution has the error, however
it failed, for every session of the application, also with the web interface off. It is read by calls from
Python, so that no code of ours runs inside the user's jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.spark.tracking.plans import may_ignore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FILES: Final = "number of written files"


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An SQL execution that ended; if it failed before its first job, it has no jobs.

    Attributes:
        root_id: the execution that this one ran within, or its own.
        error: the error's text, empty if there is none.
    """

    id: int
    root_id: int
    submitted_ms: int
    completed_ms: int
    spark_jobs: frozenset[int]
    error: str
    plan: str


class Executions:
    """The executions of one application, each watched until it has ended; any session leads to them."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark
        self._context = java.sparkContext._jsc.sc()  # noqa: SLF001 - the way to the JVM
        self.application_id = str(self._context.applicationId())
        self._store = java._jsparkSession.sharedState().statusStore()  # noqa: SLF001
        self._ended: set[int] = set()
        self._next = 0
        """All executions below this number have ended."""

    def settle(self, timeout_s: float) -> None:
        """Wait until the listener and the status store have handled all up to now; else a Py4JError."""
        self._context.listenerBus().waitUntilEmpty(int(timeout_s * 1000))

    def newly_without_write(self) -> Iterator[Execution]:
        """The executions that ended since the last call and failed, or wrote nothing since that was there.

        A Py4JError if the JVM is gone.

        Spark remembers the last `spark.sql.ui.retainedExecutions` (1,000), so this is called more often than
        that many end.
        """
        executions = self._store.executionsList()
        unended: set[int] = set()
        newest = self._next - 1
        for place in range(executions.size() - 1, -1, -1):
            execution = executions.apply(place)
            number = int(execution.executionId())
            newest = max(newest, number)
            if number < self._next:
                break
            if number in self._ended:
                continue
            if execution.completionTime().isEmpty():
                unended.add(number)
                continue
            error = _error(execution)
            found = _ended(execution, error) if error or self._has_ignored(execution) else None
            self._ended.add(number)
            if found is not None:
                yield found
        self._next = min(unended, default=newest + 1)
        self._ended = {number for number in self._ended if number >= self._next}

    def succeeded_beside(self, failed: Collection[Execution], slack_ms: int) -> Iterator[Execution]:
        """The other executions without an error that ended when one of these did; Py4JError as above."""
        ends_ms = {
            failure.completed_ms + apart for failure in failed for apart in range(-slack_ms, slack_ms + 1)
        }
        these = {failure.id for failure in failed}
        executions = self._store.executionsList()
        for place in range(executions.size() if ends_ms else 0):
            execution = executions.apply(place)
            has_ended = not execution.completionTime().isEmpty()
            if not has_ended or _completed_ms(execution) not in ends_ms or _error(execution):
                continue
            if int(execution.executionId()) not in these:
                yield _ended(execution, "")

    def _has_ignored(self, execution: Any) -> bool:  # noqa: ANN401 - a Java object
        """Whether it was to write files unless the folder exists, and has counted none."""
        if not may_ignore(str(execution.physicalPlanDescription())):
            return False
        metrics, counted = execution.metrics(), self._store.executionMetrics(execution.executionId())
        files = [metrics.apply(place) for place in range(metrics.size())]
        numbers = [metric.accumulatorId() for metric in files if metric.name() == _FILES]
        return bool(numbers) and not any(counted.contains(number) for number in numbers)


def _ended(execution: Any, error: str) -> Execution:  # noqa: ANN401 - a Java object
    jobs = str(execution.jobs().keys().mkString(","))
    return Execution(
        id=int(execution.executionId()),
        root_id=int(execution.rootExecutionId()),
        submitted_ms=int(execution.submissionTime()),
        completed_ms=_completed_ms(execution),
        spark_jobs=frozenset(map(int, filter(None, jobs.split(",")))),
        error=error,
        plan=str(execution.physicalPlanDescription()),
    )


def _error(execution: Any) -> str:  # noqa: ANN401 - as above
    error = execution.errorMessage()
    # Spark says success by an empty text.
    return "" if error.isEmpty() else str(error.get())


def _completed_ms(execution: Any) -> int:  # noqa: ANN401 - as above
    return int(execution.completionTime().get().getTime())
