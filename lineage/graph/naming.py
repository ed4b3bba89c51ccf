"""One name for a dataset, whatever events call it: rules for paths, as OpenLineage's trimmers have them.

A folder of a partition, a file with a date in its name and a part that Spark wrote are the dataset that they
belong to. The rules `date`, `key-value`, `multi-dir-date` and `year-month` mean what the trimmers of these
names in OpenLineage's Java client mean. Only a path is trimmed, never a table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import takewhile
from operator import not_
from typing import TYPE_CHECKING, Final

from waybill.transport.config import DATED_FILE, TRIMMERS

from .elements import EdgeKind, Node, NodeKind
from .observing import Told

if TYPE_CHECKING:
    from .observing import Observed

_SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
_KEY_SCHEMES: Final = frozenset({"s3", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cos"})
"""The schemes of object stores, whose keys have no leading slash."""
_PATH_SCHEMES: Final = frozenset({"file", "hdfs", "viewfs", "webhdfs", "dbfs", "adl", "sftp", "ftp"})
_HERE: Final = frozenset({"file", "hdfs", "dbfs"})
"""The schemes that are a namespace without a host, too."""
_CASELESS: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(("snowflake", "oracle", "db2"), str.upper),
    **dict.fromkeys(("hive", "trino", "presto", "awsathena", "databricks", "redshift"), str.lower),
    **dict.fromkeys(("postgres", "postgresql", "cockroachdb", "mysql", "mariadb", "mssql", "sqlserver"), str),
    **dict.fromkeys(("bigquery", "teradata", "duckdb", "sqlite"), str),
}
"""The databases in which a column that nobody quotes has one name in small letters and in capitals; and how
each of them spells the name of such a table, if that may be told of a name in an event."""
_NAMESPACE: Final = re.compile(r"([a-z][a-z0-9]*)(?::/*|://([^/]+)/*)?", re.ASCII | re.IGNORECASE)

_MONTH: Final = r"(?:0[1-9]|1[0-2])"
_DAY: Final = r"(?:0[1-9]|[12]\d|3[01])"
_DATE: Final = rf"(?<!\d)(?:{{0}}-{_MONTH}-{_DAY}|{{0}}{_MONTH}{_DAY}|{_DAY}\.{_MONTH}\.{{0}})"
_ANY_YEAR: Final = _DATE.format(r"\d\d\d\d")
_RECENT: Final = _DATE.format(r"(?:19|20)\d\d")
_TIME: Final = r"[T_ -]?\d\d(?:[:.-]?\d\d(?:[:.-]?\d\d(?:[.,]?\d{1,9})?)?)?Z?"
_DATE_IN_FILE: Final = re.compile(
    rf"(?:^|[-_. ])(?:{_RECENT}(?:{_TIME})?|(?:19|20)\d\d-{_MONTH}(?!-\d))(?=[-_. ]|$)", re.ASCII
)
_EXTENSION: Final = re.compile(
    r"\.[a-z][a-z0-9]{0,9}(?:\.(?:gz|bz2|xz|zst|zip|lz4|snappy))?$", re.ASCII | re.IGNORECASE
)
_EXTENSION_CHARS_MAX: Final = 20

_FOLDERS: Final = {
    "date": rf"(?=[^/]*{_ANY_YEAR})[\d\s:.\-]*(?:T[\d\s:.\-]*)?Z?",
    "key-value": r"[^/=]*=[^/=]*",
    "multi-dir-date": rf"\d{{4}}/{_MONTH}(?:/{_DAY}(?:/(?:[01]\d|2[0-3]))?)?",
    "year-month": rf"\d{{4}}-?{_MONTH}",
    "part-file": r"(?i:part-(?:[mr]-)?\d+(?:-[0-9a-f-]{36})?(?:[-.]c\d+)?(?:\.[a-z0-9]+)*)",
}
"""By rule, what the last folders of a path are that are not in the dataset's name."""
_FOLDERS_MAX: Final = 4
_NAMED: Final = (NodeKind.DATASET, NodeKind.COLUMN, NodeKind.VERSION)
_SIGN: Final = re.compile(r"[^=]*=|(?i:part-)|[\d\s:.\-TZ]+\Z", re.ASCII)
"""How the name of a folder begins that a rule may take off: most names do not, which is found out quickly."""


def locate(namespace: str, name: str) -> tuple[str, str]:
    """Return a dataset's namespace and name as its database or, for a path, OpenLineage's naming has them.

    So `/data/lake/` in the namespace `file://localhost` is `/data/lake` in `file`, and `shop.orders` is
    `SHOP.ORDERS` in Snowflake.
    """
    scheme, host = _place_of(namespace)
    if not scheme:
        return namespace, _CASELESS.get(namespace.partition(":")[0].lower(), str)(name)
    if scheme == "file":
        namespace = "file" if host.lower() in {"", "localhost"} else f"file://{host}"
        name = re.sub("/+", "/", name)
    elif host:
        namespace = f"{scheme}://{host}"
    if scheme in _KEY_SCHEMES:
        name = name.lstrip("/")
    return namespace, name.rstrip("/") or "/"


def is_caseless(namespace: str) -> bool:
    """Whether a column has one name in small letters and in capitals, unless somebody quotes it."""
    return namespace.partition(":")[0].lower() in _CASELESS


