"""Summaries: one run that stands for many files of a flow, where a backend cannot take an event for each.

The run belongs to the job that the files' own runs belong to, and reads and writes the datasets that they do,
so that the graph is what it would be with them. Its id follows from what it stands for, so that sending it
again changes nothing.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from waybill.facets import DELTA_FILE_FACET, PRODUCER, FinalState, parse_instant_us
from waybill.marquez.journey import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES_MAX: Final = 100
"""How many data sinks, inputs and outputs a summary names."""

_FACETED: Final = DELTA_FILE_FACET.encode()
_SPEC: Final = "https://openlineage.io/spec"
_T = TypeVar("_T")
_ENDS: Final = {"COMPLETE": FinalState.COMPLETE, "FAIL": FinalState.ERROR, "ABORT": FinalState.CANCELLED}


class Flow(NamedTuple):
    """What a summary is for.

    Attributes:
        job: what the files' runs are of.
        parent: what their parents' runs are of, which Marquez makes part of the job's name.
        source: the system and data source of the files.
    """

    job: Node
    parent: Node | None
    source: Node


class FileEvent(NamedTuple):
    """What a summary takes from one event of a file.

    Attributes:
        flow: what it belongs to.
        run_id: its run.
        parent_run_id: its run's parent, if it has one.
        state: how a path of the file ended; None while it has not.
        completed_ms: when, epoch milliseconds.
        sink: the flow it left by.
        inputs: the datasets that it reads.
        outputs: those that it writes.
        size_bytes: how much was written, as the outputs' statistics say.
    """

    flow: Flow
    run_id: str
    parent_run_id: str | None
    state: FinalState | None
    completed_ms: int
    sink: str | None
    inputs: list[Node]
    outputs: list[Node]
    size_bytes: int


class _File(msgspec.Struct, rename="camel"):
    system_name: str | None = None
    data_source: str | None = None
    data_sink: str | None = None
    final_state: FinalState | None = None
    completed: str | None = None


class _Named(msgspec.Struct):
    namespace: str
    name: str

    @property
    def node(self) -> Node:
        return Node(self.namespace, self.name)


class _ParentRun(msgspec.Struct, rename="camel"):
    run_id: str


class _Parent(msgspec.Struct):
    run: _ParentRun
    job: _Named


class _Facets(msgspec.Struct):
    file: _File | None = msgspec.field(default=None, name=DELTA_FILE_FACET)
    parent: _Parent | None = None


class _Run(msgspec.Struct, rename="camel"):
    run_id: str
    facets: _Facets | None = None


class _Statistics(msgspec.Struct):
    size: int | None = None


class _OutputFacets(msgspec.Struct, rename="camel"):
    output_statistics: _Statistics | None = None


class _Output(_Named, rename="camel"):
    output_facets: _OutputFacets | None = None


class _Event(msgspec.Struct, rename="camel"):
    """The few members of an event that a summary has to know; nothing else of it is decoded."""

    event_time: str
    event_type: str
    run: _Run
    job: _Named
    inputs: list[_Named] | None = None
    outputs: list[_Output] | None = None


_DECODER: Final = msgspec.json.Decoder(_Event)


def file_event_of(body: bytes) -> FileEvent | None:
    """What a summary takes from an event; None where it is not one of a file."""
    if _FACETED not in body:
        return None
    try:
        event = _DECODER.decode(body)
        facets = event.run.facets
        if facets is None or facets.file is None or not event.run.run_id:
            return None
        said, parent = facets.file, facets.parent
        completed_ms = parse_instant_us(said.completed or event.event_time) // 1000
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    end = _ENDS.get(event.event_type.upper())
    source = Node(said.system_name or event.job.namespace, said.data_source or event.job.name)
    return FileEvent(
        flow=Flow(event.job.node, parent.job.node if parent else None, source),
        run_id=event.run.run_id,
        parent_run_id=parent.run.run_id if parent else None,
        state=end and (said.final_state or end),
        completed_ms=completed_ms,
        sink=said.data_sink if end else None,
        inputs=[dataset.node for dataset in event.inputs or ()],
        outputs=[dataset.node for dataset in event.outputs or ()],
        size_bytes=sum(map(_size_bytes, event.outputs or ())) if end else 0,
    )


def _size_bytes(output: _Output) -> int:
    statistics = output.output_facets and output.output_facets.output_statistics
    return max(statistics.size or 0, 0) if statistics else 0


class Summary(msgspec.Struct):
    """What is known of the files of one flow.

    Attributes:
        flow: what it is for.
        seq: the first of the events, by its place in the journal; it stands for them all.
        parent_run_id: the parent of its run, if it has one.
        first_ms: when the first event was accepted, epoch milliseconds.
        last_ms: when the last one was.
        events: how many there are.
        states: how many paths ended in each state.
        size_bytes: how much was written.
        completed_ms: when the first and the last path ended; None where none did.
        sinks: the flows they left by.
        inputs: the datasets that were read.
        outputs: those that were written.
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
        """Take in one event, which was accepted after those that are in."""
        self.events += 1
        self.last_ms = received_ms
        self.size_bytes += event.size_bytes
        _name(self.sinks, [event.sink] if event.sink else ())
        _name(self.inputs, event.inputs)
        _name(self.outputs, event.outputs)
        if event.state is not None:
            self.states[event.state] = self.states.get(event.state, 0) + 1
            first_ms, last_ms = self.completed_ms or (event.completed_ms, event.completed_ms)
            self.completed_ms = min(first_ms, event.completed_ms), max(last_ms, event.completed_ms)

    def run_id(self, node: str) -> str:
        """The run's id, of which there is no other.

        Args:
            node: the journal's own name.
        """
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}:{node}:{self.seq}"))

    def event(self, node: str, collector_url: str) -> bytes:
        """The run's only event, the same bytes whenever it is made.

        Args:
            node: the journal's own name.
            collector_url: where the records can be asked for.
        """
        # Who only looks at deliveries has no need of the OpenLineage client.
        import attrs

        from waybill.facets.summary import SUMMARY_FACET, WaybillSummaryRunFacet

        system_name, data_source = self.flow.source
        first, last = _instant(self.first_ms), _instant(self.last_ms)
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
        nominal = {
            "_producer": PRODUCER,
            "_schemaURL": f"{_SPEC}/facets/1-0-1/NominalTimeRunFacet.json#/$defs/NominalTimeRunFacet",
            "nominalStartTime": first,
            "nominalEndTime": last,
        }
        said = {key: value for key, value in attrs.asdict(facet).items() if value is not None}
        facets: dict[str, object] = {"nominalTime": nominal, SUMMARY_FACET: said}
        if self.parent_run_id is not None and self.flow.parent is not None:
            facets["parent"] = {
                "_producer": PRODUCER,
                "_schemaURL": f"{_SPEC}/facets/1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet",
                "run": {"runId": self.parent_run_id},
                "job": self.flow.parent._asdict(),
            }
        return msgspec.json.encode(
            {
                "eventType": "COMPLETE",
                "eventTime": last,
                "producer": PRODUCER,
                "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
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
        asked = {"system_name": system_name, "data_source": data_source, "from": first_ms, "to": last_ms}
        return f"{collector_url}/provenance/query?{urlencode(asked)}"


def _name(names: set[_T], more: Iterable[_T]) -> None:
    for one in more:
        if len(names) < NAMES_MAX:
            names.add(one)


def _instant(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
