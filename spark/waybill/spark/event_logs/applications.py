"""What an event log says of its application: the executions, each with its jobs and how it ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.spark.event_logs.files import EventLogError
from waybill.spark.tracking import Execution

if TYPE_CHECKING:
    from waybill.spark.event_logs.files import EventLog

_EVENT: Final = re.compile(rb'\{"Event":"(?:[\w.]*\.)?(SparkListener\w+)"')


class LoggedApplication(msgspec.Struct):
    """An application, as its log has it.

    Attributes:
        started_ms: when it began.
        ended_ms: when it ended; None if its log does not say so.
        executions: those that have ended, failed or not.
    """

    id: str
    name: str
    started_ms: int
    ended_ms: int | None = None
    executions: list[Execution] = msgspec.field(default_factory=list)

    @classmethod
    def read(cls, log: EventLog) -> LoggedApplication:
        """Read a log.

        Raises:
            EventLogError: it is damaged, is no event log, or cannot be decompressed.
        """
        reading = _Reading()
        for line in log.lines():
            if event := _EVENT.match(line):
                try:
                    reading.add(event[1], line)
                except msgspec.DecodeError as error:
                    raise EventLogError(f"{log.name} is damaged: {error}") from None
        if reading.application is None:
            raise EventLogError(f"{log.name} is no event log: it names no application")
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


class _ExecutionEnd(msgspec.Struct):
    id: int = msgspec.field(name="executionId")
    time_ms: int = msgspec.field(name="time")
    error: str | None = msgspec.field(default=None, name="errorMessage")


class _Properties(msgspec.Struct):
    execution: str | None = msgspec.field(default=None, name="spark.sql.execution.id")


class _JobStart(msgspec.Struct):
    id: int = msgspec.field(name="Job ID")
    properties: _Properties | None = msgspec.field(default=None, name="Properties")


_APPLICATION_START: Final = msgspec.json.Decoder(_ApplicationStart)
_APPLICATION_END: Final = msgspec.json.Decoder(_ApplicationEnd)
_EXECUTION_START: Final = msgspec.json.Decoder(_ExecutionStart)
_EXECUTION_END: Final = msgspec.json.Decoder(_ExecutionEnd)
_JOB_START: Final = msgspec.json.Decoder(_JobStart)


class _Reading:
    """A log as far as it was read."""

    def __init__(self) -> None:
        self.application: LoggedApplication | None = None
        self._begun: dict[int, _ExecutionStart] = {}
        self._jobs: dict[int, set[int]] = {}

    def add(self, kind: bytes, line: bytes) -> None:
        """Add an event; those of kinds that do not matter are not even decoded."""
        match kind:
            case b"SparkListenerApplicationStart":
                begun = _APPLICATION_START.decode(line)
                self.application = LoggedApplication(begun.id, begun.name, begun.time_ms)
            case b"SparkListenerApplicationEnd":
                if self.application is not None:
                    self.application.ended_ms = _APPLICATION_END.decode(line).time_ms
            case b"SparkListenerSQLExecutionStart":
                execution = _EXECUTION_START.decode(line)
                self._begun[execution.id] = execution
            case b"SparkListenerJobStart":
                job = _JOB_START.decode(line)
                if job.properties is not None and job.properties.execution is not None:
                    self._jobs.setdefault(int(job.properties.execution), set()).add(job.id)
            case b"SparkListenerSQLExecutionEnd":
                self._end(_EXECUTION_END.decode(line))

    def _end(self, end: _ExecutionEnd) -> None:
        begun = self._begun.pop(end.id, None)
        if begun is None or self.application is None:
            return  # a compacted log has let go of its begin
        self.application.executions.append(
            Execution(
                id=end.id,
                root_id=end.id if begun.root_id is None else begun.root_id,
                submitted_ms=begun.time_ms,
                completed_ms=end.time_ms,
                spark_jobs=frozenset(self._jobs.pop(end.id, ())),
                error=end.error or "",
                plan=begun.plan,
            )
        )
