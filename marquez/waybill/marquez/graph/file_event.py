"""What an event says of a file, as far as the graph and the summaries have to know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import DELTA_FILE_FACET, FinalState, parse_instant_us

if TYPE_CHECKING:
    from waybill.marquez.envelope import Envelope

_FACET: Final = DELTA_FILE_FACET.encode()
_ENDS: Final = {"COMPLETE": FinalState.COMPLETE, "FAIL": FinalState.ERROR, "ABORT": FinalState.CANCELLED}

T = TypeVar("T")


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
        comes_from: the job of the file that it was split from.
        state: how a path of the file ended; None while it has not.
        completed_ms: when it ended or, while it has not, when the event happened; epoch milliseconds.
        transforms: the flows that changed it, in order.
        sink: the flow it left by.
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


class _Statistics(msgspec.Struct):
    size: int | None = None


class _OutputFacets(msgspec.Struct, rename="camel"):
    output_statistics: _Statistics | None = None


class _Output(_Named, rename="camel"):
    output_facets: _OutputFacets | None = None


def file_event_of(envelope: Envelope) -> FileEvent | None:
    """What an event says of a file; None where it is not one of a file."""
    run, job = envelope.run, envelope.job
    if run is None or not run.run_id or job is None or _FACET not in bytes(run.facets):
        return None
    try:
        facets = msgspec.json.decode(run.facets, type=_Facets)
        if facets.file is None:
            return None
        file, parent = facets.file, facets.parent
        inputs = _decode(envelope.inputs, list[_Named])
        outputs = _decode(envelope.outputs, list[_Output])
        completed_ms = parse_instant_us(file.completed or str(envelope.event_time)) // 1000
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    end = _ENDS.get(envelope.type_name)
    parents = parent.job.node if parent is not None else None
    is_of_file = parent is not None and parent.run.run_id == file.parent_did
    source = Node(file.system_name or job.namespace, file.data_source or job.name)
    return FileEvent(
        flow=Flow(Node(job.namespace, job.name), parents, source),
        run_id=run.run_id,
        parent_run_id=parent.run.run_id if parent is not None else None,
        comes_from=parents if is_of_file else None,
        state=end and (file.final_state or end),
        completed_ms=completed_ms,
        transforms=file.transforms or (),
        sink=file.data_sink if end else None,
        inputs=[dataset.node for dataset in inputs or ()],
        outputs=[dataset.node for dataset in outputs or ()],
        size_bytes=sum(map(_size_bytes, outputs or ())) if end else 0,
    )


def _decode(raw: msgspec.Raw, kind: type[T]) -> T | None:
    return msgspec.json.decode(raw, type=kind | None) if raw else None


def _size_bytes(output: _Output) -> int:
    statistics = output.output_facets and output.output_facets.output_statistics
    return max(statistics.size or 0, 0) if statistics else 0
