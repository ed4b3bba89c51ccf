"""What one event tells of the graph.

The facets are OpenLineage's `columnLineage` and `symlinks`: one that cannot be read tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import DATA_SINK, DatasetEvent, RunEvent
from waybill.facets.event import read_facet
from waybill.facets.spark_writes import written

from .elements import Edge, EdgeKind, Node, NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from waybill.facets import Event
    from waybill.facets.event import DatasetName, Job


class Observed(NamedTuple):
    """What one event tells of the graph.

    Attributes:
        job: its job; None of an event about a dataset.
        nodes: the nodes that it names, also those without edges.
        edges: the edges between them, each with its place among those of its kind in the event.
    """

    job: Node | None
    nodes: frozenset[Node]
    edges: Mapping[Edge, int]


class _Transformation(msgspec.Struct):
    type: str = ""


class _Field(msgspec.Struct):
    namespace: str
    name: str
    field: str
    transformations: tuple[_Transformation, ...] = ()


class _Derived(msgspec.Struct):
    inputs: tuple[_Field, ...] = msgspec.field(default=(), name="inputFields")


class _ColumnLineage(msgspec.Struct):
    fields: dict[str, _Derived] = {}
    dataset: tuple[_Field, ...] = ()


class _Name(msgspec.Struct):
    namespace: str
    name: str
    type: str = ""


class _Symlinks(msgspec.Struct):
    identifiers: tuple[_Name, ...] = ()


class _Facets(msgspec.Struct):
    column_lineage: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="columnLineage")
    symlinks: msgspec.Raw = msgspec.Raw()


_FACETS: Final = msgspec.json.Decoder(_Facets)
_COLUMN_LINEAGE: Final = msgspec.json.Decoder(_ColumnLineage)
_SYMLINKS: Final = msgspec.json.Decoder(_Symlinks)
_KEYS: Final = (b'"columnLineage"', b'"symlinks"')
_INDIRECT: Final = "INDIRECT"


def observe_graph(event: Event) -> Observed:
    """Return what an event tells of the graph."""
    if isinstance(event, DatasetEvent):
        dataset = _dataset(event.dataset)
        return Observed(None, frozenset({dataset}), {})
    job = _job(event.job)
    read = [(_dataset(one), bytes(getattr(one, "facets", b""))) for one in event.inputs or ()]
    outputs = written(event) if isinstance(event, RunEvent) else event.outputs or ()
    wrote = [(_dataset(one), bytes(one.facets)) for one in outputs]
    nodes = {job, *(node for node, _ in read), *(node for node, _ in wrote)}
    told: list[Iterable[Edge]] = [
        (Edge(node, EdgeKind.READ, job) for node, _ in read),
        (Edge(job, EdgeKind.WRITE, node) for node, _ in wrote),
        *(_told_by(node, facets) for node, facets in (*read, *wrote)),
    ]
    edges: dict[Edge, int] = {}
    for some in told:
        for place, edge in enumerate(some):
            edges.setdefault(edge, place)
    ends = [end for edge in edges for end in (edge.source, edge.target)]
    nodes.update(ends)
    nodes.update(Node(NodeKind.DATASET, end.namespace, end.name) for end in ends if end.column)
    return Observed(job, frozenset(nodes), edges)


def _job(job: Job) -> Node:
    return Node(NodeKind.JOB, job.namespace, job.name)


def _dataset(named: DatasetName) -> Node:
    return Node(NodeKind.DATASET, named.namespace, named.name)


def _told_by(dataset: Node, body: bytes) -> Iterator[Edge]:
    """What the facets of a dataset say of its columns, and its other names."""
    if not any(key in body for key in _KEYS):
        return
    facets = read_facet(_FACETS, msgspec.Raw(body)) or _Facets()
    symlinks = read_facet(_SYMLINKS, facets.symlinks) or _Symlinks()
    for other in symlinks.identifiers:
        # A sink is no name of a dataset: files that go there may be written to several.
        if (
            other.type != DATA_SINK
            and (same := Node(NodeKind.DATASET, other.namespace, other.name)) != dataset
        ):
            yield Edge(dataset, EdgeKind.SAME, same)
    lineage = read_facet(_COLUMN_LINEAGE, facets.column_lineage) or _ColumnLineage()
    for name, derived in lineage.fields.items():
        yield from _derived(dataset.with_column(name), derived.inputs)
    for field in lineage.dataset:
        yield Edge(_column(field), EdgeKind.INFLUENCE, dataset)
    # What decides the rows decides every column. By way of the dataset, these are few edges.
    for name in lineage.fields if lineage.dataset else ():
        yield Edge(dataset, EdgeKind.INFLUENCE, dataset.with_column(name))


def _derived(column: Node, fields: Iterable[_Field]) -> Iterator[Edge]:
    for field in fields:
        kinds = [one.type.upper() for one in field.transformations]
        is_indirect = bool(kinds) and all(kind == _INDIRECT for kind in kinds)
        yield Edge(_column(field), EdgeKind.INFLUENCE if is_indirect else EdgeKind.DERIVE, column)


def _column(field: _Field) -> Node:
    return Node(NodeKind.DATASET, field.namespace, field.name).with_column(field.field)
