"""Spark's own record of its SQL executions, read from its status store.

The listener reports a failed write as complete. Spark's record of the same execution has the error, however
it failed, for every session of the application, even with the web interface off. It is read by calls from
Python, so that none of our code runs inside the user's jobs.

The store has two gaps. An execution gets its number before it is planned, but appears in the store later, so
an execution with a higher number may appear, and even end, before it. And if a job begins after its execution
has ended, as with an adaptive plan after a failure, Spark forgets the execution's error: not even the empty
text that means success is left. And of Spark's own errors it keeps only the outermost message, which for a
failed subquery is "Exception thrown in awaitResult:". The reason of the job that failed has the rest.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets.causes import CAUSED_BY
from waybill.facets.event import DatasetName

from .exit_status import ProgramFailure
from .plans import (
    dataset_at,
    hides_write,
    reads_delta_log,
    sources_of,
    subqueries_of,
    table_of,
    targets_of,
    why_nothing,
    writes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ABSENT_MAX: Final = 64
"""The most missing numbers to keep looking for; the oldest are given up first."""

_TASKS_MAX: Final = 16
"""The most failed tasks of a stage among which the one is looked for that made it fail."""
_FILES: Final = "number of written files"
_PLAN: Final = "== Physical Plan ==\n"
_FRAME: Final = "\n\tat "
_LOST_TASK: Final = re.compile(
    r"\AJob aborted due to stage failure: .*: Lost task \S+ in stage .*? executor \S+\): "
)
_FAILED_JOB: Final = re.compile(r"\b(\d+) -> FAILED\b")


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An SQL execution that ended; if it failed before its first job, it has no jobs.

    Attributes:
        root_id: the execution that this one ran within, or its own.
        error: the error's text, empty if there is none.
        around: the plan of the execution that this one ran within; empty if there is none, or it is unknown.
        wrote: whether it succeeded and changed rows; one that did neither had nothing to write.
        written: what a failed one had written before.
        job_tags: the tags of its Spark jobs, even if it failed before the first; only event logs of Spark 4
            have them.
    """

    id: int
    root_id: int
    submitted_ms: int
    completed_ms: int
    spark_jobs: frozenset[int]
    error: str
    plan: str
    job_tags: tuple[str, ...] = ()
    around: str = ""
    wrote: bool = False
    written: tuple[DatasetName, ...] = ()

    @property
    def statement(self) -> int:
        """The number of the whole statement: of a command that this is a part of, or its own."""
        return self.id if self.around and not writes(self.around) else self.root_id


def lacks_reason(error: str) -> bool:
    """Whether an execution's error is only the outermost message, without what caused it."""
    return bool(error) and _FRAME not in error


def with_reason(error: str, reason: str | None) -> str:
    """An execution's error, caused by that of a job, unless it is that."""
    return error if reason in {None, error} else f"{error}\n{CAUSED_BY} {_LOST_TASK.sub('', reason or '')}"


def has_written(execution: Execution, plans: Iterable[str]) -> bool:
    """Whether one that succeeded wrote, as its jobs and the plans of the executions within it show."""
    is_sure = why_nothing(execution.plan) is None or bool(execution.spark_jobs)
    return is_sure or not all(map(reads_delta_log, plans))


class _Kept(msgspec.Struct):
    """What was read before Spark stopped.

    Attributes:
        ends_ms: the end times of the executions that succeeded, as far as they could be read.
        beside: those that ended when a failed one did; None if they could not be read.
    """

    ends_ms: set[int] = msgspec.field(default_factory=set)
    beside: list[Execution] | None = None


