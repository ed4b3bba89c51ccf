"""Asking the graph: what is up and down from a node, and how a job ran last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets import FinalState, RunState, merge_states
from waybill.facets.event import dataset_text
from waybill.transport.errors import NotFoundError

from .elements import Edge, EdgeKind, Node, NodeKind
from .storing import GRAPH_TABLES, OF_FILES, LastFile

if TYPE_CHECKING:
    from collections.abc import Collection

_VIEW: Final = "CREATE TEMP VIEW all_{0} AS SELECT * FROM main.{0} UNION ALL SELECT * FROM disk.{0};\n"
GRAPH_VIEWS: Final = "".join(map(_VIEW.format, GRAPH_TABLES))
"""The graph of an index and of what is in memory, as one."""

FLOW: Final = (EdgeKind.READ, EdgeKind.WRITE)
_NAMED_MAX: Final = 5
_NAME_CHARS_MAX: Final = 4_096
"""No name is longer: each character may part a namespace from a name."""
_NAME_SHOWN_CHARS_MAX: Final = 200
_DOTS_MAX: Final = 8
"""The most dots that are tried as the one before a column: each takes a search for its dataset."""
COLUMNS: Final = (EdgeKind.DERIVE, EdgeKind.INFLUENCE)

_ALONG: Final = """
SELECT source, kind, target, min(place) FROM all_edge
WHERE {} IN (SELECT value FROM json_each(?)) AND kind IN (SELECT value FROM json_each(?))
GROUP BY source, kind, target
"""
_NODES: Final = """
SELECT DISTINCT number, kind, namespace, name, column_name FROM all_node
WHERE number IN (SELECT value FROM json_each(?))
"""
_NAMED: Final = "SELECT DISTINCT kind, namespace, name FROM all_node WHERE name = ? AND kind <> 'column'"
_ENDING: Final = """
SELECT DISTINCT kind, namespace, name FROM all_node
WHERE rtrim(name, '/') LIKE '%/' || ? ESCAPE '\\' AND kind <> 'column'
"""
_RUNS: Final = "SELECT run, state FROM all_job_run WHERE job = ? ORDER BY last_us DESC LIMIT 4"

Ask = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
"""Executes a statement with its bindings."""


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest run of a job.

    Attributes:
        run: its id; for a job whose runs are files, the did.
        state: its final state; RUNNING: it has not ended.
        started_ms: when it began, in epoch milliseconds.
        ended_ms: when it ended; None: it has not.
    """

    run: str
    state: str
    started_ms: int
    ended_ms: int | None


class ReachedNode(msgspec.Struct, frozen=True, order=True):
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


class Dependencies(msgspec.Struct, frozen=True):
    """What a dataset or a job depends on, and what depends on it.

    Attributes:
        node: the dataset or the job.
        upstream: where its data comes from.
        downstream: where its data goes.
        last_run: the latest run of the job; of a dataset, of the jobs that write it; None: there is none.
        last_job: the job of that run.
    """

    node: Node
    upstream: Reach
    downstream: Reach
    last_run: LastRun | None = None
    last_job: Node | None = None


def find_nodes(ask: Ask, text: str) -> list[Node]:
    """The datasets and jobs with a name: with its namespace, without it, or only its last part."""
    if exact := _with_numbers(ask, {node.number for node in _spellings(text)}):
        return sorted(exact.values())
    found = ask(_NAMED, (text,))
    if not found:
        pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        found = ask(_ENDING, (pattern,))
    return sorted(Node(NodeKind(kind), namespace, name) for kind, namespace, name in found)


