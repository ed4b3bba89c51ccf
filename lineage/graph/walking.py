"""Walking along the edges of the graph, with the flow of data or against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from .elements import Edge, EdgeKind, Node, as_json

if TYPE_CHECKING:
    from collections.abc import Collection

ALWAYS_US: Final = 2**62
"""An instant after every event."""

FLOW: Final = (EdgeKind.READ, EdgeKind.WRITE)
COLUMNS: Final = (EdgeKind.DERIVE, EdgeKind.INFLUENCE)

_ALONG: Final = """
SELECT * FROM all_edge
WHERE {} IN (SELECT value FROM json_each(?)) AND kind IN (SELECT value FROM json_each(?)) AND first_us <= ?
"""
_BELIEFS: Final = """
SELECT job, dataset, max(confidence) FROM all_belief
WHERE dataset IN (SELECT value FROM json_each(?)) AND of_columns AND first_us <= ? GROUP BY job, dataset
"""
_EXPLICIT: Final = """
SELECT job, dataset, max(confidence) FROM all_belief
WHERE job IN (SELECT value FROM json_each(?)) AND NOT of_columns AND first_us <= ? GROUP BY job, dataset
"""
_SAME: Final = """
SELECT source, target FROM all_edge WHERE {} IN (SELECT value FROM json_each(?)) AND kind = 'same'
"""
_NODES: Final = """
SELECT number, kind, namespace, name, part FROM all_node WHERE number IN (SELECT value FROM json_each(?))
"""
Ask = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Executes a statement with its bindings."""


class ReachedNode(msgspec.Struct, frozen=True, order=True, gc=False):
    """A node, and how many edges away it is."""

    distance: int
    node: Node


class Reach(msgspec.Struct, frozen=True):
    """What is up or down from a node.

    A dataset with several names is one node, with the name that jobs use.

    Attributes:
        nodes: those that were reached, the nearest first, then as they stand in the events.
        edges: the edges on the way, in that order.
    """

    nodes: tuple[ReachedNode, ...]
    edges: tuple[Edge, ...]


NOWHERE: Final = Reach((), ())


def follow(
    ask: Ask,
    start: Iterable[Node],
    *,
    down: bool,
    depth: int | None,
    kinds: Collection[EdgeKind],
    as_of_us: int = ALWAYS_US,
) -> Reach:
    """Follow the edges of some kinds from nodes, with the flow of data or against it.

    Args:
        ask: executes statements.
        start: the nodes.
        down: with the flow.
        depth: how many edges at most; None: all.
        kinds: `FLOW` or `COLUMNS`.
        as_of_us: leave out what was told first after this instant, in epoch microseconds.
    """
    return _Walk(ask, down=down, kinds=kinds, as_of_us=as_of_us).follow(start, depth)


_Place = tuple[int, int]
"""A node, and the dataset by which the walk came to it, where it depends on that how it goes on; else 0."""


