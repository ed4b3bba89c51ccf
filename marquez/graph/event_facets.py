"""The facets of an event with the facts about its file and its job that the graph and the summaries need.

The job's facets are the standard ones (https://openlineage.io/spec/facets: documentation, ownership, tags),
which a client adds to each event, for example through ``tags`` in ``openlineage.yml``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import DELTA_FILE_FACET, PRESENTED_FACET, FinalState, parse_instant_us

from .names import Node, full_name

if TYPE_CHECKING:
    from ..envelope import Envelope

_FACET: Final = DELTA_FILE_FACET.encode()
_ENDS: Final = {"COMPLETE": FinalState.COMPLETE, "FAIL": FinalState.ERROR, "ABORT": FinalState.CANCELLED}

NOTES_MAX_BYTES: Final = 16 * 1024
"""Larger facets are ignored, so that a stored job stays small."""

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class Flow(NamedTuple):
    """Files that one summary stands for.

    Attributes:
        parent: the job of their parent runs, which Marquez makes part of the job's name.
        source: the system and data source of the files.
    """

    job: Node
    parent: Node | None
    source: Node

    @property
    def job_in_marquez(self) -> Node:
        """The job under the name that Marquez gives it."""
        job, parent = self.job, self.parent
        return job if parent is None else Node(job.namespace, full_name(job.name, parent.name))


class FileEvent(NamedTuple):
    """One event of a file.

    Attributes:
        comes_from: the job of the file that it was split from.
        state: how a path of the file ended; None while it has not, and if its end was only inferred.
        completed_ms: when it ended or, while it has not, when the event happened; epoch milliseconds.
        size_bytes: how much was written, according to the outputs' statistics.
        cause: why it failed; empty if it did not.
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
    cause: str = ""


class _File(msgspec.Struct, rename="camel"):
    parent_did: str | None = None
    system_name: str | None = None
    data_source: str | None = None
    transforms: tuple[str, ...] | None = None
    data_sink: str | None = None
    final_state: FinalState | None = None
    completed: str | None = None
    annotations: dict[str, str] | None = None


class _Error(msgspec.Struct):
    message: str = ""


class Named(msgspec.Struct):
    """A job or a dataset as JSON has it."""

    namespace: str
    name: str

    @property
    def node(self) -> Node:
        """Its node in the graph."""
        return Node(self.namespace, self.name)


class _ParentRun(msgspec.Struct, rename="camel"):
    run_id: str


class _Parent(msgspec.Struct):
    run: _ParentRun
    job: Named


class _Presented(msgspec.Struct, rename="camel"):
    """What the event of another home had before it was changed for Marquez's page."""

    job_name: str
    parent: _Parent


class _Facets(msgspec.Struct):
    file: _File | None = msgspec.field(default=None, name=DELTA_FILE_FACET)
    parent: _Parent | None = None
    presented: _Presented | None = msgspec.field(default=None, name=PRESENTED_FACET)
    error: _Error | None = msgspec.field(default=None, name="errorMessage")


class _Statistics(msgspec.Struct):
    size: int | None = None


class _OutputFacets(msgspec.Struct, rename="camel"):
    output_statistics: _Statistics | None = None


class _Output(Named, rename="camel"):
    output_facets: _OutputFacets | None = None

    @property
    def size_bytes(self) -> int:
        statistics = self.output_facets and self.output_facets.output_statistics
        return max(statistics.size or 0, 0) if statistics else 0


_FACETS: Final = msgspec.json.Decoder(_Facets)
_INPUTS: Final = msgspec.json.Decoder(list[Named] | None)
_OUTPUTS: Final = msgspec.json.Decoder(list[_Output] | None)


def file_event_of(envelope: Envelope) -> FileEvent | None:
    """The facts about a file in an event; None if the event is not about a file."""
    run, job = envelope.run, envelope.job
    if run is None or not run.run_id or job is None or _FACET not in bytes(run.facets):
        return None
    try:
        facets = _FACETS.decode(run.facets)
        if facets.file is None:
            return None
        file, parent, name = facets.file, facets.parent, job.name
        if facets.presented is not None:
            parent, name = facets.presented.parent, facets.presented.job_name
        inputs = _INPUTS.decode(envelope.inputs or b"[]") or []
        outputs = _OUTPUTS.decode(envelope.outputs or b"[]") or []
        completed_ms = parse_instant_us(file.completed or str(envelope.event_time)) // 1000
    except _UNREADABLE:
        return None
    end = None if envelope.is_inferred else _ENDS.get(envelope.type_name)
    parents = parent.job.node if parent is not None else None
    is_of_file = parent is not None and parent.run.run_id == file.parent_did
    source = Node(file.system_name or job.namespace, file.data_source or name)
    return FileEvent(
        flow=Flow(Node(job.namespace, name), parents, source),
        run_id=run.run_id,
        parent_run_id=parent.run.run_id if parent is not None else None,
        comes_from=parents if is_of_file else None,
        state=end and (file.final_state or end),
        completed_ms=completed_ms,
        transforms=file.transforms or (),
        sink=file.data_sink if end else None,
        inputs=[dataset.node for dataset in inputs],
        outputs=[dataset.node for dataset in outputs],
        size_bytes=sum(output.size_bytes for output in outputs) if end else 0,
        cause=_cause_of(facets, file) if end is FinalState.ERROR else "",
    )


def _cause_of(facets: _Facets, file: _File) -> str:
    if facets.error is not None and facets.error.message:
        return facets.error.message
    return (file.annotations or {}).get("errorCause", "")


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who is responsible for a job."""

    name: str
    type: str | None = None


class Tag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tag of a job."""

    key: str
    value: str = "true"
    source: str | None = None


class JobFacets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The known facts about a job."""

    documentation: str = ""
    owners: tuple[Owner, ...] = ()
    tags: tuple[Tag, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.documentation or self.owners or self.tags)


def described(says: str, notes: JobFacets) -> str:
    """A job's description: a sentence, the job's own documentation, and its owners."""
    says = f"{says} {notes.documentation}" if notes.documentation else says
    return f"{says} Owners: {', '.join(owner.name for owner in notes.owners)}." if notes.owners else says


class _Tag(msgspec.Struct):
    """A tag as clients send it: from YAML, its value may be no text."""

    key: str
    value: str | bool | int | float = "true"
    source: str | None = None

    @property
    def tag(self) -> Tag:
        value = self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()
        return Tag(self.key, value, self.source)


class _Facet(msgspec.Struct):
    description: str = ""
    owners: tuple[Owner, ...] = ()
    tags: tuple[_Tag, ...] = ()


def job_facets_of(envelope: Envelope) -> JobFacets:
    """The facts in the job facets of an event; a facet that does not follow its schema is ignored."""
    try:
        raw = envelope.job.facets if envelope.job is not None else msgspec.Raw()
        facets = msgspec.json.decode(raw or b"{}", type=dict[str, msgspec.Raw])
    except _UNREADABLE:
        return JobFacets()
    return JobFacets(
        _read(facets.get("documentation")).description,
        _read(facets.get("ownership")).owners,
        tuple(one.tag for one in _read(facets.get("tags")).tags),
    )


def _read(raw: msgspec.Raw | None) -> _Facet:
    if raw is not None and len(raw) <= NOTES_MAX_BYTES:
        with contextlib.suppress(*_UNREADABLE):
            return msgspec.json.decode(raw, type=_Facet)
    return _Facet()
