"""Asking the graph: what is up and down from a node, and how a job ran last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import FINAL_STATES, RunState, merge_states
from waybill.facets.event import dataset_text
from waybill.transport.errors import NotFoundError

from .batch import LastFile, last_part_of
from .elements import Node, NodeKind
from .naming import locate, trim_name
from .observing import NAME_CHARS_MAX
from .storing import OF_FILES
from .walking import ALWAYS_US, COLUMNS, FLOW, Ask, Names, Reach, as_json, follow, nodes_with

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMED_MAX: Final = 5
_NAME_SHOWN_CHARS_MAX: Final = 200
_DOTS_MAX: Final = 8
"""The most dots that are tried as the one before a column: each takes a search for its dataset."""
_NAMED: Final = """
SELECT DISTINCT number FROM all_node WHERE name = ? AND kind IN ('dataset', 'job', 'resource')
"""
_ENDING: Final = """
SELECT DISTINCT number FROM all_node
WHERE last_part = ? AND '/' || rtrim(name, '/') LIKE '%/' || ? ESCAPE '\\'
AND kind IN ('dataset', 'job', 'resource')
"""
_HOLDING: Final = (
    "SELECT source FROM all_edge WHERE target IN (SELECT value FROM json_each(?)) AND kind = 'hold'"
)
_RULES: Final = "SELECT rule FROM disk.trimmer ORDER BY rowid"
_RUNS: Final = "SELECT run, state FROM all_job_run WHERE job = ? ORDER BY last_us DESC LIMIT ?"


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
    """The datasets and jobs with a name: with its namespace, without it, or only its last part.

    The name of a part of a dataset, such as a partition, is one of the dataset.
    """
    if exact := _wholes(ask, {node.number for node in _spellings(text)}):
        return exact
    text = text.rstrip("/") or text
    found = ask(_NAMED, (text,))
    if not found:
        pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        found = ask(_ENDING, (last_part_of(text), pattern))
    return _wholes(ask, [number for (number,) in found])


def _wholes(ask: Ask, numbers: Iterable[int]) -> list[Node]:
    """The nodes with some numbers; of a part of a dataset, the dataset."""
    nodes = nodes_with(ask, numbers)
    parts = [number for number, node in nodes.items() if node.kind is NodeKind.RESOURCE]
    holding = nodes_with(ask, [number for (number,) in ask(_HOLDING, (as_json(parts),))]) if parts else {}
    return sorted(
        {node for node in nodes.values() if node.kind is not NodeKind.RESOURCE} | {*holding.values()}
    )


def _untold_part(ask: Ask, text: str) -> list[Node]:
    """The dataset that a path belongs to by the rules, although no event named that path."""
    rules = tuple(rule for (rule,) in ask(_RULES, ()))
    path = f"file:{text}" if text.startswith("/") else text
    return _wholes(ask, {node.number for node in _spellings(path, rules)})


def find_node(ask: Ask, name: str) -> Node:
    """The dataset, column or job with a name: with its namespace, without it, or only its last part.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    ways = (find_nodes, _find_columns, _untold_part) if len(name) <= NAME_CHARS_MAX else ()
    named = next(filter(None, (find(ask, name) for find in ways)), [])
    if not named:
        raise NotFoundError(f"no dataset, column or job has the name {name[:_NAME_SHOWN_CHARS_MAX]!r}")
    jobs = [node for node in named if node.kind is NodeKind.JOB]
    if len({(node.namespace, node.name) for node in named}) == len(jobs) == 1:
        return jobs[0]  # a file's flow is a job with the name of the dataset that it reads
    if len(named) > 1 and len(stands_for := Names(ask).settle({node.number for node in named})) == 1:
        return next(node for node in named if node.number in stands_for)  # all are names of one dataset
    if len(named) > 1:
        several = ", ".join(shown(node) for node in named[:_NAMED_MAX])
        raise NotFoundError(f"{len(named)} nodes have the name {name!r}; give one of {several}")
    return named[0]


