"""A node with all that was found around it, or all datasets and jobs, as one graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from .columns import DatasetColumns
from .elements import Ask, Edge, EdgeKind, Node, NodeKind, as_json
from .runs import last_runs
from .walking import COLUMNS, FLOW, Nodes, Walk

if TYPE_CHECKING:
    from .asking import Dependencies
    from .walking import Reach

_EVERY: Final = "SELECT number FROM all_node WHERE kind IN ('dataset', 'job')"
_BEYOND: Final = """
SELECT near, count(DISTINCT far) FROM (
    SELECT source AS near, target AS far, kind, job FROM all_edge
    WHERE source IN (SELECT value FROM json_each(?1))
    UNION ALL SELECT target, source, kind, job FROM all_edge WHERE target IN (SELECT value FROM json_each(?1))
)
WHERE kind IN (SELECT value FROM json_each(?2)) AND (kind <> 'feed' OR job = 0)
AND far NOT IN (SELECT value FROM json_each(?3)) GROUP BY near
"""


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


def find_around(ask: Ask, found: Dependencies, opened: Collection[str], with_states: int) -> Graph:
    """What is one edge away from a node, either way, and from those of the nodes found that are opened.

    Args:
        ask: executes statements.
        found: the node, with what is one edge away from it.
        opened: the numbers of nodes, in hexadecimal digits.
        with_states: how many jobs at most are told with the states of their last runs, the nearest first.
    """
    nodes, about = Nodes(ask), found.node
    kinds = COLUMNS if about.kind is NodeKind.COLUMN else FLOW
    graph = Graph.of(found)
    distances = dict(graph.distances)
    edges = {(edge.source, edge.kind, edge.target): edge for edge in graph.edges}
    followed = {about}
    while near := [node for node in distances if f"{node.number:x}" in opened and node not in followed]:
        followed.update(near)
        for edge in _edges_around(nodes, near, kinds):
            edges.setdefault((edge.source, edge.kind, edge.target), edge)
            for one, other in ((edge.source, edge.target), (edge.target, edge.source)):
                if one in distances:
                    distances.setdefault(other, distances[one] + 1)
    jobs = {node.number: node for node in distances if node.kind is NodeKind.JOB}
    runs = last_runs(ask, list(jobs)[:with_states])
    states = {jobs[number]: run.state for number, run in runs.items()}
    in_order = dict(sorted(distances.items(), key=itemgetter(1)))
    doubtful = set(graph.doubtful)
    for down in (False, True) if len(followed) > 1 else ():
        walk = Walk(nodes, [about], down=down, kinds=kinds, depth=max(distances.values()))
        doubtful.update(nodes.known[number] for number in walk.distances.keys() - walk.certain)
    graph = msgspec.structs.replace(graph, doubtful=frozenset(doubtful & distances.keys()))
    return msgspec.structs.replace(graph, distances=in_order, edges=tuple(edges.values()), states=states)


def _edges_around(nodes: Nodes, near: Sequence[Node], kinds: Sequence[EdgeKind]) -> Iterator[Edge]:
    """The edges that lead to and from some nodes; of a job of files, also to the jobs that these pass."""
    for down in (False, True):
        inner = (EdgeKind.CONTAIN,) if down and kinds is FLOW else ()
        walk = Walk(nodes, near, down=down, kinds=(*kinds, *inner), depth=1)
        yield from walk.reach().edges


def count_beyond(ask: Ask, some: Collection[Node], known: Iterable[Node]) -> dict[Node, int]:
    """By node, how many nodes beside those known are one edge away; one with none is left out."""
    numbers = {node.number: node for node in some}
    kinds = as_json((*FLOW, *COLUMNS))
    rows = ask(_BEYOND, (as_json(numbers), kinds, as_json(node.number for node in known)))
    return {numbers[number]: count for number, count in rows}


class Graph(msgspec.Struct, frozen=True):
    """A node with all that was found up and down from it.

    Attributes:
        about: the node; None: it is about all nodes.
        distances: by node, how many edges away it is, the nearest first; of `about`, and of all, 0.
        edges: the edges between them, each once.
        states: how the jobs ran last, as far as that is known.
        doubtful: the nodes that are not certain; see `ReachedNode`.
        columns: those of the datasets, and what they come from, if that was asked.
    """

    about: Node | None
    distances: dict[Node, int]
    edges: tuple[Edge, ...]
    states: dict[Node, str] = {}
    columns: tuple[DatasetColumns, ...] = ()
    doubtful: frozenset[Node] = frozenset()

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
        certain = {one.node for reach in reaches for one in reach.nodes if one.is_certain}
        doubtful = distances.keys() - certain - {about}
        return cls(about, distances, tuple(edges.values()), doubtful=frozenset(doubtful))

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
        return msgspec.structs.replace(self, distances=distances, edges=edges, columns=())
