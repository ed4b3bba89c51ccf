"""What events tell of one dataset, job or column, and how that has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

import msgspec

from .asking import find_node
from .elements import EdgeKind, Node, NodeKind, as_json
from .origins import JobText
from .properties import description_in, owners_in, properties_of, sql_in, tags_in, types_in
from .runs import LastRun, newest_runs
from .walking import Nodes, list_ends, nodes_with

if TYPE_CHECKING:
    from .elements import Ask

RUNS_MAX: Final = 100
"""So many runs are told, the newest."""
CHANGES_MAX: Final = 1_000
"""So many changes are told, the newest."""
_TEXTS_MAX: Final = 20

_TOLD: Final = """
SELECT key, value, min(first_us) FROM all_property WHERE node IN (SELECT value FROM json_each(?))
GROUP BY key, digest
"""
_VERSIONS: Final = """
SELECT part, min(edge.first_us) FROM all_edge AS edge JOIN all_node ON number = target
WHERE source IN (SELECT value FROM json_each(?)) AND edge.kind = 'version' GROUP BY part ORDER BY 2
"""


class NodeChange(msgspec.Struct, frozen=True):
    """Something that events told otherwise than those before.

    Attributes:
        at_ms: when it was told first, in epoch milliseconds.
        what: ``column``, which says its type, ``owner``, ``tag``, or the key of the facet.
        of: the column; of anything else, empty.
        first: what was told before; None: nothing.
        second: what is told since; None: nothing.
        version: the version of the dataset that was told with it or next; empty: none was.
    """

    at_ms: int
    what: str
    of: str
    first: str | None
    second: str | None
    version: str = ""


class NodeRun(msgspec.Struct, frozen=True):
    """A run, and its job."""

    job: Node
    run: LastRun


class NodeDetails(msgspec.Struct, frozen=True):
    """What events tell of one dataset, job or column.

    Attributes:
        node: the dataset, the job or the column.
        description: what the facet `documentation` says; empty: nothing, or it is a column.
        tags: its tags, ``key:value``; of a column, none.
        types: of a dataset, by column that its schema names, the type; of a column, its own.
        texts: the SQL of the job, or of jobs that write the dataset, at most twenty.
        runs: those of the job, or of the jobs that write the dataset, the newest first, at most a hundred.
        versions: those of the dataset, with when each was told first, in epoch milliseconds.
        changes: what changed, the newest first, at most a thousand.
    """

    node: Node
    description: str
    tags: tuple[str, ...]
    types: dict[str, str]
    texts: tuple[JobText, ...]
    runs: tuple[NodeRun, ...]
    versions: dict[str, int]
    changes: tuple[NodeChange, ...]


def find_details(ask: Ask, name: str) -> NodeDetails:
    """What events tell of one dataset, job or column.

    Raises:
        NotFoundError: nothing has this name, or several have it.
    """
    node = find_node(ask, name)
    nodes = Nodes(ask)
    whole = node.dataset if node.kind is NodeKind.COLUMN else node
    numbers = nodes.of(nodes.take([whole]))
    told = {key: value for (_, key), value in properties_of(ask, numbers, *_SHOWN).items()}
    if node.kind is NodeKind.JOB:
        jobs = {node.number: node}
    else:
        jobs = nodes_with(ask, {job for job, _ in list_ends(ask, "target", numbers, EdgeKind.WRITE)})
    sql = properties_of(ask, jobs, "sql")
    texts = [JobText(jobs[job], text) for (job, _), facet in sql.items() if (text := sql_in(facet))]
    types = types_in(told.get("schema", "{}"))
    versions = dict(cast("list[tuple[str, int]]", ask(_VERSIONS, (as_json(numbers),))))
    changes = sorted(_changes_of(ask, numbers, versions), key=lambda one: (-one.at_ms, one.what, one.of))
    if node.kind is NodeKind.COLUMN:
        told = {}
        named = {*types, *(one.of for one in changes)}
        alike = (whole.with_column(name) for name in named if name.casefold() == node.column.casefold())
        spelled = {one.column for one in alike if nodes.take([one]) == nodes.take([node])}
        types = {name: kind for name, kind in types.items() if name in spelled}
        changes = [one for one in changes if one.of in spelled]
    return NodeDetails(
        node,
        description_in(told.get("documentation", "{}")),
        tags_in(told.get("tags", "{}")),
        types,
        tuple(texts[:_TEXTS_MAX]),
        tuple(NodeRun(jobs[job], run) for job, run in newest_runs(ask, jobs, RUNS_MAX)),
        {version: at_us // 1_000 for version, at_us in versions.items()},
        tuple(changes[:CHANGES_MAX]),
    )


def _changes_of(ask: Ask, numbers: Iterable[int], versions: Mapping[str, int]) -> Iterator[NodeChange]:
    """In what each facet differs from the one that was told first before it."""
    told: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for key, value, first_us in sorted(ask(_TOLD, (as_json(numbers),)), key=itemgetter(2)):
        told[key].append((value, first_us))
    for key, values in told.items():
        what, read = _READ.get(key, (key, _read_whole))
        for (first, _), (second, at_us) in pairwise(values):
            before, after = read(first), read(second)
            version = next((name for name, told_us in versions.items() if told_us >= at_us), "")
            for of in sorted({*before, *after}):
                if before.get(of) != after.get(of):
                    texts = before.get(of), after.get(of)
                    yield NodeChange(at_us // 1_000, what, of if what == "column" else "", *texts, version)


def _read_whole(facet: str) -> dict[str, str]:
    return {"": facet}


def _by_itself(read: Callable[[str], Iterable[str]]) -> Callable[[str], dict[str, str]]:
    return lambda facet: {text: text for text in read(facet)}


_READ: Final[Mapping[str, tuple[str, Callable[[str], dict[str, str]]]]] = {
    "schema": ("column", types_in),
    "ownership": ("owner", _by_itself(owners_in)),
    "tags": ("tag", _by_itself(tags_in)),
    "sql": ("sql", lambda facet: {"": sql_in(facet)}),
    "documentation": ("documentation", lambda facet: {"": description_in(facet)}),
}
"""By the key of a facet, what its parts are called, and how they are read."""

_SHOWN: Final = ("documentation", "tags", "schema")
