"""The closure as a table, if `closure_table` is on: all ancestors of each file, those of records, too.

    correlation_lineage(id_parent, id_child, depth)

`depth` is the length of the shortest way, 0 for the file itself. An edge joins all ways that end at its
parent with all that begin at its child. So the table follows from the set of edges, and circles end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, cast

import msgspec

from waybill.facets import UNREADABLE, canonical_did, parents_of
from waybill.transport.journal import Kind

from .facts import did_of

if TYPE_CHECKING:
    import apsw

    from waybill.transport.journal import Entry

_SCHEMA: Final = """
CREATE TABLE correlation_lineage (
    id_parent TEXT NOT NULL,
    id_child TEXT NOT NULL,
    depth INTEGER NOT NULL,
    PRIMARY KEY (id_child, id_parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX correlation_lineage_down ON correlation_lineage (id_parent, depth, id_child);
CREATE TABLE closure_file (did TEXT NOT NULL PRIMARY KEY, told_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""
_DROP: Final = "DROP TABLE correlation_lineage; DROP TABLE closure_file"
_IS_IN: Final = "SELECT count(*) FROM {}.sqlite_schema WHERE name = 'correlation_lineage'"
_PUT_FILE: Final = """
INSERT INTO closure_file VALUES (?, ?)
ON CONFLICT DO UPDATE SET told_ms = excluded.told_ms WHERE excluded.told_ms > told_ms
"""
_PUT_ITSELF: Final = "INSERT INTO correlation_lineage VALUES (?1, ?1, 0) ON CONFLICT DO NOTHING"
_HAS_EDGE: Final = "SELECT depth = 1 FROM correlation_lineage WHERE id_parent = ? AND id_child = ?"
_PUT_EDGE: Final = """
INSERT INTO correlation_lineage
SELECT above.id_parent, below.id_child, above.depth + 1 + below.depth
FROM correlation_lineage AS above, correlation_lineage AS below
WHERE above.id_child = ? AND below.id_parent = ?
ON CONFLICT DO UPDATE SET depth = excluded.depth WHERE excluded.depth < depth
"""
_OLD: Final = """
SELECT did FROM closure_file AS old WHERE told_ms < ?1 AND NOT EXISTS (
    SELECT 1 FROM correlation_lineage JOIN closure_file AS young ON young.did = id_child
    WHERE id_parent = old.did AND young.told_ms >= ?1
)
"""
_FORGET: Final = (
    "DELETE FROM correlation_lineage WHERE id_child = ?",
    "DELETE FROM closure_file WHERE did = ?",
)
_KIN: Final = "SELECT {0}, depth FROM {2}.correlation_lineage WHERE {1} = ? ORDER BY depth, {0}"

Generation = tuple[str, int]
"""A did, and how many generations away it is; 0: the file itself."""

Told = tuple[str, tuple[str, ...], int]
"""A file, those that it came from directly, and when that was received, in epoch milliseconds."""


class Closure:
    """The closure in one database; every call that changes it is within a transaction.

    Args:
        connection: the database.
        schema: that of the database in the connection.
    """

    def __init__(self, connection: apsw.Connection, schema: str = "main") -> None:
        self._connection = connection
        self._schema = schema

    @property
    def exists(self) -> bool:
        """Whether the database has the closure."""
        return bool(self._connection.execute(_IS_IN.format(self._schema)).get)

    def make(self) -> None:
        """Make its tables, empty."""
        self._connection.execute(_SCHEMA)

    def drop(self) -> None:
        """Remove its tables."""
        self._connection.execute(_DROP)

    def add(self, told: Iterable[Told]) -> None:
        """Add files and their parents."""
        for did, parents, received_ms in told:
            self._connection.execute(_PUT_FILE, (did, received_ms))
            self._connection.execute(_PUT_ITSELF, (did,))
            for parent in parents:
                self._add_edge(parent, did)

    def forget(self, before_ms: int) -> None:
        """Forget files that nothing was received of since an instant, unless one that stays came from them.

        So every file that stays keeps all its ancestors.
        """
        old = self._connection.execute(_OLD, (before_ms,)).fetchall()
        for query in _FORGET:
            self._connection.executemany(query, cast("list[tuple[str]]", old))

    def kin(self, did: str, *, up: bool) -> list[Generation]:
        """A file and all that it came from, or that came from it, the nearest first; empty if unknown."""
        given, wanted = ("id_child", "id_parent") if up else ("id_parent", "id_child")
        found = self._connection.execute(_KIN.format(wanted, given, self._schema), (did,))
        return cast("list[Generation]", found.fetchall())

    def _add_edge(self, parent: str, child: str) -> None:
        if parent == child or self._connection.execute(_HAS_EDGE, (parent, child)).get:
            return
        self._connection.execute(_PUT_FILE, (parent, 0))
        self._connection.execute(_PUT_ITSELF, (parent,))
        self._connection.execute(_PUT_EDGE, (parent, child))


class _Record(msgspec.Struct, frozen=True, gc=False):
    did: str
    parent: str | None = msgspec.field(default=None, name="parentDid")


_RECORDS: Final = msgspec.json.Decoder(list[_Record])


def parents_told_in(entries: Iterable[Entry]) -> Iterator[Told]:
    """The files that each entry names, with their parents; an entry that cannot be read names none."""
    for entry in entries:
        try:
            if entry.kind is Kind.PROVENANCE:
                for record in _RECORDS.decode(entry.body):
                    parents = (canonical_did(record.parent),) if record.parent else ()
                    yield canonical_did(record.did), parents, entry.received_ms
            elif (event := entry.run_event) is not None and not (
                event.run.facets and event.run.facets.summary
            ):
                yield did_of(event), parents_of(event), entry.received_ms
        except UNREADABLE:
            continue  # the layout sets it aside
