"""What happened lately: how jobs ran, and of which datasets the columns changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from .elements import EdgeKind, Node
from .impact import impact_of
from .properties import types_in
from .runs import LastRun, recent_runs
from .walking import list_ends, nodes_with

if TYPE_CHECKING:
    from .elements import Ask

RunStateName = Literal["RUNNING", "COMPLETE", "ERROR", "FILTERED", "CANCELLED", "SPLIT"]
"""A final state, or RUNNING: it has not ended."""

_CHANGES_MAX: Final = 50
"""The impact of so many changes is found, the newest."""

_SCHEMAS: Final = """
SELECT node, first_us, value FROM all_property WHERE key = 'schema' AND node IN (
    SELECT node FROM all_property WHERE key = 'schema'
    GROUP BY node HAVING count(DISTINCT digest) > 1 AND max(first_us) >= ?
)
ORDER BY node, first_us
"""


class RecentRun(msgspec.Struct, frozen=True):
    """A run, and the datasets of its job.

    Attributes:
        job: its job.
        run: the run; of a job whose runs are files, the file that ended last.
        inputs: the datasets that the job reads, in this run or others.
        outputs: the datasets that it writes.
    """

    job: Node
    run: LastRun
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


class RecentRuns(msgspec.Struct, frozen=True):
    """Runs, the one that was told of last first."""

    runs: tuple[RecentRun, ...]


class SchemaChange(msgspec.Struct, frozen=True):
    """A dataset whose columns are not those that were told before.

    Attributes:
        dataset: the dataset.
        changed_ms: when its new columns were told first, in epoch milliseconds.
        added: the columns that it did not have.
        removed: the columns that it has no more.
        retyped: the columns that have another type.
        reached: how many datasets and jobs come from it.
        owners: their owners.
    """

    dataset: Node
    changed_ms: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    retyped: tuple[str, ...]
    reached: int
    owners: tuple[str, ...]


class SchemaChanges(msgspec.Struct, frozen=True):
    """The newest changes, the last one first."""

    changes: tuple[SchemaChange, ...]


def list_recent_runs(ask: Ask, since_ms: int, state: RunStateName | None, limit: int) -> RecentRuns:
    """The newest runs of which something was told since an instant; with a state, only those."""
    found = recent_runs(ask, since_ms * 1_000)
    chosen = list(islice(((job, run) for job, run in found if state in {None, run.state}), limit))
    jobs = {job for job, _ in chosen}
    named = nodes_with(ask, jobs)
    inputs = _nodes_by(ask, ((job, node) for node, job in list_ends(ask, "target", jobs, EdgeKind.READ)))
    outputs = _nodes_by(ask, list_ends(ask, "source", jobs, EdgeKind.WRITE))
    return RecentRuns(
        tuple(RecentRun(named[job], run, inputs.get(job, ()), outputs.get(job, ())) for job, run in chosen)
    )


def list_schema_changes(ask: Ask, since_ms: int) -> SchemaChanges:
    """The datasets whose columns changed since an instant, in epoch milliseconds, and what that reaches."""
    told: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for node, first_us, facet in ask(_SCHEMAS, (since_ms * 1_000,)):
        told[node].append((first_us, facet))
    newest = sorted(told.items(), key=lambda one: one[1][-1][0], reverse=True)[:_CHANGES_MAX]
    named = nodes_with(ask, (node for node, _ in newest))
    return SchemaChanges(tuple(_changes(ask, ((named[node], some) for node, some in newest))))


def _changes(ask: Ask, datasets: Iterable[tuple[Node, list[tuple[int, str]]]]) -> Iterator[SchemaChange]:
    for dataset, told in datasets:
        before, (first_us, now) = types_in(told[-2][1]), told[-1]
        types = types_in(now)
        if types == before:
            continue
        reached = impact_of(ask, dataset).nodes
        yield SchemaChange(
            dataset,
            first_us // 1_000,
            tuple(name for name in types if name not in before),
            tuple(name for name in before if name not in types),
            tuple(name for name in types if name in before and types[name] != before[name]),
            len(reached),
            tuple(sorted({owner for one in reached for owner in one.owners})),
        )


def _nodes_by(ask: Ask, pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[Node, ...]]:
    """By the first of each pair, the nodes that are its second."""
    grouped: defaultdict[int, list[int]] = defaultdict(list)
    for one, other in pairs:
        grouped[one].append(other)
    nodes = nodes_with(ask, {number for some in grouped.values() for number in some})
    return {one: tuple(sorted(nodes[number] for number in some)) for one, some in grouped.items()}
