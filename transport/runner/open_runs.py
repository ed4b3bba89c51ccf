"""Runs that have begun and not ended, and the event with which Waybill ends one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from waybill.facets import DELTA_FILE_FACET, INFERRED_FACET, PRESENTED_FACET, PRODUCER, RunState
from waybill.facets.event import DeltaFile, Parent, facet_schema_url, read_facet
from waybill.facets.json_events import RUN_EVENT_SCHEMA, instant

from ..journal import BegunTransforms

if TYPE_CHECKING:
    from waybill.facets import RunEvent

    from ..journal import Entry

_SCHEDULERS: Final = frozenset({"AIRFLOW", "DAGSTER"})
_SPARK: Final = "SPARK"
_APPLICATION: Final = "APPLICATION"
_FACET_URL: Final = facet_schema_url("WaybillInferredRunFacet")


class _Presented(msgspec.Struct):
    parent: msgspec.Raw


class _Repeated(msgspec.Struct):
    """The run facets that an end repeats as they are."""

    parent: msgspec.Raw = msgspec.Raw()
    presented: _Presented | None = msgspec.field(default=None, name=PRESENTED_FACET)
    file: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name=DELTA_FILE_FACET)


class _BegunRun(msgspec.Struct):
    runId: str  # noqa: N815 - OpenLineage's own name
    facets: _Repeated | None = None


class _Beginning(msgspec.Struct):
    run: _BegunRun


def is_scheduled(event: RunEvent) -> bool:
    """Whether a scheduler sent it; a scheduler's runs outlive the process that reports them."""
    return event.job.job_type.integration.upper() in _SCHEDULERS


def is_of_spark(event: RunEvent) -> bool:
    """Whether Spark's listener reports it."""
    return event.job.job_type.integration == _SPARK


def is_of_application(event: RunEvent) -> bool:
    """Whether its run is a whole Spark application."""
    return is_of_spark(event) and event.job.job_type.jobType == _APPLICATION


class OpenRun(msgspec.Struct, frozen=True, array_like=True):
    """A run that has begun and not ended: its program, and what its end must say.

    Attributes:
        begun: the transforms that its program has noted as begun; None: none was.
        told: what its events have told so far, for those who ask; None: nobody has folded them.
    """

    program: str
    system_name: str
    run_id: str
    namespace: str
    name: str
    parent: bytes = b""
    file: bytes = b""
    begun: BegunTransforms | None = None
    told: RunState | None = None

    @classmethod
    def begun_by(cls, event: RunEvent, entry: Entry) -> Self:
        """The run that the event of an entry begins, or first mentions.

        Of an event that was changed for Marquez's page, it has the job name and the parent from before.
        """
        run = _BEGINNING.decode(entry.body).run
        facets = run.facets or _Repeated()
        parent = facets.parent if facets.presented is None else facets.presented.parent
        return cls(
            entry.program or "",
            entry.system_name,
            run.runId,
            event.job.namespace,
            event.job.name,
            bytes(parent),
            bytes(facets.file),
        )

    @property
    def of_system(self) -> str:
        """The system that processes the file; of a run without the facet, the namespace of its job."""
        file = self.delta_file
        return self.namespace if file is None else file.system_name or self.system_name

    @property
    def parent_id(self) -> str | None:
        """The run id of its parent; None if it has no parent."""
        parent = read_facet(_PARENT, msgspec.Raw(self.parent))
        return None if parent is None else parent.run.runId

    @property
    def delta_file(self) -> DeltaFile | None:
        """What its facet says, if it is a file."""
        return read_facet(_DELTA_FILE, msgspec.Raw(self.file))

    @property
    def transform(self) -> str | None:
        """The last transform that it has begun; None if none was noted."""
        return self.begun.names[-1] if self.begun is not None and self.begun.names else None

    @property
    def _last_begun(self) -> str:
        """That as the end of a sentence; empty if there is none."""
        if self.begun is None or self.transform is None:
            return ""
        noted, count = len(self.begun.names), self.begun.count
        of_more = "" if noted == count else f", of {count:,} of which {noted:,} are kept"
        return f"; the last transform that it began is {self.transform!r}{of_more}"

    @property
    def _file_with_begun(self) -> object:
        if self.begun is None or self.transform is None or self.delta_file is None:
            return msgspec.Raw(self.file)
        return {**msgspec.json.decode(self.file), "transforms": self.begun.names}

    def end(
        self,
        at_ms: int,
        reason: str,
        event_type: str = "ABORT",
        outputs: Iterable[tuple[str, str]] = (),
    ) -> bytes:
        """The event that ends it at an instant; if the run's own end comes later, it replaces this one.

        It names the outputs that the run has written, each as namespace and name. The file has passed the
        transforms that it has begun, and the reason names the last of them.
        """
        reason = f"{reason}{self._last_begun}"
        facets: dict[str, Any] = {
            INFERRED_FACET: {"_producer": PRODUCER, "_schemaURL": _FACET_URL, "reason": reason}
        }
        if self.parent:
            facets["parent"] = msgspec.Raw(self.parent)
        if self.file:
            facets[DELTA_FILE_FACET] = self._file_with_begun
        return msgspec.json.encode(
            {
                "eventTime": instant(at_ms),
                "eventType": str(event_type),
                "producer": PRODUCER,
                "schemaURL": RUN_EVENT_SCHEMA,
                "run": {"runId": self.run_id, "facets": facets},
                "job": {"namespace": self.namespace, "name": self.name},
                # Both lists, even empty: OpenMetadata drops an event of a run that lacks either.
                "inputs": [],
                "outputs": [{"namespace": space, "name": name} for space, name in outputs],
            }
        )


_BEGINNING: Final = msgspec.json.Decoder(_Beginning)
_PARENT: Final = msgspec.json.Decoder(Parent)
_DELTA_FILE: Final = msgspec.json.Decoder(DeltaFile)
