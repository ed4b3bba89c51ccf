"""A summary: one run that stands for many files of a flow.

The run belongs to the job of the files' own runs, and reads and writes the datasets that they do, so that the
graph is the same as with them. Its id follows from what it stands for, so that sending it again changes
nothing.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from waybill.facets import PRODUCER, FinalState
from waybill.marquez.graph import OPENLINEAGE_SPEC, Flow, Node, instant, standard_facet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waybill.marquez.graph import FileEvent

NAMES_MAX: Final = 100
"""How many data sinks, inputs and outputs a summary names."""

_T = TypeVar("_T")


class Summary(msgspec.Struct):
    """What is known of the files of one flow.

    Attributes:
        seq: the first of the events, by its sequence number; it stands for them all.
        first_ms: when the first event was accepted, epoch milliseconds.
        last_ms: when the last one was.
        completed_ms: when the first and the last path ended; None where none did.
    """

    flow: Flow
    seq: int
    parent_run_id: str | None
    first_ms: int
    last_ms: int
    events: int = 0
    states: dict[FinalState, int] = {}
    size_bytes: int = 0
    completed_ms: tuple[int, int] | None = None
    sinks: set[str] = msgspec.field(default_factory=set)
    inputs: set[Node] = msgspec.field(default_factory=set)
    outputs: set[Node] = msgspec.field(default_factory=set)

    def add(self, event: FileEvent, received_ms: int) -> None:
        """Take in one event that was accepted after those before."""
        self.events += 1
        self.last_ms = received_ms
        self.size_bytes += event.size_bytes
        _add(self.sinks, [event.sink] if event.sink else ())
        _add(self.inputs, event.inputs)
        _add(self.outputs, event.outputs)
        if event.state is not None:
            self.states[event.state] = self.states.get(event.state, 0) + 1
            first_ms, last_ms = self.completed_ms or (event.completed_ms, event.completed_ms)
            self.completed_ms = min(first_ms, event.completed_ms), max(last_ms, event.completed_ms)

    def run_id(self, node: str) -> str:
        """The run's id, unique by the journal's `node` and the first event."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}:{node}:{self.seq}"))

    def event(self, node: str, collector_url: str) -> bytes:
        """The run's only event, the same bytes each time; it points to the records at the collector."""
        # Whoever only looks at deliveries does not need the OpenLineage client.
        import attrs

        from waybill.facets.summary import SUMMARY_FACET, WaybillSummaryRunFacet

        system_name, data_source = self.flow.source
        first, last = instant(self.first_ms), instant(self.last_ms)
        facet = WaybillSummaryRunFacet(
            systemName=system_name,
            dataSource=data_source,
            windowStart=first,
            windowEnd=last,
            events=self.events,
            records=sum(self.states.values()),
            byFinalState={str(state): self.states[state] for state in sorted(self.states)},
            bytes=self.size_bytes,
            dataSinks=sorted(self.sinks),
            provenanceQuery=self._query(collector_url),
            producer=PRODUCER,
        )
        nominal = standard_facet("1-0-1", "NominalTimeRunFacet", nominalStartTime=first, nominalEndTime=last)
        summary = {key: value for key, value in attrs.asdict(facet).items() if value is not None}
        facets: dict[str, object] = {"nominalTime": nominal, SUMMARY_FACET: summary}
        if self.parent_run_id is not None and self.flow.parent is not None:
            run, job = {"runId": self.parent_run_id}, self.flow.parent._asdict()
            facets["parent"] = standard_facet("1-2-0", "ParentRunFacet", run=run, job=job)
        return msgspec.json.encode(
            {
                "eventType": "COMPLETE",
                "eventTime": last,
                "producer": PRODUCER,
                "schemaURL": f"{OPENLINEAGE_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
                "run": {"runId": self.run_id(node), "facets": facets},
                "job": self.flow.job._asdict(),
                "inputs": [dataset._asdict() for dataset in sorted(self.inputs)],
                "outputs": [dataset._asdict() for dataset in sorted(self.outputs)],
            }
        )

    def _query(self, collector_url: str) -> str | None:
        if self.completed_ms is None:
            return None
        first_ms, last_ms = self.completed_ms
        system_name, data_source = self.flow.source
        query = {"system_name": system_name, "data_source": data_source, "from": first_ms, "to": last_ms}
        return f"{collector_url}/api/v1/records?{urlencode(query)}"


def _add(names: set[_T], more: Iterable[_T]) -> None:
    for name in more:
        if len(names) < NAMES_MAX:
            names.add(name)