def find_dependencies(
    ask: Ask, name: str, *, up: int | None, down: int | None, as_of_ms: int | None = None
) -> Dependencies:
    """What a dataset, column or job depends on, and what depends on it.

    Args:
        ask: executes statements.
        name: as `find_node` takes it.
        up: how many edges upstream at most; None: all.
        down: how many downstream.
        as_of_ms: leave out what was told first after this instant, in epoch milliseconds.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    node = find_node(ask, name)
    kinds = COLUMNS if node.kind is NodeKind.COLUMN else FLOW
    as_of_us = ALWAYS_US if as_of_ms is None else as_of_ms * 1_000
    upstream = follow(ask, [node], down=False, depth=up, kinds=kinds, as_of_us=as_of_us)
    downstream = follow(ask, [node], down=True, depth=down, kinds=kinds, as_of_us=as_of_us)
    jobs = [node]
    if node.kind is NodeKind.DATASET:
        writers = follow(ask, [node], down=False, depth=1, kinds=FLOW, as_of_us=as_of_us)
        jobs = [one.node for one in writers.nodes]
    runs = [(run, job) for job in jobs if (run := last_run(ask, job, as_of_us)) is not None]
    latest = max(runs, key=lambda one: (one[0].started_ms, one[1]), default=(None, None))
    return Dependencies(node, upstream, downstream, *latest)


def _find_columns(ask: Ask, text: str) -> list[Node]:
    """The columns with a name: the dataset's in any form, a dot, and the column's, with few dots in it."""
    found: set[Node] = set()
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in dots[-_DOTS_MAX:]:
        datasets = [node for node in find_nodes(ask, text[:at]) if node.kind is NodeKind.DATASET]
        columns = {dataset.with_column(text[at + 1 :]).number for dataset in datasets}
        found.update(nodes_with(ask, columns).values())
    return sorted(found)


def shown(node: Node) -> str:
    """A node as one text: a dataset as records have it, a column with a dot and its name behind that."""
    if node.kind is NodeKind.JOB:
        return f"{node.namespace}/{node.name}"
    dataset = dataset_text(node.namespace, node.name)
    return f"{dataset}.{node.column}" if node.column else dataset


def last_run(ask: Ask, job: Node, as_of_us: int = ALWAYS_US) -> LastRun | None:
    """The latest run of a job that began by an instant; None if it has none.

    Of the files of a flow only the last is known: if it began later, there is none.
    """
    runs: dict[str, RunState] = {}
    files: list[LastFile] = []
    limit = 4 if as_of_us == ALWAYS_US else -1  # of two databases; the latest two may be one run
    for run, state in ask(_RUNS, (job.number, limit)):
        if run == OF_FILES:
            files.append(_FILE.decode(state))
        else:
            known = _STATE.decode(state)
            runs[run] = merge_states(known, runs[run]) if run in runs else known
    told = [_of_run(state, as_of_us) for state in runs.values()]
    told += [
        LastRun(run=did, state=state, started_ms=began_us // 1_000, ended_ms=ended_us // 1_000)
        for ended_us, began_us, state, did in map(msgspec.structs.astuple, files)
    ]
    begun = (run for run in told if run.started_ms * 1_000 <= as_of_us)
    return max(begun, key=lambda run: (run.started_ms, run.run), default=None)


def _of_run(state: RunState, as_of_us: int) -> LastRun:
    ending = state.ending
    started_us = state.begun_us or state.created_us
    is_open = ending is None or ending.time_us < state.begun_us or ending.time_us > as_of_us
    return LastRun(
        run=state.run_id,
        state="RUNNING" if ending is None or is_open else str(FINAL_STATES[ending.severity]),
        started_ms=started_us // 1_000,
        ended_ms=None if ending is None or is_open else ending.time_us // 1_000,
    )


def _spellings(text: str, rules: tuple[str, ...] = ()) -> Iterable[Node]:
    """The datasets, their parts, and the jobs whose namespace and name, put together, give a text."""
    for at, character in enumerate(text):
        if character in "/:":
            for name in {text[at + 1 :], text[at:]}:
                yield Node(NodeKind.JOB, text[:at], name)
                yield Node(NodeKind.DATASET, text[:at], name)
                namespace, located = locate(text[:at], name)
                yield Node(NodeKind.DATASET, namespace, trim_name(namespace, located, rules))
                yield Node(NodeKind.RESOURCE, namespace, located)


_STATE: Final = msgspec.msgpack.Decoder(RunState)
_FILE: Final = msgspec.msgpack.Decoder(LastFile)
