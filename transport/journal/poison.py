"""Poison: entries that a projection cannot apply, kept with the reason so that the others continue.

The invariants:

- An entry is in the box before the projection's cursor moves past it.
- The box keeps its bytes as the journal had them, because the journal is pruned; bytes that SQLite cannot
  read are lost.
- It is tried again at a mark, and so at the same place of the sequence after every restart. Once the
  projection is past that mark, the entry is no longer poison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from .entry import Entry, Kind
from .rows import Row, insert, stored_row, unpack

if TYPE_CHECKING:
    import apsw

    from .database import Database

_POISON_MARK: Final = b"poison"
_REASON_CHARS_MAX: Final = 1_000

_APPLIED: Final = """
retry_seq IS NOT NULL
AND retry_seq <= coalesce((SELECT seq FROM cursors WHERE projection = poison.projection), 0)
"""
_FORGET_APPLIED: Final = f"DELETE FROM poison WHERE {_APPLIED}"  # noqa: S608 - a text of our own
_LIST: Final = f"""
SELECT projection, seq, retry_seq, at_ms, reason, tries, received_ms, kind, system_name,
    coalesce(unpacked_bytes, length(body))
FROM poison
WHERE (?1 IS NULL OR projection = ?1) AND (?2 IS NULL OR seq = ?2) AND NOT ({_APPLIED})
ORDER BY seq, projection
"""  # noqa: S608 - a text of our own
_AGAIN: Final = """
UPDATE poison SET retry_seq = NULL, at_ms = ?, reason = ?, tries = tries + ?
WHERE projection = ? AND retry_seq = ? RETURNING seq
"""
_SET_ASIDE: Final = """
INSERT INTO poison (
    projection, at_ms, reason, tries, seq, received_ms, kind, system_name, unpacked_bytes, body
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INSTEAD: Final = """
SELECT seq, retry_seq, CASE WHEN retry_seq BETWEEN ?2 AND ?3 THEN kind END, system_name, unpacked_bytes,
    CASE WHEN retry_seq BETWEEN ?2 AND ?3 THEN body END
FROM poison WHERE projection = ?1 AND (seq BETWEEN ?2 AND ?3 OR retry_seq BETWEEN ?2 AND ?3)
"""


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that one projection cannot apply.

    Attributes:
        retry_seq: the mark at which it is tried again; None: it is not.
        set_aside_ms: when it was set aside, epoch milliseconds.
        reason: why, in one sentence.
        tries: how many times it was tried alone; 0: it could not be read.
        received_ms: when the journal accepted it, epoch milliseconds.
        size_bytes: the size of its body.
    """

    projection: str
    seq: int
    retry_seq: int | None
    set_aside_ms: int
    reason: str
    tries: int
    received_ms: int
    kind: int
    system_name: str
    size_bytes: int


class PoisonBox:
    """The poison of all projections of a journal; every method raises a `JournalError` if the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, projection: str | None = None, seq: int | None = None) -> list[Poison]:
        """The poison of one projection and entry, or of all, in the order of the journal."""
        with self._database.reading() as reader:
            rows = cast("list[tuple[Any, ...]]", reader.execute(_LIST, (projection, seq)).fetchall())
        return [Poison(**dict(zip(Poison.__struct_fields__, row, strict=True))) for row in rows]

    def counts(self) -> dict[str, int]:
        """The number of poison entries by projection, without the projections that have none."""
        return dict(Counter(one.projection for one in self.all()))

    def body(self, projection: str, seq: int) -> bytes | None:
        """The body of a poison entry, still packed if it cannot be unpacked; None: there is no such entry."""
        query = "SELECT body, unpacked_bytes FROM poison WHERE projection = ? AND seq = ?"
        with self._database.reading() as reader:
            row = reader.execute(query, (projection, seq)).fetchone()
        if row is None:
            return None
        body, unpacked_bytes = row
        try:
            return unpack(body, unpacked_bytes)
        except ValueError:
            return bytes(body)

    def set_aside(self, projection: str, seq: int, reason: str, *, tries: int = 0) -> None:
        """Make an entry poison of a projection, unless it is already; for a mark, the entry tried there."""
        at_ms, reason = self._database.clock.now_ms(), reason[:_REASON_CHARS_MAX]
        # Before the transaction, because a damaged page would end it.
        with self._database.reading() as reader:
            row = stored_row(reader, seq)
        name = row.system_name.decode(errors="replace")
        kept = row.received_ms, row.kind, name, row.unpacked_bytes, row.body or b""

        def write(writer: apsw.Connection) -> None:
            writer.execute(_FORGET_APPLIED)
            again = writer.execute(_AGAIN, (at_ms, reason, tries, projection, seq)).fetchall()
            if not again:
                writer.execute(_SET_ASIDE, (projection, at_ms, reason, tries, seq, *kept))

        self._database.write(write)

    def take_back(self, before: Iterable[Poison], projection: str, seq: int) -> None:
        """Undo `set_aside`, given the earlier content of the box: the entry was not the cause."""
        again = next((one for one in before if one.retry_seq == seq), None)

        def write(writer: apsw.Connection) -> None:
            if again is None:
                writer.execute("DELETE FROM poison WHERE projection = ? AND seq = ?", (projection, seq))
            else:
                statement = "UPDATE poison SET retry_seq = ?, tries = ? WHERE projection = ? AND seq = ?"
                writer.execute(statement, (seq, again.tries, projection, again.seq))

        self._database.write(write)

    def retry(self, projection: str, seqs: Iterable[int]) -> list[int]:
        """Have entries tried again, damaged ones unchanged; return the marks at which that happens."""

        def write(writer: apsw.Connection) -> list[int]:
            marks = []
            for seq in seqs:
                row = Row(Kind.MARK, "", None, b"retry:%s:%d" % (projection.encode(), seq))
                (mark,) = insert(writer, [row], self._database.clock.now_ms(), marks=True)
                statement = "UPDATE poison SET retry_seq = ? WHERE projection = ? AND seq = ?"
                writer.execute(statement, (mark, projection, seq))
                marks.append(mark)
            return marks

        return self._database.write(write)

    def drop(self, projection: str, seqs: Iterable[int]) -> None:
        """Forget entries with their bodies."""
        statement = "DELETE FROM poison WHERE projection = ? AND seq = ?"
        keys = [(projection, seq) for seq in seqs]
        self._database.write(lambda writer: writer.executemany(statement, keys))

    def replaced(self, projection: str, entries: Sequence[Entry]) -> list[Entry]:
        """Entries of the journal, in order, as a projection reads them; see `Journal.feed`."""
        instead: dict[int, Entry] = {}
        if entries:
            span = (projection, entries[0].seq, entries[-1].seq)
            with self._database.reading() as reader:
                rows = cast("list[tuple[Any, ...]]", reader.execute(_INSTEAD, span).fetchall())
            received_ms = {entry.seq: entry.received_ms for entry in entries} if rows else {}
            for seq, retry_seq, kind, system_name, unpacked_bytes, body in rows:
                if seq in received_ms:
                    instead[seq] = Entry(seq, received_ms[seq], Kind.MARK, "", _POISON_MARK)
                if body is None or retry_seq not in received_ms:
                    continue
                try:
                    # It is empty if SQLite could not read it.
                    again = Kind(kind), system_name, unpack(body or None, unpacked_bytes)
                except ValueError as error:
                    self.set_aside(
                        projection, retry_seq, f"its bytes cannot be read ({error}); check the disk"
                    )
                else:
                    instead[retry_seq] = Entry(retry_seq, received_ms[retry_seq], *again)
        return [instead.get(entry.seq, entry) for entry in entries]

    @staticmethod
    def forget_applied(writer: apsw.Connection) -> None:
        """Forget the entries that were applied when tried again; the caller has begun a transaction."""
        writer.execute(_FORGET_APPLIED)