def trim_name(namespace: str, name: str, rules: tuple[str, ...] = TRIMMERS) -> str:
    """Return the name of the dataset that a path belongs to; a name that is no path stays as it is.

    Args:
        namespace: of the dataset.
        name: of the dataset.
        rules: those of the setting `dataset_trimmers`.
    """
    if not rules or not name.strip("/") or not _place_of(namespace)[0]:
        return name
    parts = name.rstrip("/").split("/")
    root = sum(1 for _ in takewhile(not_, parts))  # the empty parts before the first
    while _trim_once(parts, root, rules):
        pass
    return "/".join(parts)


def settle_dataset(namespace: str, name: str, rules: tuple[str, ...]) -> Node:
    """Return the dataset that a name stands for in the graph.

    Args:
        namespace: of the dataset.
        name: of the dataset.
        rules: as `trim_name` takes them.
    """
    namespace, _, trimmed = _names_of(namespace, name, rules)
    return Node(NodeKind.DATASET, namespace, trimmed)


def settle_names(told: Observed, rules: tuple[str, ...]) -> Observed:
    """Give the datasets that are told of their one name.

    A name from which something was trimmed stays as a resource that the dataset holds. Another spelling of a
    place stays as a further name.
    """
    renamed: dict[Node, Node] = {}
    for node in [one for one in told.nodes if one.kind in _NAMED]:
        namespace, name, trimmed = _names_of(node.namespace, node.name, rules)
        if (namespace, trimmed) == (node.namespace, node.name):
            continue
        settled = Node(node.kind, namespace, trimmed, node.column, node.version)
        if trimmed != name:
            renamed[node] = settled
        if node.kind is not NodeKind.DATASET:
            continue
        resource = Node(NodeKind.RESOURCE, namespace, name)
        edge = (
            Told(settled, EdgeKind.HOLD, resource) if trimmed != name else Told(node, EdgeKind.SAME, settled)
        )
        told.edges.append(edge)
        told.nodes.add(edge.target)
    if renamed:
        told.nodes = {renamed.get(node, node) for node in told.nodes}
        told.edges = [
            one._replace(
                source=renamed.get(one.source, one.source), target=renamed.get(one.target, one.target)
            )
            for one in told.edges
        ]
        told.edges = [one for one in told.edges if one.kind is not EdgeKind.SAME or one.source != one.target]
        told.beliefs = [one._replace(dataset=renamed.get(one.dataset, one.dataset)) for one in told.beliefs]
        told.properties = {
            (renamed.get(node, node), key): value for (node, key), value in told.properties.items()
        }
    return told


@functools.lru_cache(maxsize=1_024)
def _names_of(namespace: str, name: str, rules: tuple[str, ...]) -> tuple[str, str, str]:
    """The namespace and the name of a dataset's place, and the name without what the rules take off."""
    namespace, name = locate(namespace, name)
    return namespace, name, trim_name(namespace, name, rules)


@functools.lru_cache(maxsize=1_024)
def _place_of(namespace: str) -> tuple[str, str]:
    """The scheme and the host or bucket of a namespace of paths; of any other one, both are empty."""
    found = _NAMESPACE.fullmatch(namespace)
    scheme = found[1].lower() if found else ""
    scheme = _SAME_SCHEMES.get(scheme, scheme)
    if found and scheme in (_KEY_SCHEMES | _PATH_SCHEMES if found[2] else _HERE):
        return scheme, found[2] or ""
    return "", ""


def _trim_once(parts: list[str], root: int, rules: tuple[str, ...]) -> bool:
    """Take off the end of a path what the rules do; return whether there was any.

    Its first `root` parts are empty.
    """
    while not parts[-1]:
        parts.pop()
    before = len(parts), parts[-1]
    file: list[str] = []
    if DATED_FILE in rules and not _folders_off(parts, rules):
        undated = _without_date(parts[-1])
        if undated is not None and (undated or len(parts) - 1 > root):
            parts.pop()
            file = [undated] if undated else []
    while (count := _folders_off(parts, rules)) and (file or len(parts) - count > root):
        del parts[-count:]
    parts += file
    return (len(parts), parts[-1]) != before


def _folders_off(parts: list[str], rules: tuple[str, ...]) -> int:
    """How many of the last parts of a path the rules take off."""
    end = len(parts)
    while end and not parts[end - 1]:
        end -= 1
    if end and _SIGN.match(parts[end - 1]):
        tail = "/".join(parts[max(0, end - _FOLDERS_MAX) : end])
        if (found := _folders_of(rules).search(tail)) is not None:
            return len(parts) - end + found["folders"].count("/") + 1
    return 0


@functools.cache
def _folders_of(rules: tuple[str, ...]) -> re.Pattern[str]:
    """What the rules take off the end of a path."""
    patterns = "|".join(_FOLDERS[rule] for rule in rules if rule in _FOLDERS) or "(?!)"
    return re.compile(rf"(?:^|/)(?P<folders>{patterns})\Z", re.ASCII)


def _without_date(file: str) -> str | None:
    """The name of a file without dates; empty if there is nothing else, None if it is no file's name."""
    found = _EXTENSION.search(file, max(0, len(file) - _EXTENSION_CHARS_MAX))
    if found is None or not found.start():
        return None
    stem = file[: found.start()]
    undated = _DATE_IN_FILE.sub("", stem)
    if undated == stem:
        return file
    undated = undated.lstrip("-_. ")
    return undated + found[0] if undated else ""
