"""What a change of a dataset, a column or a job reaches, and whom to ask about it."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets.json_events import instant
from waybill.transport.counting import duration_text

from .asking import find_node, shown
from .elements import GUESS_BELOW, SAID, Ask, Node, NodeKind, as_json
from .properties import owners_in, properties_of, tier_in
from .runs import LastRun, last_runs
from .walking import COLUMNS, FLOW, Nodes, Walk

if TYPE_CHECKING:
    from .walking import EdgeRow

IMPACT_COLUMNS: Final = (
    *("distance", "kind", "name", "reached", "owners", "tier", "last run", "state", "columns"),
    "clock ahead",
)

# A guess says of no column that nothing comes from it.
_SILENT: Final = f"""
SELECT DISTINCT got.source, got.target FROM all_edge AS got
LEFT JOIN all_edge AS put ON put.source = got.target AND put.kind = 'write'
WHERE got.source IN (SELECT value FROM json_each(?)) AND got.kind = 'read' AND NOT EXISTS (
    SELECT 1 FROM all_belief AS told
    WHERE job = got.target AND of_columns AND dataset = ifnull(put.target, dataset)
    AND (told.analyzer IN {SAID} OR (confidence >= {GUESS_BELOW} AND EXISTS (
        SELECT 1 FROM all_edge AS named WHERE named.source = got.source AND named.kind = 'read'
        AND named.target = got.target AND named.analyzer = told.analyzer
    )))
)
"""  # noqa: S608 - texts of our own


class ImpactedNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A dataset or a job that a change reaches.

    Attributes:
        distance: how many edges away it is: one leads from a dataset to a job, or from a job to a dataset.
        node: the dataset or the job.
        is_certain: False of a dataset of which an analyzer has not found that it comes from what changes,
            although events name that among the inputs, and of what comes from it; and of a job that reads a
            dataset whose columns are reached, and tells nothing of these.
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

    def rows(self) -> Iterator[tuple[object, ...]]:
        """What it reaches as a table with the columns `IMPACT_COLUMNS`."""
        for one in self.nodes:
            reached = "yes" if one.is_certain else "maybe"
            owners, columns = ", ".join(one.owners), ", ".join(one.columns)
            run, ahead = one.last_run, ""
            began, state = ("", "") if run is None else (instant(run.started_ms), run.state)
            if run is not None and run.clock_ahead_s is not None:
                ahead = duration_text(run.clock_ahead_s)
            named = one.distance, one.node.kind, shown(one.node)
            yield *named, reached, owners, one.tier, began, state, columns, ahead


def find_impact(ask: Ask, name: str) -> Impact:
    """What a change of a dataset, a column or a job reaches; of a dataset, all its columns count.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    return impact_of(ask, find_node(ask, name))


def impact_of(ask: Ask, node: Node) -> Impact:
    """What a change of a node reaches; see `find_impact`."""
    found = _Impact(ask)
    if node.kind is NodeKind.COLUMN:
        found.follow_column(node)
    else:
        found.follow_flow(node)
    return Impact(node, found.list_nodes())


class _Impact:
    def __init__(self, ask: Ask) -> None:
        self._nodes = Nodes(ask)
        self._distances: dict[int, int] = {}
        self._uncertain: dict[int, int] = {}
        self._columns: defaultdict[int, set[str]] = defaultdict(set)

    def follow_column(self, column: Node) -> None:
        """Reach what comes from a column; a dataset or a job is as far as the nearest of its columns."""
        (start,) = self._nodes.take([column])
        one, dataset_of = self._nodes.one, self._nodes.dataset_of
        rows = self._follow_columns([column])
        edges = [(one[row.source], one[row.target], row.job) for row in rows]
        levels = self._find_levels(start, edges)
        for source, target, job in edges:
            if job:
                _reach(self._distances, job, 2 * levels[source] + 1)
            if target != start:
                _reach(self._distances, dataset_of(target), 2 * levels[target])
                self._take_columns([target])
        self._reach_silent({dataset_of(start): 0} | self._distances)

    def follow_flow(self, node: Node) -> None:
        """Reach what comes from a dataset or a job, and what of that comes from its columns."""
        walk = Walk(self._nodes, [node], down=True, kinds=FLOW)
        certain = walk.certain
        self._uncertain = {number: away for number, away in walk.distances.items() if away}
        self._distances = {number: away for number, away in self._uncertain.items() if number in certain}
        is_job = node.kind is NodeKind.JOB
        changed = [number for number, away in walk.distances.items() if away == is_job]
        columns = self._nodes.columns_of(changed)
        self._take_columns({self._nodes.one[row.target] for row in self._follow_columns(columns)})
        if is_job:
            self._take_columns(self._nodes.take(columns))

    def list_nodes(self) -> tuple[ImpactedNode, ...]:
        """All that was reached, the nearest first."""
        known, one = self._nodes.known, self._nodes.one
        distances = self._uncertain | self._distances
        self._nodes.settle(distances)
        owners: defaultdict[int, set[str]] = defaultdict(set)
        tiers: dict[int, str] = {}
        facets = properties_of(self._nodes.ask, self._nodes.of(distances), "ownership", "tags")
        for (number, key), facet in facets.items():
            if key == "ownership":
                owners[one[number]].update(owners_in(facet))
            elif (tier := tier_in(facet)) is not None:
                tiers[one[number]] = min(tier, tiers.get(one[number], tier))
        runs = last_runs(self._nodes.ask, [job for job in distances if known[job].kind is NodeKind.JOB])
        owned, columns = (
            {number: tuple(sorted(some)) for number, some in told.items()} for told in (owners, self._columns)
        )
        in_order = sorted((distance, known[number], number) for number, distance in distances.items())
        return tuple(
            ImpactedNode(
                distance,
                node,
                number in self._distances,
                owned.get(number, ()),
                tiers.get(number),
                columns.get(number, ()),
                runs.get(number),
            )
            for distance, node, number in in_order
        )

    def _follow_columns(self, columns: Iterable[Node]) -> Iterator[EdgeRow]:
        return chain.from_iterable(Walk(self._nodes, columns, down=True, kinds=COLUMNS).steps)

    def _take_columns(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if (node := self._nodes.known[number]).kind is NodeKind.COLUMN:
                self._columns[self._nodes.dataset_of(number)].add(node.column)

    def _find_levels(self, start: int, edges: Iterable[tuple[int, int, int]]) -> dict[int, int]:
        """How many writes away the target of each edge is; from a dataset to its own columns is none."""
        after: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        for source, target, _ in edges:
            after[source].append((target, source != self._nodes.dataset_of(target)))
        levels, queue = {start: 0}, deque([start])
        while queue:
            near = queue.popleft()
            for far, is_step in after[near]:
                level = levels[near] + is_step
                if level < levels.get(far, level + 1):
                    levels[far] = level
                    (queue.append if is_step else queue.appendleft)(far)
        return levels

    def _reach_silent(self, away: Mapping[int, int]) -> None:
        """Reach the jobs that read datasets and tell nothing of columns."""
        one = self._nodes.one
        rows = self._nodes.ask(_SILENT, (as_json(self._nodes.of(away)),))
        self._nodes.settle(job for _, job in rows)
        for dataset, job in rows:
            _reach(self._uncertain, job, away[one[dataset]] + 1)


def _reach(distances: dict[int, int], number: int, distance: int) -> None:
    distances[number] = min(distance, distances.get(number, distance))
