"""The words of datasets and jobs, for searching: SQLite's full-text index FTS5, which keeps no texts.

A dataset or a job is one document, with its number as the row: its name, the names and descriptions of its
columns, its tags, owners and description, as they were told last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from .elements import Node, NodeKind, as_json

if TYPE_CHECKING:
    import apsw

SEARCH_SCHEMA: Final = """
CREATE VIRTUAL TABLE document USING fts5 (
    name, columns, tags, owners, description,
    content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
"""
WORDED: Final = ("schema", "tags", "ownership", "documentation")
"""The properties whose words are searched."""

_COLUMN_WORDS: Final = """(
    SELECT group_concat(part, ' ') FROM {0}node AS other
    WHERE other.name = told.name AND other.namespace = told.namespace AND other.kind = 'column'
    AND told.kind = 'dataset'
)"""
_WORDS: Final = """(
    SELECT group_concat(atom, ' ') FROM json_tree((
        SELECT value FROM {{0}}property WHERE node = told.number AND key = '{0}' AND json_valid(value)
        ORDER BY last_us DESC, digest DESC LIMIT 1
    )) AS said WHERE said.key IN ({1})
)"""
PUT_DOCUMENTS: Final = f"""
INSERT INTO main.document (rowid, name, columns, tags, owners, description)
SELECT
    number, namespace || ' ' || name,
    concat_ws(' ', {_COLUMN_WORDS}, {_WORDS.format("schema", "'name', 'description'")}),
    {_WORDS.format("tags", "'key', 'value'")},
    {_WORDS.format("ownership", "'name'")},
    {_WORDS.format("documentation", "'description'")}
FROM main.node AS told WHERE kind IN ('dataset', 'job') AND number IN (SELECT value FROM json_each(?))
"""  # noqa: S608 - texts of our own
"""Puts the documents of nodes, of which there are none, by their numbers; the tables may have a prefix."""

_NEW: Final = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT number FROM node)"
_TOLD: Final = "SELECT node, key, digest FROM property WHERE node IN (SELECT value FROM json_each(?))"
_CUT: Final = "DELETE FROM document WHERE rowid IN (SELECT value FROM json_each(?))"
_OLD: Final = """
SELECT kind, namespace, name FROM node
WHERE last_hour < ?1 OR number IN (SELECT node FROM property WHERE last_us < ?1 * 3600000000)
"""
_OF_DATASETS: Final = {NodeKind.DATASET, NodeKind.COLUMN}


class Documents:
    """The documents of the graph of one database; every call is within a transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._ask = connection.execute

    def list_changed(
        self, nodes: Iterable[tuple[Any, ...]], properties: Collection[tuple[int, str, int]]
    ) -> set[int]:
        """The datasets and jobs whose words may change when rows of the graph are put.

        Args:
            nodes: rows of nodes.
            properties: node, key and digest of each property.
        """
        rows = {row[0]: row[1:4] for row in nodes}
        changed = {_number(*rows[number]) for (number,) in self._ask(_NEW, (as_json(rows),))} - {0}
        worded = [one for one in properties if one[1] in WORDED]
        told: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        for node, key, digest in self._ask(_TOLD, (as_json({one[0] for one in worded}),)):
            told[node, key].add(digest)
        # Of several values, the one that was told last counts: that may change without a new one.
        return changed | {node for node, key, digest in worded if told[node, key] != {digest}}

    def list_old(self, hour: int) -> set[int]:
        """The datasets and jobs whose words may change when what is older than an hour is forgotten."""
        return {_number(*row) for row in self._ask(_OLD, (hour,))} - {0}

    def put(self, numbers: Collection[int]) -> None:
        """Put the documents of nodes as the graph has them now; what is no node any more has none."""
        if numbers:
            self._ask(_CUT, (as_json(numbers),))
            self._ask(PUT_DOCUMENTS.format(""), (as_json(numbers),))


def _number(kind: str, namespace: str, name: str) -> int:
    """The number of the dataset or job that a node's words belong to; 0: to none."""
    if kind in _OF_DATASETS:
        return Node(NodeKind.DATASET, namespace, name).number
    return Node(NodeKind.JOB, namespace, name).number if kind == NodeKind.JOB else 0
