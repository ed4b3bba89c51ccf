"""A summary: one run that stands for many files of a flow.

The run belongs to the job of the files' own runs, and reads and writes the same datasets, so that the graph
is the same as with them. Its id is derived from the files, so that sending it again changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from waybill.facets import PRODUCER, FinalState
from waybill.facets.flows import FlowNode
from waybill.facets.json_events import standard_facet

from ..graph import CAUSE_CHARS_MAX, Flow, counts, run_event, window_of

if TYPE_CHECKING:
    from ..graph import FileEvent

NAMES_MAX: Final = 100
"""How many data sinks, inputs and outputs a summary names."""

_T = TypeVar("_T")


class Summary(msgspec.Struct):
    """The known facts about the files of one flow.

    Attributes:
        seq: the first of the events, by its sequence number; it stands for them all.
        first_ms: when the first event was accepted, epoch milliseconds.
        last_ms: when the last one was.
        cause: why the first of them that failed did.
        link: the URL of its records; empty if there is none, None while the summary is open.
    """

    flow: Flow
    seq: int
    parent_run_id: str | None
    first_ms: int
    last_ms: int
    events: int = 0
    states: dict[FinalState, int] = {}
    size_bytes: int = 0
    sinks: set[str] = msgspec.field(default_factory=set)
    inputs: set[FlowNode] = msgspec.field(default_factory=set)
    outputs: set[FlowNode] = msgspec.field(default_factory=set)
    cause: str = ""
    link: str | None = None

    def add(self, event: FileEvent, received_ms: int) -> None:
        """Take in one event that was accepted after those before."""
        self.events += 1
        self.last_ms = received_ms
        self.size_bytes += event.size_bytes
        _add(self.sinks, [event.path.sink] if event.path.sink else ())
        _add(self.inputs, event.inputs)
        _add(self.outputs, event.outputs)
        self.cause = self.cause or event.cause[:CAUSE_CHARS_MAX]
        if event.state is not None:
            self.states[event.state] = self.states.get(event.state, 0) + 1

    def run_id(self, node: str) -> str:
        """The run's id, unique by the journal's `node` and the first event."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}:{node}:{self.seq}"))

    def event(self, node: str) -> bytes:
        """The end of the run, the same bytes each time; with the link to its records, if there is one."""
        system_name, data_source = self.flow.source
        summary = {
            "systemName": system_name,
            "dataSource": data_source,
            "events": self.events,
            "records": sum(self.states.values()),
            "bytes": self.size_bytes,
            "dataSinks": sorted(self.sinks),
            "provenanceQuery": self.link or None,
            **window_of(self.first_ms, self.last_ms),
            **counts(self.states),
        }
        facets = {}
        if self.parent_run_id is not None and self.flow.parent is not None:
            run, job = {"runId": self.parent_run_id}, self.flow.parent._asdict()
            facets["parent"] = standard_facet("1-2-0", "ParentRunFacet", run=run, job=job)
        return run_event(
            self.run_id(node),
            self.flow.job._asdict(),
            summary,
            cause=self.cause,
            inputs=[dataset._asdict() for dataset in sorted(self.inputs)],
            outputs=[dataset._asdict() for dataset in sorted(self.outputs)],
            facets=facets,
        )


def _add(names: set[_T], more: Iterable[_T]) -> None:
    for name in more:
        if len(names) < NAMES_MAX:
            names.add(name)
