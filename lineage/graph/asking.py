"""Asking the graph: what is up and down from a node, and how a job ran last."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from waybill.facets.event import dataset_text
from waybill.transport.errors import NotFoundError

from .columns import DatasetColumns, find_columns
from .elements import Ask, Edge, EdgeKind, Node, NodeKind
from .naming import is_caseless, locate, trim_name
from .observing import NAME_CHARS_MAX
from .properties import columns_in, owners_in, properties_of
from .runs import LastRun, last_runs
from .walking import ALWAYS_US, COLUMNS, FLOW, Nodes, Reach, Walk, list_ends, nodes_with

_TYPES: Final = (NodeKind.DATASET, NodeKind.JOB, NodeKind.COLUMN)
_NAMED_MAX: Final = 5
_NAME_SHOWN_CHARS_MAX: Final = 200
_DOTS_MAX: Final = 8
"""The most dots that are tried as the one before a column: each takes a search for its dataset."""
_SPLITS_MAX: Final = 32
"""The most slashes and colons that are tried as the end of a namespace, from the first on."""
_SPLIT: Final = re.compile("[/:]")
_NAMED: Final = """
SELECT DISTINCT number FROM all_node WHERE name = ? AND kind IN ('dataset', 'job', 'resource')
"""
_ENDING: Final = """
SELECT DISTINCT number FROM all_node
WHERE last_part = ?1 AND substr('/' || rtrim(name, '/'), -length(?2)) = ?2
AND kind IN ('dataset', 'job', 'resource')
"""
_TABLE: Final = """
SELECT DISTINCT number FROM all_node
WHERE last_part = ?1 AND substr(name, -length(?2)) = ?2 AND instr(name, '/') = 0 AND kind = 'dataset'
"""


_BESIDES: Final = (EdgeKind.START, EdgeKind.PRECEDE, EdgeKind.OWN, EdgeKind.VERSION)
_SIDES: Final = (
    ("Started by", EdgeKind.START, True),
    ("Starts", EdgeKind.START, False),
    ("Runs after", EdgeKind.PRECEDE, True),
    ("Runs before", EdgeKind.PRECEDE, False),
    ("Owners", EdgeKind.OWN, True),
    ("Versions", EdgeKind.VERSION, False),
)


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

    def sides(self) -> list[tuple[str, list[Node]]]:
        """What was told with the node besides data: a title, and the nodes in the order of `related`."""
        found = []
        for title, kind, is_before in _SIDES:
            ends = [(edge.source, edge.target) for edge in self.related if edge.kind is kind]
            if far := [both[not is_before] for both in ends if both[is_before] == self.node]:
                found.append((title, far))
        return found


NO_NAMESPACE: Final = "its namespace is empty, so equal names of two places are one dataset here"


class NameList(msgspec.Struct, frozen=True):
    """The names of a dataset.

    Attributes:
        node: the dataset, as it was asked about.
        names: all its names, as the facet `symlinks` has told them.
    """

    node: Node
    names: tuple[Node, ...]


def find_nodes(ask: Ask, text: str) -> list[Node]:
    """The datasets and jobs with a name: with its namespace, without it, or only its last parts.

    Of ``db.schema.table`` these are ``table`` and ``schema.table``, unless a path ends so. The name of a part
    of a dataset, such as a partition, is one of the dataset. Where nothing has the name as it is spelled, it
    is one in capitals or small letters, in a database that takes both for the same.
    """
    if exact := _wholes(ask, {node.number for node in _spellings(text)}):
        return exact
    text = text.rstrip("/") or text
    if found := _named_so(ask, text):
        return found
    folded = (node for other in (text.upper(), text.lower()) for node in _named_so(ask, other))
    return [node for node in folded if node.kind is NodeKind.DATASET and is_caseless(node.namespace)]


def _named_so(ask: Ask, text: str) -> list[Node]:
    """The datasets and jobs with a name without its namespace, or with these last parts of it."""
    if named := _wholes(ask, [number for (number,) in ask(_NAMED, (text,))]):
        return named
    for statement, separator in ((_ENDING, "/"), (_TABLE, ".")):
        bindings = (text.rpartition(separator)[2], f"{separator}{text}")
        if ending := _wholes(ask, [number for (number,) in ask(statement, bindings)]):
            return ending
    return []


def _wholes(ask: Ask, numbers: Iterable[int]) -> list[Node]:
    """The nodes with some numbers; of a part of a dataset, the dataset."""
    nodes = nodes_with(ask, numbers)
    parts = [number for number, node in nodes.items() if node.kind is NodeKind.RESOURCE]
    if parts:
        nodes |= nodes_with(ask, {holder for holder, _ in list_ends(ask, "target", parts, EdgeKind.HOLD)})
    return sorted(node for node in nodes.values() if node.kind is not NodeKind.RESOURCE)


def _untold_part(ask: Ask, text: str) -> list[Node]:
    """The dataset that a path belongs to by the rules, although no event named that path."""
    path = f"file:{text}" if text.startswith("/") else text
    return _wholes(ask, {node.number for node in _spellings(path, rules_of(ask))})


def find_node(ask: Ask, name: str) -> Node:
    """The dataset, column or job with a name: with its namespace, without it, or only its last part.

    With ``dataset:``, ``job:`` or ``column:`` before it, only what has this type is looked for.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    kind, _, rest = name.partition(":")
    of_kind = [node for node in _find_named(ask, rest) if node.kind == kind] if kind in _TYPES else []
    named = of_kind or _find_named(ask, name)
    if not named:
        raise NotFoundError(f"no dataset, column or job has the name {name[:_NAME_SHOWN_CHARS_MAX]!r}")
    jobs = [node for node in named if node.kind is NodeKind.JOB]
    if len({(node.namespace, node.name) for node in named}) == len(jobs) == 1:
        return jobs[0]  # a file's flow is a job with the name of the dataset that it reads
    if len(named) > 1 and len(stands_for := Nodes(ask).take(named)) == 1:
        return next(node for node in named if node.number in stands_for)  # all are names of one dataset
    if len(named) > 1:
        several = ", ".join(shown(node) for node in named[:_NAMED_MAX])
        raise NotFoundError(f"{len(named)} nodes have the name {name!r}; give one of {several}")
    return named[0]