def follow(ask: Ask, start: Node, *, down: bool, depth: int | None, kinds: Collection[EdgeKind]) -> Reach:
    """Follow the edges of some kinds from a node, with the flow of data or against it.

    Args:
        ask: executes statements.
        start: the node.
        down: with the flow.
        depth: how many edges at most; None: all.
        kinds: the kinds.
    """
    near = "source" if down else "target"
    names = _Names(ask)
    origin = names.settle({start.number})
    frontier, distance = origin, 0
    distances = dict.fromkeys(origin, 0)
    edges: dict[tuple[int, str, int], tuple[int, int]] = {}
    while frontier and (depth is None or distance < depth):
        distance += 1
        rows = ask(_ALONG.format(near), (_json(names.of(frontier)), _json(kinds)))
        others = names.settle({row[2] if down else row[0] for row in rows})
        for source, kind, target, place in rows:
            edges.setdefault((names.one(source), kind, names.one(target)), (distance, place))
        frontier = others - distances.keys()
        distances |= dict.fromkeys(frontier, distance)
    nodes = _with_numbers(ask, distances) | dict.fromkeys(origin, start)
    told = sorted(
        (place, Edge(nodes[source], EdgeKind(kind), nodes[target]))
        for (source, kind, target), place in edges.items()
    )
    away = {nodes[number]: distance for number, distance in distances.items()}
    reached = dict.fromkeys(edge.target if down else edge.source for _, edge in told)
    by_distance = sorted((node for node in reached if away[node]), key=lambda node: away[node])
    return Reach(
        tuple(ReachedNode(away[node], node) for node in by_distance), tuple(edge for _, edge in told)
    )


