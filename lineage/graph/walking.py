"""Walking along the edges of the graph, with the flow of data or against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from .elements import SAID, Ask, Edge, EdgeKind, Node, NodeKind, as_json
from .naming import is_caseless
from .properties import columns_in, properties_of

ALWAYS_US: Final = 2**62
"""An instant after every event."""

FLOW: Final = (EdgeKind.READ, EdgeKind.WRITE, EdgeKind.FEED)
"""Where data flow; of what feeds a dataset, what does so without a job."""
COLUMNS: Final = (EdgeKind.DERIVE, EdgeKind.INFLUENCE)

_ALONG: Final = """
SELECT * FROM all_edge
WHERE {} IN (SELECT value FROM json_each(?1)) AND kind IN (SELECT value FROM json_each(?2))
AND first_us <= ?3 AND (kind <> 'feed' OR job = 0)
"""
_BELIEVED: Final = f"""
SELECT * FROM ({_ALONG}) AS edge WHERE NOT EXISTS (
    SELECT 1 FROM all_belief AS best
    WHERE job = edge.job AND dataset = edge.scope AND of_columns AND best.confidence > edge.confidence
    AND first_us <= ?3 AND (best.analyzer IN {SAID} OR edge.analyzer NOT IN {SAID})
)
"""  # noqa: S608 - texts of our own
_FEEDS: Final = f"""
SELECT min(confidence, 1.0) + (analyzer IN {SAID}), source, job, target FROM all_edge
WHERE target IN (SELECT value FROM json_each(?)) AND kind = 'feed' AND job <> 0 AND first_us <= ?
"""  # noqa: S608 - texts of our own
_ENDS: Final = """
SELECT source, target FROM all_edge
WHERE {} IN (SELECT value FROM json_each(?)) AND kind = ? AND confidence > 0
"""
_BELIEFS: Final = f"""
SELECT analyzer IN {SAID}, job, dataset FROM all_belief
WHERE job IN (SELECT value FROM json_each(?)) AND NOT of_columns AND first_us <= ?
"""  # noqa: S608 - texts of our own
_COLUMNS_OF: Final = """
SELECT DISTINCT namespace, name, part FROM all_node
WHERE name IN (SELECT value FROM json_each(?)) AND kind = 'column' ORDER BY part
"""
_TOGETHER: Final = """
SELECT DISTINCT job, source, target FROM all_together
WHERE job IN (SELECT value FROM json_each(?)) AND first_us <= ?
"""
_DIFFERING: Final = f"""
SELECT job FROM ({_TOGETHER}) GROUP BY job HAVING count(*) < count(DISTINCT source) * count(DISTINCT target)
"""  # noqa: S608 - texts of our own
_NODES: Final = """
SELECT number, kind, namespace, name, part FROM all_node WHERE number IN (SELECT value FROM json_each(?))
"""


class ReachedNode(msgspec.Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """A node, and how many edges away it is.

    Attributes:
        distance: how many edges.
        node: the node.
        is_certain: False: events name it among the inputs, and an analyzer has not found what it goes into.
    """

    distance: int
    node: Node
    is_certain: bool = True


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


class Nodes:
    """The nodes that a question meets. Of the names of a dataset, the one that is met first stands for all.

    Attributes:
        ask: executes statements.
        known: the nodes, under all their names, by number.
        one: by number, the one that stands for it.
    """

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.known: dict[int, Node] = {}
        self.one: dict[int, int] = {}
        self._names: dict[int, set[int]] = {}
        self._datasets: dict[int, int] = {}
        self._spelled: dict[tuple[int, str], set[str]] = {}
        """By dataset and a name in small letters, the columns that have it, if they are one."""

    def take(self, nodes: Iterable[Node]) -> set[int]:
        """Settle nodes, whether or not the graph has them, as `settle` does."""
        given = {node.number: node for node in nodes}
        self.known |= given
        return self.settle(given)

    def settle(self, numbers: Iterable[int]) -> set[int]:
        """The nodes that stand for some; these and their other names are looked up."""
        numbers = set(numbers)
        fresh = numbers.difference(self.one)  # by far quicker than without its keys, if these are many
        self.load(fresh)
        named = {self._dataset_of(number) for number in fresh}.difference(self.one)
        same = self._find_same(named)
        for some in (named, fresh):
            self._spell(some)
            for number in sorted(some) if same or self._names or self._spelled else ():
                if number not in self.one:
                    group = self._group_of(number, same)
                    one = next((self.one[name] for name in group if name in self.one), number)
                    self.one |= dict.fromkeys(group, one)
                    if len(group) > 1:
                        self._names[one] = group
        alone = (named | fresh).difference(self.one)
        self.one.update(zip(alone, alone, strict=True))
        return {self.one[number] for number in numbers}

    def of(self, numbers: Iterable[int]) -> set[int]:
        """All names of the nodes that some stand for."""
        return {name for number in numbers for name in self._names.get(number, (number,))}

    def dataset_of(self, number: int) -> int:
        """What stands for the dataset of a column; for another node, itself."""
        return self.one[self._datasets.get(number, number)]

    def columns_of(self, datasets: Iterable[int]) -> list[Node]:
        """The columns of datasets under each of their names, and these themselves."""
        named = [self.known[number] for number in self.of(datasets)]
        wanted = {(node.namespace, node.name): node for node in named}
        rows = list_columns(self.ask, wanted.values())
        columns = ((wanted.get((space, name)), part) for space, name, part in rows)
        return [*named, *(node.with_column(part) for node, part in columns if node is not None)]

    def load(self, numbers: Iterable[int]) -> None:
        """Look up nodes."""
        self.known |= nodes_with(self.ask, set(numbers).difference(self.known))

    def _dataset_of(self, number: int) -> int:
        node = self.known.get(number)
        if node is None or node.kind is not NodeKind.COLUMN:
            return number
        dataset = node.dataset
        self._datasets[number] = named = dataset.number
        self.known.setdefault(named, dataset)
        return named

    def _find_same(self, numbers: set[int]) -> Mapping[int, set[int]]:
        """By node with several names, some others of them; by way of these there are all."""
        known = self.known
        frontier = {number for number in numbers & known.keys() if known[number].kind is NodeKind.DATASET}
        same: defaultdict[int, set[int]] = defaultdict(set)
        seen = set(frontier)
        while frontier:
            rows = list_ends(self.ask, "source", frontier, EdgeKind.SAME)
            rows |= list_ends(self.ask, "target", frontier, EdgeKind.SAME)
            for source, target in rows:
                same[source].add(target)
                same[target].add(source)
            frontier = {number for row in rows for number in row} - seen
            seen |= frontier
        self.load(same)
        return same

    def _spell(self, columns: Iterable[int]) -> None:
        """Look up how columns are spelled of which the database takes small letters and capitals for one."""
        ones = {self.one.get(of, of) for number in columns if (of := self._datasets.get(number)) is not None}
        names = {name: one for one in ones if (one, "") not in self._spelled for name in self.of([one])}
        caseless = {one for name, one in names.items() if is_caseless(self.known[name].namespace)}
        if not caseless:
            return
        spelled: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        for (number, _), schema in properties_of(self.ask, self.of(caseless), "schema").items():
            for name in columns_in(schema):
                spelled[names[number], name.casefold()].add(name)
        quoted = {key for key, some in spelled.items() if len(some) > 1}
        for node in self.columns_of(caseless):
            spelled[names[node.dataset.number], node.column.casefold()].add(node.column)
        self._spelled |= {key: some for key, some in spelled.items() if key not in quoted}

    def _group_of(self, number: int, same: Mapping[int, set[int]]) -> set[int]:
        """All names of a node."""
        group, frontier = {number}, {number}
        while frontier:
            frontier = {other for one in frontier for other in same.get(one, ())} - group
            group |= frontier
        if (dataset := self._datasets.get(number)) is not None:
            one, column = self.one.get(dataset, dataset), self.known[number].column
            names, spelled = self.of([one]), {column, *self._spelled.get((one, column.casefold()), ())}
            group |= {self.known[name].with_column(one).number for name in names for one in spelled}
            self._datasets |= dict.fromkeys(group, dataset)
        return group


class Walk:
    """A breadth-first search along edges of some kinds.

    Where an event's facet `lineage` says what a job writes a dataset from, it goes through the job only so.
    What an analyzer finds decides only among the inputs that it names: by way of others, it is not certain.
    Through a job whose runs differ it goes from a dataset to one that the same run wrote.

    Args:
        nodes: the nodes that the question meets.
        start: where it begins.
        down: with the flow of data, or against it.
        kinds: `FLOW`, `COLUMNS` or others.
        depth: how many edges it goes at most; None: to the ends.
        as_of_us: leave out what was told first after this instant, in epoch microseconds.

    Attributes:
        distances: by node, how many edges away it is.
        certain: the nodes that it reached by ways that are certain.
        steps: what is told of the edges that it took, step by step; several rows may be of one edge.
    """

    def __init__(
        self,
        nodes: Nodes,
        start: Iterable[Node],
        *,
        down: bool,
        kinds: Collection[EdgeKind],
        depth: int | None = None,
        as_of_us: int = ALWAYS_US,
    ) -> None:
        self.distances = dict.fromkeys(nodes.take(start), 0)
        self.certain = set(self.distances)
        self.steps: list[list[EdgeRow]] = []
        self._nodes = nodes
        self._down = down
        self._kinds = kinds
        self._is_flow = EdgeKind.READ in kinds
        self._as_of_us = as_of_us
        self._explicit: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        """By job, the datasets of which it is told what it writes them from, and whether an event says so."""
        self._together: dict[int, _Together] = {}
        """By job whose runs differ, what these read and wrote together."""
        # A place is a node, and the dataset by which the walk came to it, if it depends on that; else 0. It
        # goes on from a place that it came to by a way that is not certain, and again once by one that is.
        frontier = {(number, 0): True for number in self.distances}
        seen = dict(frontier)
        while frontier and (depth is None or len(self.steps) < depth):
            near = self._step(frontier)
            frontier = {place: sure for place, sure in near.items() if sure > seen.get(place, -1)}
            seen |= frontier

    def reach(self) -> Reach:
        """What was reached, in order."""
        edges: dict[tuple[int, str, int], tuple[int, EdgeRow]] = {}
        one, known = self._nodes.one, self._nodes.known
        for distance, row in ((at, row) for at, rows in enumerate(self.steps, 1) for row in rows):
            key = one[row.source], row.kind, one[row.target]
            first, best = edges.setdefault(key, (distance, row))
            if row is not best and row.weight > best.weight:
                edges[key] = (first, row)
        self._nodes.load({row.job for _, row in edges.values() if row.job})
        in_order = sorted(
            (distance, kind, row.place, known[source], known[target], row, target if self._down else source)
            for (source, kind, target), (distance, row) in edges.items()
        )
        away = {number: self.distances[number] for *_, number in in_order}
        nodes = sorted((number for number, distance in away.items() if distance), key=away.__getitem__)
        return Reach(
            tuple(ReachedNode(away[number], known[number], number in self.certain) for number in nodes),
            tuple(row.edge(source, target, known) for _, _, _, source, target, row, _ in in_order),
        )

    def _step(self, frontier: Mapping[_Place, bool]) -> dict[_Place, bool]:
        """Take the edges from places; returns the places where they end, and which of these are certain."""
        near = {number for number, _ in frontier}
        statement = (_ALONG if self._is_flow else _BELIEVED).format("source" if self._down else "target")
        told = _ask_of(self._nodes.ask, statement, self._nodes.of(near), as_json(self._kinds), self._as_of_us)
        rows = list(map(EdgeRow._make, told))
        self._nodes.settle({row.target if self._down else row.source for row in rows})
        one = self._nodes.one
        ends = [(one[row.source], one[row.target]) for row in rows]
        pairs = ends if self._down else [(target, source) for source, target in ends]
        ways = self._ways_open(pairs, frontier)
        self.steps.append([row for row, way in zip(rows, ways, strict=True) if way is not None])
        taken = [(*pair, sure) for pair, sure in zip(pairs, ways, strict=True) if sure is not None]
        reached = dict.fromkeys(end for _, end, _ in taken)
        if self._is_flow:
            self._learn_explicit(reached)
        for end in reached:
            self.distances.setdefault(end, len(self.steps))
        self.certain.update(end for _, end, sure in taken if sure)
        places: dict[_Place, bool] = {}
        for number, end, sure in taken:
            place = end, number if end in self._explicit else 0
            places[place] = sure or places.get(place, False)
        return places

    def _learn_explicit(self, numbers: Iterable[int]) -> None:
        jobs = [number for number in numbers if self._nodes.known[number].kind is NodeKind.JOB]
        told = _ask_of(self._nodes.ask, _BELIEFS, jobs, self._as_of_us)
        self._nodes.settle(dataset for *_, dataset in told)
        for is_said, job, dataset in sorted(told):
            self._explicit[job][self._nodes.one[dataset]] = bool(is_said)
        differing = [job for (job,) in _ask_of(self._nodes.ask, _DIFFERING, jobs, self._as_of_us)]
        rows = _ask_of(self._nodes.ask, _TOGETHER, differing, self._as_of_us)
        self._nodes.settle(number for row in rows for number in row[1:] if number)
        for job, *pair in rows:
            self._explicit.setdefault(job, {})
            together = self._together.setdefault(job, _Together(set(), set(), set()))
            source, target = (self._nodes.one.get(number, 0) for number in pair)
            together.sources.add(source)
            together.targets.add(target)
            together.pairs.add((source, target))

    def _ways_open(self, pairs: list[tuple[int, int]], frontier: Mapping[_Place, bool]) -> list[bool | None]:
        """Whether it is certain that the walk may take each edge, from its places; None: it may not."""
        if not self._explicit:
            return [True] * len(pairs)
        entries: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        for (number, entry), sure in frontier.items():
            entries[number][entry] = sure

        def ways_of(job: int, end: int) -> list[tuple[_Way, bool]]:
            """From which dataset and by which job it goes to which one, where that matters."""
            nears = entries[job] if job in self._explicit and 0 not in entries[job] else {}
            return [((near, job, end) if self._down else (end, job, near), nears[near]) for near in nears]

        ways = [ways_of(*pair) for pair in pairs]
        feeds = self._list_feeds({target for some in ways for (_, _, target), _ in some})

        def is_open(way: _Way) -> bool | None:
            is_said, fed = self._explicit[way[1]].get(way[2]), feeds.get(way, -1)
            if is_said is not None and fed > is_said:
                return True
            if is_said or (is_said is False and fed == 0) or not self._is_together(way):
                return None
            return is_said is None

        found: list[bool | None] = []
        for (near, _), some in zip(pairs, ways, strict=True):
            opened = [(is_sure, sure) for way, sure in some if (is_sure := is_open(way)) is not None]
            if some:
                found.append(any(all(both) for both in opened) if opened else None)
            else:
                found.append(any(entries[near].values()))
        return found

    def _is_together(self, way: _Way) -> bool:
        """Whether a run may have read the one and written the other."""
        source, job, target = way
        known = self._together.get(job)
        if known is None or source not in known.sources or target not in known.targets:
            return True
        return not known.pairs.isdisjoint(((source, target), (source, 0), (0, target)))

    def _list_feeds(self, targets: Iterable[int]) -> dict[_Way, float]:
        """How sure it is that a dataset comes from others by jobs, 0 to 1; more: an event says it."""
        rows = _ask_of(self._nodes.ask, _FEEDS, self._nodes.of(targets), self._as_of_us)
        self._nodes.settle({source for _, source, _, _ in rows})
        one = self._nodes.one
        return {(one[source], job, one[target]): fed for fed, source, job, target in sorted(rows)}


class _Together(NamedTuple):
    """What the runs of a job read and wrote, and of which pairs it was one run."""

    sources: set[int]
    targets: set[int]
    pairs: set[tuple[int, int]]


class EdgeRow(NamedTuple):
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


def list_ends(ask: Ask, end: str, numbers: Iterable[int], kind: EdgeKind) -> set[tuple[int, int]]:
    """The source and the target of each edge of a kind of which some nodes are its `source` or `target`."""
    return {(source, target) for source, target in _ask_of(ask, _ENDS.format(end), numbers, kind)}


def list_columns(ask: Ask, datasets: Iterable[Node]) -> list[tuple[str, str, str]]:
    """The known columns of all datasets with the names of some: namespace, name, column."""
    return [
        (space, name, part)
        for space, name, part in ask(_COLUMNS_OF, (as_json({one.name for one in datasets}),))
    ]


def nodes_with(ask: Ask, numbers: Iterable[int]) -> dict[int, Node]:
    """The nodes that there are with some numbers."""
    rows = _ask_of(ask, _NODES, numbers)
    return {number: Node.of_row(kind, namespace, name, part) for number, kind, namespace, name, part in rows}


def _ask_of(ask: Ask, statement: str, numbers: Iterable[int], *more: object) -> list[tuple[Any, ...]]:
    """Ask about some nodes: about none, nothing."""
    numbers = list(numbers)
    return ask(statement, (as_json(numbers), *more)) if numbers else []


_Place = tuple[int, int]
_Way = tuple[int, int, int]
_KINDS: Final = {str(kind): kind for kind in EdgeKind}
_DETAIL: Final = msgspec.json.Decoder(tuple[tuple[str, ...], bool])
