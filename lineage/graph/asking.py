"""Asking the graph: what is up and down from a node, and how a job ran last."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets import FINAL_STATES, RunState, merge_states
from waybill.facets.event import dataset_text
from waybill.transport.errors import NotFoundError

from .batch import LastFile, last_part_of
from .columns import DatasetColumns, find_columns
from .elements import Edge, Node, NodeKind, as_json
from .naming import locate, trim_name
from .observing import NAME_CHARS_MAX
from .properties import schema_columns
from .related import find_related
from .storing import OF_FILES
from .walking import ALWAYS_US, COLUMNS, FLOW, Ask, Names, Reach, follow, nodes_with

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
_RUNS: Final = "SELECT run, state, last_us FROM all_job_run WHERE job = ? ORDER BY last_us DESC LIMIT ?"
_RUNS_OF_ALL: Final = """
SELECT run, state, last_us, job FROM json_each(?1) JOIN all_job_run ON job = value
WHERE last_us >= (
    SELECT min(last_us)
    FROM (SELECT last_us FROM all_job_run WHERE job = value ORDER BY last_us DESC LIMIT ?2) AS latest
)
ORDER BY job, last_us DESC
"""
_ALL_RUNS: Final = """
SELECT run, state, last_us, job FROM all_job_run WHERE job IN (SELECT value FROM json_each(?)) ORDER BY job
"""
_LATEST: Final = 4
"""So many rows are read of a job: of two databases, of which the latest two may be one run."""


class LastRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        columns: those of the datasets, and what they come from, if that was asked.
        related: the edges of the node along which no data flow, the one that was told last first: of jobs
            that start it, wait for it, or the like, of its owners, and to its versions.
    """

    node: Node
    upstream: Reach
    downstream: Reach
    last_run: LastRun | None = None
    last_job: Node | None = None
    columns: tuple[DatasetColumns, ...] = ()
    related: tuple[Edge, ...] = ()


class NameList(msgspec.Struct, frozen=True):
    """The names of a dataset.

    Attributes:
        node: the dataset, as it was asked about.
        names: all its names, as the facet `symlinks` has told them.
    """

    node: Node
    names: tuple[Node, ...]


def find_nodes(ask: Ask, text: str) -> list[Node]:
    """The datasets and jobs with a name: with its namespace, without it, or only its last part.

    The name of a part of a dataset, such as a partition, is one of the dataset.
    """
    if exact := _wholes(ask, {node.number for node in _spellings(text)}):
        return exact
    text = text.rstrip("/") or text
    if named := _wholes(ask, [number for (number,) in ask(_NAMED, (text,))]):
        return named
    pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return _wholes(ask, [number for (number,) in ask(_ENDING, (last_part_of(text), pattern))])


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


def find_names(ask: Ask, name: str) -> NameList:
    """All names of a dataset.

    Raises:
        NotFoundError: no dataset has this name, or several have it.
    """
    node = find_node(ask, name)
    if node.kind is not NodeKind.DATASET:
        raise NotFoundError(f"{shown(node)} is a {node.kind}; give the name of a dataset")
    names = Names(ask)
    named = nodes_with(ask, names.of(names.settle({node.number})))
    return NameList(node, tuple(sorted(named.values())))


def find_dependencies(
    ask: Ask,
    name: str,
    *,
    up: int | None,
    down: int | None,
    as_of_ms: int | None = None,
    with_columns: bool = False,
) -> Dependencies:
    """What a dataset, column or job depends on, and what depends on it.

    Args:
        ask: executes statements.
        name: as `find_node` takes it.
        up: how many edges upstream at most; None: all.
        down: how many downstream.
        as_of_ms: leave out what was told first after this instant, in epoch milliseconds.
        with_columns: whether to add the columns of the datasets, and what they come from.

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
    run, job = max(runs, key=lambda one: (one[0].started_ms, one[1]), default=(None, None))
    datasets = dict.fromkeys([node, *(one.node for one in (*upstream.nodes, *downstream.nodes))])
    columns = find_columns(ask, datasets, as_of_us) if with_columns else ()
    return Dependencies(node, upstream, downstream, run, job, columns, find_related(ask, node, as_of_us))


def _find_columns(ask: Ask, text: str) -> list[Node]:
    """The columns with a name: the dataset's in any form, a dot, and the column's, with few dots in it."""
    found: set[Node] = set()
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in dots[-_DOTS_MAX:]:
        datasets = [node for node in find_nodes(ask, text[:at]) if node.kind is NodeKind.DATASET]
        columns = {dataset.with_column(text[at + 1 :]) for dataset in datasets}
        found.update(nodes_with(ask, {column.number for column in columns}).values())
        found.update(one for one in columns - found if one.column in schema_columns(ask, one.dataset))
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
    limit = _LATEST if as_of_us == ALWAYS_US else -1
    return _latest(ask(_RUNS, (job.number, limit)), as_of_us)


def last_runs(ask: Ask, jobs: Iterable[Node]) -> dict[Node, LastRun]:
    """The latest run of each of some jobs, as `last_run` gives it; a job that has none is left out."""
    numbers = {job.number: job for job in jobs}
    rows = ask(_RUNS_OF_ALL, (as_json(numbers), _LATEST))
    found = ((job, _latest(some, ALWAYS_US)) for job, some in groupby(rows, itemgetter(3)))
    return {numbers[job]: run for job, run in found if run is not None}


def ended_runs(ask: Ask, jobs: Iterable[int]) -> dict[int, list[LastRun]]:
    """By job, given by number, all its runs that have ended; of files, only the last is known."""
    rows = ask(_ALL_RUNS, (as_json(jobs),))
    told = {
        job: [_told(run, states, ALWAYS_US) for run, _, states in _by_run(some)]
        for job, some in groupby(rows, itemgetter(3))
    }
    return {job: [run for run in runs if run.ended_ms is not None] for job, runs in told.items()}


def _latest(rows: Iterable[tuple[Any, ...]], as_of_us: int) -> LastRun | None:
    """The latest run of rows of which the one that was told last comes first."""
    latest: LastRun | None = None
    for run, last_us, states in _by_run(rows):
        if latest is not None and last_us // 1_000 < latest.started_ms:
            break  # no run begins after what was told last of it
        told = _told(run, states, as_of_us)
        is_later = latest is None or (told.started_ms, told.run) > (latest.started_ms, latest.run)
        if is_later and told.started_ms * 1_000 <= as_of_us:
            latest = told
    return latest


def _by_run(rows: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, int, list[bytes]]]:
    """Each run of rows once, when it was told of in its first row, and its states in all of them."""
    runs: dict[str, tuple[str, int, list[bytes]]] = {}
    for run, state, last_us, *_ in rows:
        runs.setdefault(run, (run, last_us, []))[2].append(state)
    return runs.values()


def _told(run: str, states: Iterable[bytes], as_of_us: int) -> LastRun:
    if run == OF_FILES:
        return _of_file(max(map(_FILE.decode, states)))
    return _of_run(merge_states(*map(_STATE.decode, states)), as_of_us)


def _of_file(file: LastFile) -> LastRun:
    return LastRun(
        run=file.did,
        state=file.final_state,
        started_ms=file.began_us // 1_000,
        ended_ms=file.ended_us // 1_000,
    )


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
