"""The contents of an event log: the application's executions, each with its jobs and its end."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from ..tracking import Execution, ProgramFailure, lacks_reason, with_reason, writes
from .files import EventLogError

if TYPE_CHECKING:
    from .files import EventLog

_EVENT: Final = re.compile(rb'\{"Event":"(?:[\w.]*\.)?(SparkListener\w+)"')


class LoggedApplication(msgspec.Struct):
    """An application, as recorded in its log.

    Attributes:
        started_ms: when it began.
        ended_ms: when it ended; None if its log does not say so.
        executions: those that have ended, failed or not.
        after_ms: executions that ended at or before this time are left out.
        heard_ms: the time up to which the listener has reported everything; None: it has reported all of it.
        given_up_ms: failures that ended after this time may still get a run; None: no failure may.
    """

    id: str
    name: str
    started_ms: int
    ended_ms: int | None = None
    executions: list[Execution] = msgspec.field(default_factory=list)
    after_ms: int = 0
    heard_ms: int | None = None
    given_up_ms: int | None = None

    @property
    def begun_ms(self) -> int:
        """The start of the earliest execution considered here; of one that ended, its own start."""
        if not self.after_ms or self.ended_ms is not None:
            return self.started_ms
        return min((execution.submitted_ms for execution in self.executions), default=self.started_ms)

    @property
    def is_over(self) -> bool:
        """Whether it has ended so long ago that the listener has reported that, if it ever does."""
        return self.ended_ms is not None and (self.given_up_ms is None or self.ended_ms <= self.given_up_ms)

    def has_heard_of(self, execution: Execution) -> bool:
        """Whether the listener has reported everything about an execution."""
        return self.heard_ms is None or execution.completed_ms <= self.heard_ms

    def has_given_up(self, execution: Execution) -> bool:
        """Whether an execution without a run will no longer get one."""
        return self.given_up_ms is None or execution.completed_ms <= self.given_up_ms

    @property
    def plan_chars(self) -> int:
        """The length of its executions' plans, which take most of its memory."""
        return sum(len(execution.plan) for execution in self.executions)

    @classmethod
    def read(cls, log: EventLog, *, after_ms: int = 0, chars_max: int = sys.maxsize) -> LoggedApplication:
        """Read a log.

        Args:
            log: that of an application, or of one attempt of it.
            after_ms: only executions that ended later.
            chars_max: how long the plans and errors of these may be together.

        Raises:
            EventLogError: it is damaged, is not an event log, cannot be decompressed, or its plans are too
                long.
        """
        reading = _Reading(after_ms)
        for line in log.lines():
            if event := _EVENT.match(line):
                try:
                    reading.add(event[1], line)
                except (ValueError, RecursionError) as error:
                    raise EventLogError(f"{log.name} is damaged: {error}") from None
                if reading.chars > chars_max:
                    what = "is too large to follow; run `waybill spark catch-up` for it"
                    raise EventLogError(f"{log.name} {what}")
        if reading.application is None:
            raise EventLogError(f"{log.name} is not an event log: it names no application")
        return reading.application


class _ApplicationStart(msgspec.Struct):
    name: str = msgspec.field(name="App Name")
    id: str = msgspec.field(name="App ID")
    time_ms: int = msgspec.field(name="Timestamp")


class _ApplicationEnd(msgspec.Struct):
    time_ms: int = msgspec.field(name="Timestamp")


class _ExecutionStart(msgspec.Struct):
    id: int = msgspec.field(name="executionId")
    plan: str = msgspec.field(name="physicalPlanDescription")
    time_ms: int = msgspec.field(name="time")
    root_id: int | None = msgspec.field(default=None, name="rootExecutionId")
    job_tags: tuple[str, ...] = msgspec.field(default=(), name="jobTags")


class _ExecutionEnd(msgspec.Struct):
    id: int = msgspec.field(name="executionId")
    time_ms: int = msgspec.field(name="time")
    error: str | None = msgspec.field(default=None, name="errorMessage")


class _Properties(msgspec.Struct):
    execution: str | None = msgspec.field(default=None, name="spark.sql.execution.id")


class _JobStart(msgspec.Struct):
    id: int = msgspec.field(name="Job ID")
    stages: tuple[int, ...] = msgspec.field(default=(), name="Stage IDs")
    properties: _Properties | None = msgspec.field(default=None, name="Properties")


class _JobException(msgspec.Struct):
    message: str = msgspec.field(default="", name="Message")