class Executions:
    """The executions of one application, each watched until it has ended; any session leads to them."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark
        self._context = java.sparkContext._jsc.sc()  # noqa: SLF001 - the way to the JVM
        self._jvm = java.sparkContext._jvm  # noqa: SLF001 - as above
        self._spark = java
        self.application_id = str(self._context.applicationId())
        self._store = java._jsparkSession.sharedState().statusStore()  # noqa: SLF001
        self._watched: set[int] = set()
        """The numbers of executions that have not ended as far as is known, or are not in the store."""
        self._next = 0
        """The lowest number that was not watched yet."""
        self._open_ms: list[int] = []
        """The start times of the executions that had not ended at the last check."""
        self._unclear_ms: list[int] = []
        """The end times of the executions whose outcome Spark does not know."""
        self._kept: _Kept | None = None

    def keep(self, failed: Collection[Execution], slack_ms: int) -> None:
        """Read what is still needed once Spark has stopped, which empties its store; Py4JError as below.

        Args:
            failed: all failures that have no run yet.
            slack_ms: as for `succeeded_beside`.
        """
        kept = _Kept()
        try:
            for execution in each_of(self._store.executionsList()):
                if not execution.completionTime().isEmpty() and self._error(execution) == "":
                    kept.ends_ms.add(_completed_ms(execution))
            kept.beside = list(self.succeeded_beside(failed, slack_ms))
        finally:
            self._kept = kept

    def settle(self, timeout_s: float) -> None:
        """Wait until the listener and the status store have handled everything so far; else a Py4JError."""
        if self._kept is None:
            self._context.listenerBus().waitUntilEmpty(int(timeout_s * 1000))

    def newly_ended(self) -> Iterator[Execution]:
        """The commands that ended since the last call, and the queries that failed.

        A Py4JError if the JVM is gone.

        Spark remembers the last `spark.sql.ui.retainedExecutions` (1,000), so this is called more often than
        that many end.
        """
        if self._kept is not None:
            return
        self._watch_new()
        self._open_ms = []
        absent = 0
        for number in sorted(self._watched, reverse=True):
            found = self._store.execution(number)
            if found.isEmpty():
                absent += 1
                if absent > ABSENT_MAX:
                    self._watched.discard(number)
                continue
            execution = found.get()
            if execution.completionTime().isEmpty():
                self._open_ms.append(int(execution.submissionTime()))
                continue
            ended = self._end_of(execution)
            self._watched.discard(number)
            if ended is not None:
                yield ended

    @property
    def are_open(self) -> bool:
        """Whether any had not ended at the last check."""
        return bool(self._open_ms)

    def may_have_failed(self, started_ms: int | None, ended_ms: int, slack_ms: int) -> bool:
        """Whether an execution of one of these times had not ended at the last check, or ended unknown."""
        if self._kept is not None and all(abs(end_ms - ended_ms) > slack_ms for end_ms in self._kept.ends_ms):
            return True
        if started_ms is None:
            may_be_open = any(open_ms <= ended_ms for open_ms in self._open_ms)
        else:
            may_be_open = any(abs(open_ms - started_ms) <= slack_ms for open_ms in self._open_ms)
        return may_be_open or any(abs(unclear_ms - ended_ms) <= slack_ms for unclear_ms in self._unclear_ms)

    def succeeded_beside(self, failed: Collection[Execution], slack_ms: int) -> Iterator[Execution]:
        """The other executions without an error that ended when one of these did; Py4JError as above."""
        if self._kept is not None:
            if self._kept.beside is None:
                raise LookupError("Spark has stopped")
            yield from self._kept.beside
            return
        ends_ms = {
            failure.completed_ms + apart for failure in failed for apart in range(-slack_ms, slack_ms + 1)
        }
        these = {failure.id for failure in failed}
        for execution in each_of(self._store.executionsList()) if ends_ms else ():
            has_ended = not execution.completionTime().isEmpty()
            if not has_ended or _completed_ms(execution) not in ends_ms:
                continue
            if int(execution.executionId()) not in these and not self._error(execution):
                yield _ended(execution, "")

    def _watch_new(self) -> None:
        executions = self._store.executionsList()
        if executions.isEmpty():
            return
        oldest, newest = (int(one.executionId()) for one in (executions.head(), executions.last()))
        self._watched.update(range(max(self._next, oldest - ABSENT_MAX), newest + 1))
        self._next = max(self._next, newest + 1)

    def _end_of(self, execution: Any) -> Execution | None:  # noqa: ANN401 - a Java object
        """An execution that ended; None for a query that succeeded, and if it is not known what it did."""
        error = self._error(execution)
        if error is None:
            self._unclear_ms.append(_completed_ms(execution))
            return None
        ended = _ended(execution, error)
        if ended.root_id != ended.id and not (root := self._store.execution(ended.root_id)).isEmpty():
            ended = msgspec.structs.replace(ended, around=str(root.get().physicalPlanDescription()))
        if not error:
            wrote = self._has_written(execution)
            is_known = wrote is not None and (not wrote or writes(ended.plan))
            return msgspec.structs.replace(ended, wrote=bool(wrote)) if is_known else None
        if lacks_reason(error):
            error = with_reason(error, self._reason_of(execution))
        return msgspec.structs.replace(ended, error=error, written=self._written_before(ended))

    def _written_before(self, failed: Execution) -> tuple[DatasetName, ...]:
        """What a failed INSERT into several tables had written: each of its nodes counts its own files."""
        if len(targets_of(failed.plan)) < 2:  # noqa: PLR2004 - several
            return ()
        counted, written = self._store.executionMetrics(failed.id), list[DatasetName]()
        for node in each_of(self._store.planGraph(failed.id).allNodes()):
            metrics = each_of(node.metrics())
            if any(one.name() == _FILES and counted.contains(one.accumulatorId()) for one in metrics):
                written += targets_of(f"{_PLAN}{node.desc()}")
        return tuple(dict.fromkeys(written))

    def locate(self, execution: Execution) -> list[DatasetName]:
        """Where an execution wrote: as its plan says, else where the catalog has the table."""
        table = table_of(execution.plan)
        if (found := targets_of(execution.plan)) or table is None:
            return found
        return list(filter(None, [self._place_of(table)]))

    def read_by(self, execution: Execution, known: Collection[str]) -> list[DatasetName]:
        """What an execution read, as its plan says, beside what is known; that tells all but subqueries."""
        told = sources_of(subqueries_of(execution.plan) if known else execution.plan)
        places = [self._place_of(one) if isinstance(one, str) else one for one in told]
        return [one for one in places if one is not None and one.name not in known]

    def _place_of(self, table: str) -> DatasetName | None:
        """The place of a table, as the listener names it; None if no catalog knows it."""
        names = [part.strip("`") for part in re.findall(r"`[^`]+`|[^.`]+", table)]
        with contextlib.suppress(Exception):  # it is gone, or Spark is
            state = self._spark._jsparkSession.sessionState()  # noqa: SLF001 - as above
            catalogs = state.catalogManager()
            catalog = names.pop(0) if catalogs.isCatalogRegistered(names[0]) else "spark_catalog"
            if catalog == "spark_catalog":
                identifier = self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(
                    names[-1], self._jvm.scala.Option.apply(names[-2])
                )
                return dataset_at(str(state.catalog().getTableMetadata(identifier).location()))
            location = load_table(self._spark, [catalog, *names]).properties().get("location")
            return None if location is None else dataset_at(str(location))
        return None

    def _reason_of(self, execution: Any) -> str | None:  # noqa: ANN401 - as above
        """Why a job of a failed execution failed, or a job of one within it; None if none did."""
        number = int(execution.executionId())
        for later in range(number, min(self._next, number + ABSENT_MAX)):
            found = self._store.execution(later)
            is_within = not found.isEmpty() and number in {later, int(found.get().rootExecutionId())}
            if is_within and (reason := self._failure_of_jobs(found.get())) is not None:
                return reason
        return None

    def _error(self, execution: Any) -> str | None:  # noqa: ANN401 - as above
        """The text of its error, empty if it succeeded; None if that is not known."""
        error = execution.errorMessage()
        return self._failure_of_jobs(execution) if error.isEmpty() else str(error.get())

    def _failure_of_jobs(self, execution: Any) -> str | None:  # noqa: ANN401 - as above
        """Why one of its jobs failed; None if none did while it ran, or somebody cancelled them.

        Spark itself cancels jobs of a successful execution if it does not need them.
        """
        numbers = sorted(map(int, _FAILED_JOB.findall(str(execution.jobs().mkString(",")))))
        reasons = (
            reason for number in numbers for reason in self._failures_of(number, _completed_ms(execution))
        )
        return next((reason for reason in reasons if not ProgramFailure.of_write(reason).cancelled), None)

    def _failures_of(self, number: int, begun_by_ms: int) -> Iterator[str]:
        """Why stages of a Spark job failed that had begun by then; empty if Spark has forgotten the job."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # not where only logs are read

        store = self._context.statusStore()
        with contextlib.suppress(Py4JJavaError):
            job = store.job(number)
            begun = job.submissionTime()
            if begun.isEmpty() or int(begun.get().getTime()) > begun_by_ms:
                return
            for stage in map(int, str(job.stageIds().mkString(",")).split(",")):
                with contextlib.suppress(Py4JJavaError):
                    attempt = store.lastStageAttempt(stage)
                    if not attempt.failureReason().isEmpty():
                        reason = str(attempt.failureReason().get())
                        errors = self._errors_of_tasks(stage, attempt) if lacks_reason(reason) else ()
                        yield next((error for error in errors if reason.strip() in error), reason)

    def _errors_of_tasks(self, stage: int, attempt: Any) -> Iterator[str]:  # noqa: ANN401 - as above
        """The errors of an attempt's failed tasks, each with what caused it."""
        api, statuses = self._jvm.org.apache.spark.status.api.v1, self._jvm.java.util.ArrayList()
        statuses.add(api.TaskStatus.FAILED)
        tasks = self._context.statusStore().taskList(
            stage, attempt.attemptId(), 0, _TASKS_MAX, api.TaskSorting.ID, statuses
        )
        yield from (str(task.errorMessage().get()) for task in each_of(tasks))

    def _has_written(self, execution: Any) -> bool | None:  # noqa: ANN401 - a Java object
        """Whether one that succeeded wrote anything; None if Spark does not know: it counts as unclear."""
        plan = str(execution.physicalPlanDescription())
        if why_nothing(plan) is None and not hides_write(plan):
            return True
        counted, metrics = self._store.executionMetrics(execution.executionId()), each_of(execution.metrics())
        if numbers := [metric.accumulatorId() for metric in metrics if metric.name() == _FILES]:
            return any(counted.contains(number) for number in numbers)
        if hides_write(plan):
            self._unclear_ms.append(_completed_ms(execution))
            return None
        return has_written(_ended(execution, ""), self._plans_within(execution))

    def _plans_within(self, execution: Any) -> Iterator[str]:  # noqa: ANN401 - as above
        for later in range(int(execution.executionId()) + 1, self._next):
            found = self._store.execution(later)
            if found.isEmpty():
                continue
            if int(found.get().submissionTime()) > _completed_ms(execution):
                return
            if int(found.get().rootExecutionId()) == int(execution.rootExecutionId()):
                yield str(found.get().physicalPlanDescription())


def each_of(sequence: Any) -> Iterator[Any]:  # noqa: ANN401 - Java objects
    """The members of a Scala sequence."""
    return (sequence.apply(place) for place in range(sequence.size()))


def load_table(spark: Any, names: list[str]) -> Any:  # noqa: ANN401 - a Java object
    """Load a table from its catalog, the first of the names."""
    catalog, *spaces, table = names
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway  # noqa: SLF001 - the way to the JVM
    namespace = gateway.new_array(jvm.java.lang.String, len(spaces))
    for place, name in enumerate(spaces):
        namespace[place] = name
    identifier = jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, table)
    catalogs = spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001 - as above
    return catalogs.catalog(catalog).loadTable(identifier)


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


def _completed_ms(execution: Any) -> int:  # noqa: ANN401 - as above
    return int(execution.completionTime().get().getTime())