def find_dependencies(ask: Ask, name: str, *, up: int | None, down: int | None) -> Dependencies:
    """What a dataset or a job depends on, and what depends on it.

    Args:
        ask: executes statements.
        name: its name, with its namespace, without it, or only its last part.
        up: how many edges upstream at most; None: all.
        down: how many downstream.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    named, kinds = (find_nodes(ask, name) if len(name) <= _NAME_CHARS_MAX else []), FLOW
    if not named and len(name) <= _NAME_CHARS_MAX:
        named, kinds = _find_columns(ask, name), COLUMNS
    if not named:
        raise NotFoundError(f"no dataset, column or job has the name {name[:_NAME_SHOWN_CHARS_MAX]!r}")
    jobs = [node for node in named if node.kind is NodeKind.JOB]
    if len({(node.namespace, node.name) for node in named}) == len(jobs) == 1:
        named = jobs  # a file's flow is a job with the name of the dataset that it reads
    if len(named) > 1 and len(stands_for := _Names(ask).settle({node.number for node in named})) == 1:
        named = [node for node in named if node.number in stands_for]  # all are names of one dataset
    if len(named) > 1:
        several = ", ".join(shown(node) for node in named[:_NAMED_MAX])
        raise NotFoundError(f"{len(named)} nodes have the name {name!r}; give one of {several}")
    (node,) = named
    upstream = follow(ask, node, down=False, depth=up, kinds=kinds)
    downstream = follow(ask, node, down=True, depth=down, kinds=kinds)
    jobs = [node]
    if node.kind is NodeKind.DATASET:
        writers = follow(ask, node, down=False, depth=1, kinds=FLOW)
        jobs = [one.node for one in writers.nodes]
    runs = [(run, job) for job in jobs if (run := last_run(ask, job)) is not None]
    latest = max(runs, key=lambda one: (one[0].started_ms, one[1]), default=(None, None))
    return Dependencies(node, upstream, downstream, *latest)


def _find_columns(ask: Ask, text: str) -> list[Node]:
    """The columns with a name: the dataset's in any form, a dot, and the column's, with few dots in it."""
    found: set[Node] = set()
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in dots[-_DOTS_MAX:]:
        datasets = [node for node in find_nodes(ask, text[:at]) if node.kind is NodeKind.DATASET]
        columns = {dataset.with_column(text[at + 1 :]).number for dataset in datasets}
        found.update(_with_numbers(ask, columns).values())
    return sorted(found)


def shown(node: Node) -> str:
    """A node as one text: a dataset as records have it, a column with a dot and its name behind that."""
    if node.kind is NodeKind.JOB:
        return f"{node.namespace}/{node.name}"
    dataset = dataset_text(node.namespace, node.name)
    return f"{dataset}.{node.column}" if node.column else dataset


def last_run(ask: Ask, job: Node) -> LastRun | None:
    """The latest run of a job; None if it has none."""
    runs: dict[str, RunState] = {}
    files: list[LastFile] = []
    for run, state in ask(_RUNS, (job.number,)):
        if run == OF_FILES:
            files.append(_FILE.decode(state))
        else:
            known = _STATE.decode(state)
            runs[run] = merge_states(known, runs[run]) if run in runs else known
    told = [_of_run(state) for state in runs.values()]
    told += [
        LastRun(run=did, state=state, started_ms=began_us // 1_000, ended_ms=ended_us // 1_000)
        for ended_us, began_us, state, did in map(msgspec.structs.astuple, files)
    ]
    return max(told, key=lambda run: (run.started_ms, run.run), default=None)


def _of_run(state: RunState) -> LastRun:
    ending = state.ending
    started_us = state.begun_us or state.created_us
    if ending is None or ending.time_us < state.begun_us:
        return LastRun(run=state.run_id, state="RUNNING", started_ms=started_us // 1_000, ended_ms=None)
    return LastRun(
        run=state.run_id,
        state=str(_FINAL_STATES[ending.severity]),
        started_ms=started_us // 1_000,
        ended_ms=ending.time_us // 1_000,
    )


class _Names:
    """The numbers of datasets that have several names; the one that was seen first stands for all."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._one: dict[int, int] = {}
        self._all: dict[int, set[int]] = {}

    def settle(self, numbers: set[int]) -> set[int]:
        """The nodes that stand for some; their other names are looked up."""
        same: defaultdict[int, set[int]] = defaultdict(set)
        frontier = numbers - self._one.keys()
        known = set(frontier)
        while frontier:
            rows = [
                row
                for end in ("source", "target")
                for row in self._ask(_ALONG.format(end), (_json(frontier), _json([EdgeKind.SAME])))
            ]
            for source, _, target, _ in rows:
                same[source].add(target)
                same[target].add(source)
            frontier = {end for source, _, target, _ in rows for end in (source, target)} - known
            known |= frontier
        for number in sorted(numbers):
            if number not in self._one:
                self._stand_for(number, same)
        return {self._one[number] for number in numbers}

    def one(self, number: int) -> int:
        """The node that stands for one."""
        return self._one[number]

    def of(self, numbers: Iterable[int]) -> set[int]:
        """All names of the nodes that some stand for."""
        return {name for number in numbers for name in self._all[number]}

    def _stand_for(self, number: int, same: Mapping[int, set[int]]) -> None:
        group, frontier = {number}, {number}
        while frontier:
            frontier = {other for one in frontier for other in same.get(one, ())} - group
            group |= frontier
        self._all[number] = group
        self._one |= dict.fromkeys(group, number)


def _with_numbers(ask: Ask, numbers: Iterable[int]) -> dict[int, Node]:
    rows = ask(_NODES, (_json(numbers),))
    return {number: Node(NodeKind(kind), *told) for number, kind, *told in rows}


def _spellings(text: str) -> Iterable[Node]:
    """The datasets and jobs whose namespace and name, put together, give a text."""
    for at, character in enumerate(text):
        if character in "/:":
            for name in {text[at + 1 :], text[at:]}:
                for kind in (NodeKind.DATASET, NodeKind.JOB):
                    yield Node(kind, text[:at], name)


def _json(values: Iterable[object]) -> str:
    return msgspec.json.encode(list(values)).decode()


_FINAL_STATES: Final = (FinalState.ERROR, FinalState.CANCELLED, FinalState.COMPLETE)
_STATE: Final = msgspec.msgpack.Decoder(RunState)
_FILE: Final = msgspec.msgpack.Decoder(LastFile)