def _find_named(ask: Ask, name: str) -> list[Node]:
    ways = (find_nodes, _find_columns, _untold_part) if len(name) <= NAME_CHARS_MAX else ()
    return next(filter(None, (find(ask, name) for find in ways)), [])


def find_names(ask: Ask, name: str) -> NameList:
    """All names of a dataset.

    Raises:
        NotFoundError: no dataset has this name, or several have it.
    """
    node = find_node(ask, name)
    if node.kind is not NodeKind.DATASET:
        raise NotFoundError(f"{shown(node)} is a {node.kind}; give the name of a dataset")
    nodes = Nodes(ask)
    return NameList(node, tuple(sorted(nodes.known[number] for number in nodes.of(nodes.take([node])))))


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

    def reach(depth: int | None, *, is_down: bool) -> Reach:
        inner = (EdgeKind.CONTAIN,) if is_down and node.kind is NodeKind.JOB else ()
        walk = Walk(Nodes(ask), [node], down=is_down, kinds=(*kinds, *inner), depth=depth, as_of_us=as_of_us)
        return walk.reach()

    upstream, downstream = reach(up, is_down=False), reach(down, is_down=True)
    writers = reach(1, is_down=False) if up == 0 else upstream
    jobs = {one.node.number: one.node for one in writers.nodes if one.distance == 1}
    if node.kind is not NodeKind.DATASET:
        jobs = {node.number: node}
    runs = [(run, jobs[job]) for job, run in last_runs(ask, jobs, as_of_us).items()]
    run, job = max(runs, key=lambda one: (one[0].started_ms, one[1]), default=(None, None))
    datasets = dict.fromkeys([node, *(one.node for one in (*upstream.nodes, *downstream.nodes))])
    columns = find_columns(ask, datasets, as_of_us) if with_columns else ()
    return Dependencies(node, upstream, downstream, run, job, columns, _find_related(ask, node, as_of_us))


def _find_related(ask: Ask, node: Node, as_of_us: int) -> tuple[Edge, ...]:
    """The edges of a dataset or a job along which no data flow, the one that was told last first.

    Of its owners, those count that the last facet names.

    Args:
        ask: executes statements.
        node: the dataset or the job.
        as_of_us: leave out what was told first after this instant, in epoch microseconds.
    """
    nodes = Nodes(ask)
    walks = (
        Walk(nodes, [node], down=down, kinds=_BESIDES, depth=1, as_of_us=as_of_us) for down in (False, True)
    )
    edges = {edge for walk in walks for edge in walk.reach().edges}
    if any(edge.kind is EdgeKind.OWN for edge in edges):
        facets = properties_of(ask, nodes.of(nodes.take([node])), "ownership").values()
        owners = {owner for facet in facets for owner in owners_in(facet)}
        edges = {edge for edge in edges if edge.kind is not EdgeKind.OWN or edge.source.name in owners}
    return tuple(sorted(edges, key=lambda edge: (-edge.first_ms, edge)))


def _find_columns(ask: Ask, text: str) -> list[Node]:
    """The columns with a name: the dataset's in any form, a dot, and the column's, with few dots in it."""
    found: set[Node] = set()
    nodes = Nodes(ask)
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in dots[-_DOTS_MAX:]:
        for dataset in (one for one in find_nodes(ask, text[:at]) if one.kind is NodeKind.DATASET):
            asked, ones = dataset.with_column(text[at + 1 :]), nodes.take([dataset])
            schemas = properties_of(ask, nodes.of(ones), "schema").values()
            told = {one.column for one in nodes.columns_of(ones)}.union(*map(columns_in, schemas))
            alike = (dataset.with_column(one) for one in told if one.casefold() == asked.column.casefold())
            same = sorted(one for one in alike if nodes.take([one]) == nodes.take([asked]))
            found.update([asked] if asked in same else same[:1])
    return sorted(found)


def shown(node: Node) -> str:
    """A node as one text: a dataset as records have it, a column with a dot and its name behind that."""
    if node.kind is NodeKind.JOB:
        return f"{node.namespace}/{node.name}"
    dataset = dataset_text(node.namespace, node.name)
    return f"{dataset}.{node.column}" if node.column else dataset


def rules_of(ask: Ask) -> tuple[str, ...]:
    """The rules by which an index names datasets."""
    return tuple(rule for (rule,) in ask("SELECT rule FROM disk.trimmer ORDER BY rowid", ()))


def _spellings(text: str, rules: tuple[str, ...] = ()) -> Iterable[Node]:
    """The datasets, their parts, and the jobs whose namespace and name, put together, give a text."""
    for found in islice(_SPLIT.finditer(text), _SPLITS_MAX):
        at = found.start()
        for name in {text[at + 1 :], text[at:]}:
            yield Node(NodeKind.JOB, text[:at], name)
            yield Node(NodeKind.DATASET, text[:at], name)
            namespace, located = locate(text[:at], name)
            yield Node(NodeKind.DATASET, namespace, trim_name(namespace, located, rules))
            yield Node(NodeKind.RESOURCE, namespace, located)
