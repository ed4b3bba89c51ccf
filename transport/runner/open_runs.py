"""Runs that have begun and not ended, and the event with which Waybill ends one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec

from waybill.facets import DELTA_FILE_FACET, INFERRED_FACET, PRESENTED_FACET, PRODUCER
from waybill.facets.event import JobFacets, JobType, facet_schema_url

from ..journal import Kind

if TYPE_CHECKING:
    from ..journal import Entry

_ENDS: Final = frozenset({"COMPLETE", "ABORT", "FAIL"})
_SCHEDULERS: Final = frozenset({"AIRFLOW", "DAGSTER"})
_SPARK: Final = "SPARK"
_APPLICATION: Final = "APPLICATION"
_UNKNOWN: Final = JobType()
_SCHEMA_URL: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACET_URL: Final = facet_schema_url("WaybillInferredRunFacet")


class _Job(msgspec.Struct):
    namespace: str
    name: str
    facets: JobFacets | None = None


class _Presented(msgspec.Struct, rename="camel"):
    job_name: str
    parent: msgspec.Raw


class _RunFacets(msgspec.Struct):
    parent: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    presented: _Presented | None = msgspec.field(default=None, name=PRESENTED_FACET)
    file: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name=DELTA_FILE_FACET)


class _RunOfEvent(msgspec.Struct, rename="camel"):
    run_id: str
    facets: _RunFacets | None = None


class _ParentRun(msgspec.Struct, rename="camel"):
    run_id: str


class _Parent(msgspec.Struct):
    run: _ParentRun


class EventHead(msgspec.Struct, rename="camel"):
    """The part of a run event that shows whether its run is open."""

    run: _RunOfEvent
    job: _Job
    event_type: str

    @property
    def is_end(self) -> bool:
        """Whether the event ends its run."""
        return self.event_type.upper() in _ENDS

    @property
    def is_scheduled(self) -> bool:
        """Whether a scheduler sent it; a scheduler's runs outlive the process that reports them."""
        return self._job_type.integration.upper() in _SCHEDULERS

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark's listener reports it."""
        return self._job_type.integration == _SPARK

    @property
    def is_application(self) -> bool:
        """Whether its run is a whole Spark application."""
        return self.is_of_spark and self._job_type.jobType == _APPLICATION

    @property
    def _job_type(self) -> JobType:
        facets = self.job.facets
        return facets.job_type if facets is not None and facets.job_type is not None else _UNKNOWN


def read_head(entry: Entry) -> EventHead | None:
    """The head of the run event in an entry; None if it contains none."""
    if entry.kind is not Kind.OPENLINEAGE:
        return None
    try:
        return _HEAD.decode(entry.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # not a run event, or one that violates the schema


class OpenRun(msgspec.Struct, frozen=True, array_like=True):
    """A run that has begun and not ended: its program, and the values that its end must repeat."""

    program: str
    system_name: str
    run_id: str
    namespace: str
    name: str
    parent: bytes = b""
    file: bytes = b""

    @classmethod
    def begun_by(cls, head: EventHead, entry: Entry) -> Self:
        """The run that an event begins, or first mentions.

        Of an event that was changed for Marquez's page, it has the job name and the parent from before.
        """
        facets = head.run.facets or _RunFacets()
        name, parent = head.job.name, facets.parent
        if facets.presented is not None:
            name, parent = facets.presented.job_name, facets.presented.parent
        return cls(
            entry.program or "",
            entry.system_name,
            head.run.run_id,
            head.job.namespace,
            name,
            bytes(parent),
            bytes(facets.file),
        )

    @property
    def parent_id(self) -> str | None:
        """The run id of its parent; None if it has no parent, or the facet cannot be read."""
        try:
            return _PARENT.decode(self.parent).run.run_id if self.parent else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def end(self, now_ms: int, reason: str, event_type: Literal["ABORT", "FAIL"] = "ABORT") -> bytes:
        """The event that ends it; if the run's own end comes later, it replaces this one."""
        facets: dict[str, Any] = {
            INFERRED_FACET: {"_producer": PRODUCER, "_schemaURL": _FACET_URL, "reason": reason}
        }
        if self.parent:
            facets["parent"] = msgspec.Raw(self.parent)
        if self.file:
            facets[DELTA_FILE_FACET] = msgspec.Raw(self.file)
        at = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        return msgspec.json.encode(
            {
                "eventTime": at.replace("+00:00", "Z"),
                "eventType": event_type,
                "producer": PRODUCER,
                "schemaURL": _SCHEMA_URL,
                "run": {"runId": self.run_id, "facets": facets},
                "job": {"namespace": self.namespace, "name": self.name},
            }
        )


_HEAD: Final = msgspec.json.Decoder(EventHead)
_PARENT: Final = msgspec.json.Decoder(_Parent)
