"""Entries as they lie in the journal's database: how they are told apart, packed, inserted and found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from waybill.transport.errors import JournalError

if TYPE_CHECKING:
    import apsw
    import pyarrow as pa

PACK_BYTES_MIN: Final = 8 * 2**10
"""Bodies from this size on may be packed; smaller ones have little in them that repeats."""

PACK_BYTES_MAX: Final = 8 * 2**20
"""Larger ones are not, for they would be in memory three times."""

_ROWS_AT_ONCE: Final = 64
_INSERT: Final = (
    "INSERT INTO entries (received_ms, kind, system_name, digest, body, unpacked_bytes) VALUES ",
    "(?, ?, ?, ?, ?, ?)",
    " ON CONFLICT (digest) DO NOTHING",
)
_NEWEST_MS: Final = "SELECT received_ms FROM entries ORDER BY seq DESC LIMIT 1"
_FIND: Final = "SELECT seq FROM entries WHERE digest = ?"


class Row(NamedTuple):
    """An entry before it has a number.

    Attributes:
        kind: a `Kind` as a number.
        system_name: stamped on records that carry none.
        digest: by which a repeat is known; None for a mark, which is none.
        body: the bytes as accepted, or packed.
        unpacked_bytes: the size that they had, if they are packed.
    """

    kind: int
    system_name: str
    digest: bytes | None
    body: bytes
    unpacked_bytes: int | None = None


def row_of(kind: int, system_name: str, body: bytes, *, pack: bool) -> Row:
    """The row of an entry.

    Args:
        kind: a `Kind` as a number.
        system_name: stamped on records that carry none.
        body: the bytes as accepted.
        pack: whether a large body is packed, which is less work than writing it twice, to the log and to the
            database, and needs a quarter of the room.
    """
    digest = blake2b(body, digest_size=16, salt=bytes((kind,))).digest()
    if pack and PACK_BYTES_MIN <= len(body) <= PACK_BYTES_MAX:
        packed = cast("bytes", codec().compress(body, asbytes=True))
        if len(packed) < len(body):
            return Row(kind, system_name, digest, packed, len(body))
    return Row(kind, system_name, digest, body)


def unpack(body: bytes, unpacked_bytes: int | None) -> bytes:
    """A body as it was accepted.

    Raises:
        JournalError: it is damaged.
    """
    if unpacked_bytes is None:
        return body
    try:
        return cast("bytes", codec().decompress(body, unpacked_bytes, asbytes=True))
    except OSError as error:
        raise JournalError(f"an entry of the journal is damaged ({error}); check the disk") from None


def insert(writer: apsw.Connection, rows: Sequence[Row], now_ms: int, *, marks: bool) -> list[int]:
    """Insert what is new; the caller has begun a transaction.

    Args:
        writer: the connection.
        rows: what is inserted.
        now_ms: when, epoch milliseconds; later where the newest entry is.
        marks: whether there may be marks among the rows.

    Returns:
        The sequence number of each row; that of the first one for a repeat.
    """
    received_ms = max(now_ms, writer.execute(_NEWEST_MS).get or 0)
    # A mark has no digest by which its number could be found among those of repeats.
    at_once = 1 if marks else _ROWS_AT_ONCE
    seqs: list[int] = []
    for at in range(0, len(rows), at_once):
        seqs += _insert_at_once(writer, received_ms, rows[at : at + at_once])
    return seqs


def _insert_at_once(writer: apsw.Connection, received_ms: int, rows: Sequence[Row]) -> Sequence[int]:
    # One statement for all: between two of them other threads would take the interpreter.
    begin, row, end = _INSERT
    writer.execute(
        begin + ",".join([row] * len(rows)) + end, [at for row in rows for at in (received_ms, *row)]
    )
    if writer.changes() == len(rows):
        last = writer.last_insert_rowid()
        return range(last - len(rows) + 1, last + 1)
    return [cast("int", writer.execute(_FIND, (row.digest,)).get) for row in rows]


@cache
def codec() -> pa.Codec:
    """What packs; it loads pyarrow."""
    # Who keeps single events loads no pyarrow.
    import pyarrow as pa

    return pa.Codec("lz4_raw")
