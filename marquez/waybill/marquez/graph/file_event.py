"""What an event says of a file, as far as the graph and the summaries have to know it."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from waybill.facets import DELTA_FILE_FACET, FinalState, parse_instant_us

_FACETED: Final = DELTA_FILE_FACET.encode()
_ENDS: Final = {"COMPLETE": FinalState.COMPLETE, "FAIL": FinalState.ERROR, "ABORT": FinalState.CANCELLED}


class Node(NamedTuple):
    """A job or a dataset."""

    namespace: str
    name: str


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
    """One event of a file.

    Attributes:
        flow: what it belongs to.
        run_id: its run.
        parent_run_id: its run's parent, if it has one.
        comes_from: the job of the file that it was split from.
        state: how a path of the file ended; None while it has not.
        completed_ms: when; of a path that has not ended, when the event happened; epoch milliseconds.
        transforms: the flows that changed it, in order.
        sink: the flow it left by.
        inputs: the datasets that it reads.
        outputs: those that it writes.
        size_bytes: how much was written, as the outputs' statistics say.
    """

    flow: Flow
    run_id: str
    parent_run_id: str | None
    comes_from: Node | None
    state: FinalState | None
    completed_ms: int
    transforms: tuple[str, ...]
    sink: str | None
    inputs: list[Node]
    outputs: list[Node]
    size_bytes: int


class _File(msgspec.Struct, rename="camel"):
    parent_did: str | None = None
    system_name: str | None = None
    data_source: str | None = None
    transforms: tuple[str, ...] | None = None
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
    """The few members of an event that have to be known; nothing else of it is decoded."""

    event_time: str
    run: _Run
    job: _Named
    event_type: str | None = None
    inputs: list[_Named] | None = None
    outputs: list[_Output] | None = None


_DECODER: Final = msgspec.json.Decoder(_Event)


def file_event_of(body: bytes) -> FileEvent | None:
    """What an event says of a file; None where it is not one of a file."""
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
    end = _ENDS.get((event.event_type or "").upper())
    parents = parent.job.node if parent is not None else None
    of_file = parent is not None and parent.run.run_id == said.parent_did
    source = Node(said.system_name or event.job.namespace, said.data_source or event.job.name)
    return FileEvent(
        flow=Flow(event.job.node, parents, source),
        run_id=event.run.run_id,
        parent_run_id=parent.run.run_id if parent is not None else None,
        comes_from=parents if of_file else None,
        state=end and (said.final_state or end),
        completed_ms=completed_ms,
        transforms=said.transforms or (),
        sink=said.data_sink if end else None,
        inputs=[dataset.node for dataset in event.inputs or ()],
        outputs=[dataset.node for dataset in event.outputs or ()],
        size_bytes=sum(map(_size_bytes, event.outputs or ())) if end else 0,
    )


def _size_bytes(output: _Output) -> int:
    statistics = output.output_facets and output.output_facets.output_statistics
    return max(statistics.size or 0, 0) if statistics else 0
