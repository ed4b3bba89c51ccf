"""A node with all that was found around it, or all datasets and jobs, as one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .columns import DatasetColumns
from .elements import Edge, Node
from .walking import FLOW, Ask, Nodes, Walk

if TYPE_CHECKING:
    from .asking import Dependencies
    from .walking import Reach

_EVERY: Final = "SELECT number FROM all_node WHERE kind IN ('dataset', 'job')"


class WholeGraph(msgspec.Struct, frozen=True):
    """All datasets and jobs; a dataset with several names is one node.

    Attributes:
        nodes: the datasets and the jobs, by their names.
        edges: which job reads or writes which dataset.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def find_whole_graph(ask: Ask) -> WholeGraph:
    """All datasets and jobs, and which job reads or writes which dataset."""
    nodes = Nodes(ask)
    every = sorted(nodes.known[number] for number in nodes.settle(number for (number,) in ask(_EVERY, ())))
    return WholeGraph(tuple(every), Walk(nodes, every, down=True, kinds=FLOW, depth=1).reach().edges)


class Graph(msgspec.Struct, frozen=True):
    """A node with all that was found up and down from it.

    Attributes:
        about: the node; None: it is about all nodes.
        distances: by node, how many edges away it is, the nearest first; of `about`, and of all, 0.
        edges: the edges between them, each once.
        states: how the jobs ran last, as far as that is known.
        columns: those of the datasets, and what they come from, if that was asked.
    """

    about: Node | None
    distances: dict[Node, int]
    edges: tuple[Edge, ...]
    states: dict[Node, str] = {}
    columns: tuple[DatasetColumns, ...] = ()

    @classmethod
    def of(cls, found: Dependencies) -> Graph:
        """The graph of what a node depends on, and of what depends on it."""
        states = {}
        if found.last_run is not None and found.last_job is not None:
            states[found.last_job] = found.last_run.state
        graph = cls.between(found.node, (found.upstream, found.downstream))
        return msgspec.structs.replace(graph, states=states, columns=found.columns)

    @classmethod
    def between(cls, about: Node, reaches: tuple[Reach, ...]) -> Graph:
        """The graph of what was reached from a node, in one direction or both."""
        distances = {about: 0}
        for one in sorted((one for reach in reaches for one in reach.nodes), key=lambda one: one.distance):
            distances.setdefault(one.node, one.distance)
        edges = {(edge.source, edge.kind, edge.target): edge for reach in reaches for edge in reach.edges}
        return cls(about, distances, tuple(edges.values()))

    def whole(self) -> Graph:
        """The graph with the columns as nodes; one from a dataset beyond it is a step farther away."""
        distances = dict(self.distances)
        for some in self.columns:
            names = dict.fromkeys(map(some.dataset.with_column, some.names), distances[some.dataset])
            distances |= {name: away for name, away in names.items() if name not in distances}
        for some in self.columns:
            for edge in some.edges:
                away = distances.setdefault(edge.target, self.distances[some.dataset])
                distances.setdefault(edge.source, away + 1)
        edges = (*self.edges, *(edge for some in self.columns for edge in some.edges))
        return Graph(self.about, distances, edges, self.states)
