"""The graph as OpenLineage events: put into an empty home, they give the same graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets import PRODUCER

from ..analyzers import COLUMN_LINEAGE, LINEAGE_OF_DATASET, facet_of
from ..graph.elements import Edge, EdgeKind, Node, NodeKind

if TYPE_CHECKING:
    from ..graph.around import Graph

_SPEC: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/{}"

_Json = dict[str, Any]


def openlineage_of(graph: Graph, event_time: str) -> Iterator[str]:
    """The events, each as a line of JSON: of jobs with what they read and write, of datasets, and of columns.

    An event of a job has both lists, even if they are empty: OpenMetadata 2.0.7 drops one that lacks either.
    Runs and who told an edge are left out, and so are columns without edges, and edges that are not of the
    flow of data. No schema is told: an analyzer would take columns of one name for one.

    Args:
        graph: the graph.
        event_time: the ISO 8601 instant as of which it is known.
    """
    graph = graph.whole()
    for told in (*_of_nodes(graph), *_of_columns(graph)):
        kind = "JobEvent" if "job" in told else "DatasetEvent"
        about = {"eventTime": event_time, "producer": PRODUCER, "schemaURL": _SPEC.format(kind)}
        yield msgspec.json.encode(about | told).decode()


def _of_nodes(graph: Graph) -> Iterator[_Json]:
    """Each job with what it reads and writes, and each dataset."""
    reads: defaultdict[Node, list[_Json]] = defaultdict(list)
    writes: defaultdict[Node, list[_Json]] = defaultdict(list)
    feeds: defaultdict[Node, list[_Json]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind is EdgeKind.READ:
            reads[edge.target].append(_named(edge.source))
        elif edge.kind is EdgeKind.WRITE:
            writes[edge.source].append(_named(edge.target))
        elif edge.kind is EdgeKind.FEED:
            feeds[edge.target].append({**_named(edge.source), "type": edge.source.kind.upper()})
    of_datasets = {NodeKind.DATASET, NodeKind.COLUMN}
    for node in dict.fromkeys(one.dataset if one.kind in of_datasets else one for one in graph.distances):
        if node.kind is NodeKind.JOB:
            yield {"job": _named(node), "inputs": reads[node], "outputs": writes[node]}
        elif node.kind is NodeKind.DATASET:
            lineage = {"lineage": facet_of(LINEAGE_OF_DATASET, inputs=feeds[node])}
            yield {"dataset": {**_named(node), **({"facets": lineage} if feeds[node] else {})}}


def _of_columns(graph: Graph) -> Iterator[_Json]:
    """What each job, or nobody in particular, says of where the columns of a dataset come from."""
    scopes: defaultdict[tuple[Node | None, Node], list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        if edge.kind in {EdgeKind.DERIVE, EdgeKind.INFLUENCE}:
            scopes[edge.job, edge.target.dataset].append(edge)
    for (job, dataset), edges in scopes.items():
        for facets in _facets(dataset, edges):
            named = {**_named(dataset), "facets": facets}
            of_job = {} if job is None else {"job": _named(job), "inputs": [], "outputs": [named]}
            yield of_job or {"dataset": named}


def _facets(dataset: Node, edges: Sequence[Edge]) -> Iterator[_Json]:
    """The facets that tell the edges to a dataset and to its columns.

    What decides the rows of the dataset decides each column of a facet, so the other columns are in another.
    """
    decisive = [edge for edge in edges if edge.target == dataset]
    decided = {edge.target for edge in edges if edge.source == dataset} if decisive else set[Node]()
    told: tuple[dict[str, list[Edge]], ...] = ({}, {})
    for edge in edges:
        if edge.target != dataset:
            own = told[edge.target not in decided].setdefault(edge.target.column, [])
            own += [] if edge.target in decided and edge.source == dataset else [edge]
    # Only the facet `lineage` can say that a column depends on a dataset, and not on a column of it.
    by_lineage = any(not edge.source.column for some in told for own in some.values() for edge in own)
    for fields, deciding in zip(told, (decisive, []), strict=True):
        if fields or deciding:
            yield _lineage(fields, deciding) if by_lineage else _column_lineage(fields, deciding)


def _column_lineage(fields: Mapping[str, list[Edge]], decisive: list[Edge]) -> _Json:
    told = {name: {"inputFields": [_input(edge) for edge in edges]} for name, edges in fields.items()}
    facet = {"fields": told} | ({"dataset": [_input(edge) for edge in decisive]} if decisive else {})
    return {"columnLineage": facet_of(COLUMN_LINEAGE, **facet)}


def _lineage(fields: Mapping[str, list[Edge]], decisive: list[Edge]) -> _Json:
    def inputs(edges: list[Edge]) -> _Json:
        return {"inputs": [{"type": "DATASET"} | _input(edge) for edge in edges]}

    told = {name: inputs(edges) for name, edges in fields.items()}
    return {"lineage": facet_of(LINEAGE_OF_DATASET, fields=told, **(inputs(decisive) if decisive else {}))}


def _input(edge: Edge) -> _Json:
    field = {"field": edge.source.column} if edge.source.column else {}
    is_direct = edge.kind is EdgeKind.DERIVE
    kinds = [kind.partition("/") for kind in edge.transformations or (() if is_direct else ("INDIRECT",))]
    masking: _Json = {"masking": True} if edge.masking else {}
    masking |= {"description": "a guess: the columns have the same name"} if edge.is_guess else {}
    told = [{"type": kind} | ({"subtype": sub} if sub else {}) | masking for kind, _, sub in kinds]
    return {**_named(edge.source), **field, "transformations": told}


def _named(node: Node) -> _Json:
    return {"namespace": node.namespace, "name": node.name}
