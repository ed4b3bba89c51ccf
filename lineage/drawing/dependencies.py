"""The graph of datasets, jobs and columns as boxes and arrows, and as data for other programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport.counting import counted

from ..graph.asking import shown
from ..graph.elements import EdgeKind, Node, NodeKind
from ..graph.walking import COLUMNS, FLOW
from ..records import load_package
from .folding import Folded, fold, said_of_group
from .lines import FOLDED_FROM
from .writing import COLOURS, Arrow, Box, Look, shorten, write_graphml

if TYPE_CHECKING:
    from ..graph.around import Graph
    from ..graph.columns import DatasetColumns
    from ..graph.elements import Edge

_LOOKS: Final = {
    NodeKind.DATASET: Look(("[(", ")]"), "cylinder", None, ("#e8f0fe", "#1a56b0")),
    NodeKind.JOB: Look(("([", "])"), "box", 14),
    NodeKind.COLUMN: Look(("[", "]"), "note", 0, ("#f3e8fd", "#6a1b9a")),
}
"""How nodes of a type look; those of any other type are plain boxes."""

_PLAIN: Final = Look()
_STACK: Final = Look(("[[", "]]"), "box3d", is_stack=True)
_FLOWS: Final = {*FLOW, *COLUMNS}
"""What such an edge means is plain from its ends and from its line; others have a word."""

_ROWS_MAX: Final = 20
"""So many columns are drawn in a dataset's box."""


def boxes_of_graph(graph: Graph, folded_from: int | None = FOLDED_FROM) -> tuple[list[Box], list[Arrow]]:
    """The boxes and arrows of a graph, folded as `fold` says."""
    return boxes_of_folded(graph, fold(graph, folded_from=folded_from))


def boxes_of_folded(graph: Graph, folded: Folded) -> tuple[list[Box], list[Arrow]]:
    """A box for each group of a graph, and the arrows between them."""
    columns = {some.dataset: columns_said(some) for some in graph.columns}
    boxes = []
    for group in folded.groups:
        if group.node is not None:
            boxes.append(_box(group.node, graph, columns.get(group.node, [])))
        else:
            kinds = {node.kind for node in group.nodes}
            look = _LOOKS.get(group.nodes[0].kind, _PLAIN) if len(kinds) == 1 else _PLAIN
            boxes.append(Box([shorten(said_of_group(group))], _STACK, look.colours))
    arrows = []
    for (source, kind, target), count in folded.links.items():
        words = [] if kind in _FLOWS else [str(kind)]
        words += [f"{count:,} edges"] if count > 1 else []
        arrows.append(Arrow(source, target, ", ".join(words), kind is EdgeKind.INFLUENCE))
    return boxes, arrows


def graphml_of_graph(graph: Graph) -> str:
    """A graph in GraphML, with nothing folded, and with its columns as nodes."""
    graph = graph.whole()
    nodes = [
        {"labelV": str(node.kind), "label": shown(node), **_data(node, ("kind",)), "distance": distance}
        | ({"state": graph.states[node]} if node in graph.states else {})
        for node, distance in graph.distances.items()
    ]
    places = {node: at for at, node in enumerate(graph.distances)}
    edges = [
        (places[edge.source], places[edge.target], {"labelE": str(edge.kind), **_data(edge, _ENDS)})
        for edge in graph.edges
    ]
    return write_graphml("lineage", nodes, edges)


def network_of(graph: Graph) -> Any:  # noqa: ANN401 - networkx has no types
    """A graph as a `networkx.MultiDiGraph`: its nodes are those of the graph, and the keys of edges kinds.

    Raises:
        MissingPackageError: networkx is not installed.
    """
    graph = graph.whole()
    network = load_package("graph", "networkx").MultiDiGraph(about=graph.about)
    for node, distance in graph.distances.items():
        around = {} if graph.about is None else {"distance": distance, "state": graph.states.get(node)}
        network.add_node(node, **_data(node, ()), **around)
    for edge in graph.edges:
        network.add_edge(edge.source, edge.target, key=str(edge.kind), **_data(edge, _ENDS))
    return network


_ENDS: Final = ("source", "kind", "target")


def columns_said(columns: DatasetColumns) -> list[str]:
    """The columns of a dataset, each in one line with what it comes from: ``total, from lake/in.amount``."""
    sources: defaultdict[str, list[str]] = defaultdict(list)
    for edge in columns.edges:
        if edge.source != columns.dataset:  # by which what decides all its rows comes to each column
            how = " (indirect)" if edge.kind is EdgeKind.INFLUENCE else ""
            sources[edge.target.column].append(f"{shown(edge.source)}{how}")
    rows = ({"": "all rows"} if "" in sources else {}) | {name: name for name in columns.names}
    return [
        f"{row}, from {', '.join(sources[name])}" if name in sources else row for name, row in rows.items()
    ]


def _box(node: Node, graph: Graph, rows: list[str]) -> Box:
    look = _LOOKS.get(node.kind, _PLAIN)
    state = graph.states.get(node)
    words = [shorten(shown(node))] + ["maybe"] * (node in graph.doubtful)
    words += [] if state is None else [f"last run: {state}"]
    words += map(shorten, rows[:_ROWS_MAX])
    if len(rows) > _ROWS_MAX:
        words.append(f"and {counted(len(rows) - _ROWS_MAX, 'column')} more")
    colours = look.colours if state is None else COLOURS.get(state, COLOURS[None])
    return Box(words, look, colours, node == graph.about)


def _data(of: Node | Edge, without: Collection[str]) -> dict[str, str | float]:
    """What a node or an edge says of itself; what is empty is left out."""
    told: dict[str, str | float] = {}
    for name in of.__struct_fields__:
        value = getattr(of, name)
        if name in without or value in ("", None, (), {}):
            continue
        if isinstance(value, Node):
            value = shown(value)
        told[name] = value if isinstance(value, str | float | int) else msgspec.json.encode(value).decode()
    return told