class _Walk:
    """A breadth-first search.

    Where the facet `lineage` says what a job writes a dataset from, a walk goes through the job only so.
    """

    def __init__(self, ask: Ask, *, down: bool, kinds: Collection[EdgeKind], as_of_us: int) -> None:
        self._ask = ask
        self._down = down
        self._kinds = kinds
        self._as_of_us = as_of_us
        self._names = Names(ask, of_columns=EdgeKind.DERIVE in kinds)
        self._edges: dict[tuple[int, str, int], tuple[int, _Row]] = {}
        self._distances: dict[int, int] = {}

    def follow(self, start: Iterable[Node], depth: int | None) -> Reach:
        """All that is reached."""
        given = {node.number: node for node in start}
        origin = self._names.settle(set(given))
        self._distances = dict.fromkeys(origin, 0)
        frontier: set[_Place] = {(number, 0) for number in origin}
        seen, distance = set(frontier), 0
        while frontier and (depth is None or distance < depth):
            distance += 1
            frontier = self._step(frontier, distance) - seen
            seen |= frontier
        return self._told({self._names.one(number): node for number, node in given.items()})

    def _step(self, frontier: set[_Place], distance: int) -> set[_Place]:
        entries: defaultdict[int, set[int]] = defaultdict(set)
        for number, entry in frontier:
            entries[number].add(entry)
        rows = self._along("source" if self._down else "target", entries, self._kinds)
        far = self._names.settle({row.target if self._down else row.source for row in rows})
        if EdgeKind.READ in self._kinds:
            allowed, narrow = self._allowed(rows, entries), self._explicit(far)
        else:
            allowed, narrow = self._believed(rows), {}
        reached: set[_Place] = set()
        for row in allowed:
            source, target = self._names.one(row.source), self._names.one(row.target)
            key = (source, row.kind, target)
            known = self._edges.get(key)
            if known is None or row.weight > known[1].weight:
                self._edges[key] = (distance if known is None else known[0], row)
            near, end = (source, target) if self._down else (target, source)
            self._distances.setdefault(end, distance)
            reached.add((end, near if end in narrow else 0))
        return reached

    def _along(self, end: str, numbers: Iterable[int], kinds: Iterable[EdgeKind]) -> list[_Row]:
        bindings = (as_json(self._names.of(numbers)), as_json(kinds), self._as_of_us)
        return [_Row(*row) for row in self._ask(_ALONG.format(end), bindings)]

    def _explicit(self, jobs: Iterable[int]) -> dict[int, dict[int, float]]:
        """By job, the datasets of which it is said what it writes them from, and how sure that is at best."""
        explicit: defaultdict[int, dict[int, float]] = defaultdict(dict)
        for job, dataset, confidence in self._ask(_EXPLICIT, (as_json(jobs), self._as_of_us)):
            explicit[job][dataset] = confidence
        return explicit

    def _allowed(self, rows: list[_Row], entries: Mapping[int, set[int]]) -> list[_Row]:
        """The rows that a walk may take, which came to each job by some datasets."""
        explicit = self._explicit(entries)
        if not explicit:
            return rows
        written = {row.target for row in rows if row.source in explicit} if self._down else set[int]()
        written |= {entry for job in explicit for entry in entries[job] if entry}
        self._names.settle(written)
        feeds = self._along("target", {self._names.one(number) for number in written}, [EdgeKind.FEED])
        self._names.settle({row.source for row in feeds})
        fed = {
            (self._names.one(row.source), row.job, self._names.one(row.target))
            for row in feeds
            if row.confidence >= explicit.get(row.job, {}).get(row.target, 0)
        }
        told = {
            job: {self._names.one(number) for number in self._names.settle(set(datasets))}
            for job, datasets in explicit.items()
        }
        return [row for row in rows if self._is_allowed(row, told, entries, fed)]

    def _is_allowed(
        self,
        row: _Row,
        told: Mapping[int, set[int]],
        entries: Mapping[int, set[int]],
        fed: set[tuple[int, int, int]],
    ) -> bool:
        job, dataset = (row.source, row.target) if self._down else (row.target, row.source)
        if job not in told or 0 in entries[job]:
            return True
        end = self._names.one(dataset)
        if self._down:
            return end not in told[job] or any((entry, job, end) in fed for entry in entries[job])
        return any(entry not in told[job] or (end, job, entry) in fed for entry in entries[job])

    def _believed(self, rows: list[_Row]) -> list[_Row]:
        """The rows that are as sure as what is known best of what their jobs write."""
        scopes = {row.scope for row in rows if row.scope}
        if not scopes:
            return rows
        told = self._ask(_BELIEFS, (as_json(scopes), self._as_of_us))
        best = {(job, dataset): confidence for job, dataset, confidence in told}
        return [row for row in rows if row.confidence >= best.get((row.job, row.scope), 0)]

    def _told(self, given: dict[int, Node]) -> Reach:
        rows = [row for _, row in self._edges.values()]
        numbers = {*self._distances, *(row.job for row in rows if row.job)}
        known = self._names.columns
        nodes = nodes_with(self._ask, numbers - known.keys()) | known | given
        told = sorted(
            (distance, kind, row.place, nodes[source], nodes[target], row)
            for (source, kind, target), (distance, row) in self._edges.items()
        )
        edges = tuple(row.edge(source, target, nodes) for *_, source, target, row in told)
        away = {nodes[number]: distance for number, distance in self._distances.items()}
        reached = dict.fromkeys(edge.target if self._down else edge.source for edge in edges)
        by_distance = sorted((node for node in reached if away[node]), key=lambda node: away[node])
        return Reach(tuple(ReachedNode(away[node], node) for node in by_distance), edges)