class _JobResult(msgspec.Struct):
    exception: _JobException | None = msgspec.field(default=None, name="Exception")


class _TaskFailure(msgspec.Struct):
    trace: str = msgspec.field(default="", name="Full Stack Trace")


class _TaskEnd(msgspec.Struct):
    stage: int = msgspec.field(name="Stage ID")
    failure: _TaskFailure = msgspec.field(name="Task End Reason")


class _JobEnd(msgspec.Struct):
    id: int = msgspec.field(name="Job ID")
    result: _JobResult = msgspec.field(name="Job Result")


_TASK_FAILED: Final = b'"Full Stack Trace"'


class _Reading:
    """A log, up to the point that was read."""

    def __init__(self, after_ms: int) -> None:
        self.application: LoggedApplication | None = None
        self.chars = 0
        self._after_ms = after_ms
        self._begun: dict[int, _ExecutionStart] = {}
        self._jobs: dict[int, set[int]] = {}
        self._stages: dict[int, tuple[int, ...]] = {}
        self._traces: dict[int, str] = {}
        """The error of the latest task of a stage that failed, by the stage, with what caused it."""
        self._reasons: dict[int, str] = {}
        """Why the first job of an execution, or of one within it, failed."""

    def add(self, kind: bytes, line: bytes) -> None:
        """Add an event; those of kinds that do not matter are not even decoded."""
        match kind:
            case b"SparkListenerApplicationStart":
                begun = msgspec.json.decode(line, type=_ApplicationStart)
                self.application = LoggedApplication(begun.id, begun.name, begun.time_ms)
                self.application.after_ms = self._after_ms
            case b"SparkListenerApplicationEnd":
                if self.application is not None:
                    self.application.ended_ms = msgspec.json.decode(line, type=_ApplicationEnd).time_ms
            case b"SparkListenerSQLExecutionStart":
                execution = msgspec.json.decode(line, type=_ExecutionStart)
                self._begun[execution.id] = execution
                self.chars += len(execution.plan)
            case b"SparkListenerJobStart":
                job = msgspec.json.decode(line, type=_JobStart)
                if job.properties is not None and job.properties.execution is not None:
                    self._jobs.setdefault(int(job.properties.execution), set()).add(job.id)
                    self._stages[job.id] = job.stages
            case b"SparkListenerTaskEnd" if _TASK_FAILED in line:
                task = msgspec.json.decode(line, type=_TaskEnd)
                self._traces[task.stage] = task.failure.trace
            case b"SparkListenerJobEnd":
                self._end_job(msgspec.json.decode(line, type=_JobEnd))
            case b"SparkListenerSQLExecutionEnd":
                self._end(msgspec.json.decode(line, type=_ExecutionEnd))

    def _end_job(self, job: _JobEnd) -> None:
        traces = [self._traces.pop(stage, "") for stage in self._stages.pop(job.id, ())]
        reason = job.result.exception.message if job.result.exception is not None else ""
        if lacks_reason(reason):
            reason = next((trace for trace in traces if reason.strip() in trace), reason)
        if not reason or ProgramFailure.of_write(reason).cancelled:
            return  # as of jobs that Spark no longer needs
        for number, jobs in self._jobs.items():
            if job.id in jobs:
                root_id = self._begun[number].root_id if number in self._begun else None
                for one in {number, number if root_id is None else root_id}:
                    self._reasons.setdefault(one, reason)

    def _end(self, end: _ExecutionEnd) -> None:
        begun, jobs = self._begun.pop(end.id, None), self._jobs.pop(end.id, ())
        error, reason = end.error or "", self._reasons.pop(end.id, None)
        if lacks_reason(error):
            error = with_reason(error, reason)
        if begun is None or self.application is None:
            return  # a compacted log no longer has its beginning
        if end.time_ms <= self._after_ms:
            self.chars -= len(begun.plan)
            return
        self.chars += len(error)
        around = None if begun.root_id in {None, end.id} else self._begun.get(begun.root_id or 0)
        self.application.executions.append(
            Execution(
                id=end.id,
                root_id=end.id if begun.root_id is None else begun.root_id,
                submitted_ms=begun.time_ms,
                completed_ms=end.time_ms,
                spark_jobs=frozenset(jobs),
                error=error,
                plan=begun.plan,
                job_tags=begun.job_tags,
                around="" if around is None else around.plan,
                wrote=not error and writes(begun.plan),
            )
        )
