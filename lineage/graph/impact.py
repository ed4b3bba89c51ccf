"""What a change of a dataset, a column or a job reaches, and whom to ask about it."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

import msgspec

from .asking import find_node
from .columns import columns_of
from .elements import Node, NodeKind, as_json
from .properties import owners_in, properties_of, tier_in
from .runs import LastRun, last_runs
from .walking import COLUMNS, FLOW, Ask, Names, follow, nodes_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .elements import Edge

_SILENT: Final = """
SELECT DISTINCT source, target FROM all_edge
WHERE source IN (SELECT value FROM json_each(?)) AND kind = 'read'
AND NOT EXISTS (SELECT 1 FROM all_belief WHERE job = target AND of_columns)
"""


class ImpactedNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A dataset or a job that a change reaches.

    Attributes:
        distance: how many edges away it is: one leads from a dataset to a job, or from a job to a dataset.
        node: the dataset or the job.
        is_certain: False of a job that reads a dataset whose columns are reached, and tells nothing of
            columns: it, and what comes from it, may be reached.
        owners: those that the facet `ownership` names.
        tier: the value of its tag `tier`.
        columns: of a dataset, the columns that are reached, as far as the events tell of columns.
        last_run: of a job.
    """

    distance: int
    node: Node
    is_certain: bool = True
    owners: tuple[str, ...] = ()
    tier: str | None = None
    columns: tuple[str, ...] = ()
    last_run: LastRun | None = None


class Impact(msgspec.Struct, frozen=True):
    """What a change reaches.

    Attributes:
        node: the dataset, the column or the job that changes.
        nodes: what it reaches, the nearest first.
    """

    node: Node
    nodes: tuple[ImpactedNode, ...]


def find_impact(ask: Ask, name: str) -> Impact:
    """What a change of a dataset, a column or a job reaches; of a dataset, all its columns count.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    node = find_node(ask, name)
    found = _Impact(ask)
    if node.kind is NodeKind.COLUMN:
        found.follow_column(node)
    else:
        found.follow_flow(node)
    return Impact(node, found.nodes())


class _Impact:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._names = Names(ask)
        self._distances: dict[Node, int] = {}
        self._uncertain: dict[Node, int] = {}
        self._columns: defaultdict[int, set[str]] = defaultdict(set)

    def follow_column(self, column: Node) -> None:
        """Reach what comes from a column; a dataset or a job is as far as the nearest of its columns."""
        edges = follow(self._ask, [column], down=True, depth=None, kinds=COLUMNS).edges
        self._take_columns(edge.target for edge in edges if edge.target != column)
        levels = _levels(column, edges)
        for edge in edges:
            if edge.job is not None:
                self._reach(edge.job, 2 * levels[edge.source] + 1)
            if edge.target != column:
                self._reach(edge.target.dataset, 2 * levels[edge.target])
        self._reach_silent({column.dataset: 0} | self._distances)

    def follow_flow(self, node: Node) -> None:
        """Reach what comes from a dataset or a job, and what of that comes from its columns."""
        reached = follow(self._ask, [node], down=True, depth=None, kinds=FLOW).nodes
        self._distances = {one.node: one.distance for one in reached}
        is_job = node.kind is NodeKind.JOB
        begun = columns_of(
            self._ask, self._names, [one.node for one in reached if one.distance == 1] if is_job else [node]
        )
        edges = follow(self._ask, begun, down=True, depth=None, kinds=COLUMNS).edges
        self._take_columns([*(edge.target for edge in edges), *(begun if is_job else ())])

    def nodes(self) -> tuple[ImpactedNode, ...]:
        """All that was reached, the nearest first."""
        distances = self._uncertain | self._distances
        numbers = {node.number: node for node in distances}
        ones = self._names.settle(
            {number for number, node in numbers.items() if node.kind is NodeKind.DATASET}
        )
        one = {number: self._names.one(number) for number in self._names.of(ones)}
        owners: defaultdict[int, set[str]] = defaultdict(set)
        tiers: dict[int, str] = {}
        facets = properties_of(self._ask, numbers.keys() | one.keys(), "ownership", "tags")
        for (number, key), facet in facets.items():
            place = one.get(number, number)
            if key == "ownership":
                owners[place].update(owners_in(facet))
            elif (tier := tier_in(facet)) is not None:
                tiers[place] = min(tier, tiers.get(place, tier))
        runs = last_runs(self._ask, [number for number, node in numbers.items() if node.kind is NodeKind.JOB])
        found = []
        for number, node in numbers.items():
            place = one.get(number, number)
            owned, columns = owners.get(place, ()), self._columns.get(place, ())
            told = (tuple(sorted(owned)), tiers.get(place), tuple(sorted(columns)), runs.get(number))
            found.append(ImpactedNode(distances[node], node, node in self._distances, *told))
        return tuple(sorted(found, key=lambda reached: (reached.distance, reached.node)))

    def _reach(self, node: Node, distance: int) -> None:
        self._distances[node] = min(distance, self._distances.get(node, distance))

    def _take_columns(self, reached: Iterable[Node]) -> None:
        columns = {node: node.dataset.number for node in reached if node.kind is NodeKind.COLUMN}
        self._names.settle(set(columns.values()))
        for column, number in columns.items():
            self._columns[self._names.one(number)].add(column.column)

    def _reach_silent(self, datasets: Mapping[Node, int]) -> None:
        """Reach the jobs that read datasets and tell nothing of columns."""
        numbers = {node.number: away for node, away in datasets.items() if node.kind is NodeKind.DATASET}
        self._names.settle(set(numbers))
        away = {self._names.one(number): distance for number, distance in numbers.items()}
        rows = self._ask(_SILENT, (as_json(self._names.of(away)),))
        jobs = nodes_with(self._ask, {job for _, job in rows})
        for dataset, job in rows:
            distance = away[self._names.one(dataset)] + 1
            self._uncertain[jobs[job]] = min(distance, self._uncertain.get(jobs[job], distance))


def _levels(column: Node, edges: Iterable[Edge]) -> dict[Node, int]:
    """How many writes away the target of each edge is; from a dataset to its own columns is none."""
    after: defaultdict[Node, list[tuple[Node, bool]]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append((edge.target, edge.source != edge.target.dataset))
    levels, queue = {column: 0}, deque([column])
    while queue:
        near = queue.popleft()
        for far, is_step in after[near]:
            level = levels[near] + is_step
            if level < levels.get(far, level + 1):
                levels[far] = level
                (queue.append if is_step else queue.appendleft)(far)
    return levels