class _Row(NamedTuple):
    """A row of the table `edge`."""

    source: int
    kind: str
    target: int
    job: int
    analyzer: str
    scope: int
    confidence: float
    detail: str
    place: int
    first_us: int
    last_hour: int
    run: str

    @property
    def weight(self) -> tuple[float, int, str, int]:
        """Of several rows of one edge, the greatest stands for it."""
        return self.confidence, self.last_hour, self.run, -self.place

    def edge(self, source: Node, target: Node, nodes: Mapping[int, Node]) -> Edge:
        """The edge."""
        transformations, masking = _DETAIL.decode(self.detail) if self.detail else ((), False)
        return Edge(
            source,
            _KINDS[self.kind],
            target,
            nodes.get(self.job),
            self.analyzer,
            self.confidence,
            transformations,
            masking,
            self.run,
            self.first_us // 1_000,
        )


class Names:
    """The numbers of datasets that have several names; the one that was seen first stands for all.

    Args:
        ask: executes statements.
        of_columns: whether to know the columns of these datasets by all names, too.

    Attributes:
        columns: the columns that were looked up, and the datasets among them, by number.
    """

    def __init__(self, ask: Ask, *, of_columns: bool = False) -> None:
        self._ask = ask
        self.columns: dict[int, Node] = {}
        self._of_columns = of_columns
        self._one: dict[int, int] = {}
        self._all: dict[int, set[int]] = {}

    def settle(self, numbers: set[int]) -> set[int]:
        """The nodes that stand for some; their other names are looked up."""
        same: defaultdict[int, set[int]] = defaultdict(set)
        fresh = numbers - self._one.keys()
        columns = nodes_with(self._ask, fresh) if self._of_columns else {}
        self.columns |= columns
        frontier = fresh | {node.dataset.number for node in columns.values()}
        known = set(frontier)
        while frontier:
            rows = [
                row
                for end in ("source", "target")
                for row in self._ask(_SAME.format(end), (as_json(frontier),))
            ]
            for source, target in rows:
                same[source].add(target)
                same[target].add(source)
            frontier = {end for row in rows for end in row} - known
            known |= frontier
        datasets = nodes_with(self._ask, same) if columns and same else {}
        for node in columns.values():
            if node.column:
                names = [datasets[one] for one in _group_of(node.dataset.number, same) if one in datasets]
                same[node.number].update(dataset.with_column(node.column).number for dataset in names)
        for number in sorted(fresh):
            if number not in same:
                self._all[number], self._one[number] = {number}, number
            elif number not in self._one:
                self._stand_for(number, same)
        return {self._one[number] for number in numbers}

    def one(self, number: int) -> int:
        """The node that stands for one."""
        return self._one[number]

    def of(self, numbers: Iterable[int]) -> set[int]:
        """All names of the nodes that some stand for."""
        return {name for number in numbers for name in self._all[number]}

    def _stand_for(self, number: int, same: Mapping[int, set[int]]) -> None:
        group = _group_of(number, same)
        self._all[number] = group
        self._one |= dict.fromkeys(group, number)


def _group_of(number: int, same: Mapping[int, set[int]]) -> set[int]:
    """All nodes that are the same as one, by way of others, too."""
    group, frontier = {number}, {number}
    while frontier:
        frontier = {other for one in frontier for other in same.get(one, ())} - group
        group |= frontier
    return group


def nodes_with(ask: Ask, numbers: Iterable[int]) -> dict[int, Node]:
    """The nodes that there are with some numbers."""
    rows = ask(_NODES, (as_json(numbers),))
    return {number: Node.of_row(*names) for number, *names in rows}


_KINDS: Final = {str(kind): kind for kind in EdgeKind}
_DETAIL: Final = msgspec.json.Decoder(tuple[tuple[str, ...], bool])
