"""Entries as rows of the journal's database: their digests, their packing, and how they are inserted."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import apsw

from .entry import Kind
from .fingerprints import FileContent, contents_in

if TYPE_CHECKING:
    import pyarrow as pa

PACK_BYTES_MIN: Final = 8 * 2**10
"""Smaller bodies are not packed, because little in them repeats."""

PACK_BYTES_MAX: Final = 8 * 2**20
"""Larger bodies are not packed, because they would be in memory three times."""

_ROWS_AT_ONCE: Final = 64
_INSERT: Final = (
    "INSERT INTO entries (received_ms, kind, system_name, digest, body, unpacked_bytes, program) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?)",
    " ON CONFLICT (digest) DO NOTHING",
)
_COLUMNS: Final = 6
"""How many fields of a `Row` are columns of the entries."""

GONE_UPTO: Final = "gone_upto"
"""The note of the last entry that counts as removed although SQLite cannot remove all of it."""

AFTER_GONE: Final = "coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'gone_upto'), 0)"
"""The same number in a query; 0 without one."""

# A damaged row may have values of other types than its columns have.
_HEAD: Final = """
seq, coalesce(CAST(received_ms AS INTEGER), 0), coalesce(CAST(kind AS INTEGER), -1),
    coalesce(CAST(system_name AS BLOB), X'')
"""
_ALL: Final = f"""
{_HEAD}, CAST(digest AS BLOB), CAST(body AS BLOB), CAST(unpacked_bytes AS INTEGER), CAST(program AS BLOB)
"""
_WITHOUT_BODY: Final = f"""
SELECT {_HEAD}, CAST(digest AS BLOB), NULL, CAST(unpacked_bytes AS INTEGER) FROM entries WHERE seq = ?
"""  # noqa: S608 - a text of our own
_STORED: Final = f"""
SELECT {_ALL} FROM entries WHERE seq > max(?, {AFTER_GONE}) ORDER BY seq LIMIT ?
"""  # noqa: S608 - a text of our own
_NEXT: Final = f"""
SELECT seq FROM entries WHERE seq > max(?, {AFTER_GONE}) ORDER BY seq LIMIT 1
"""  # noqa: S608 - a text of our own
NEWEST_MS: Final = "SELECT CAST(received_ms AS INTEGER) FROM entries ORDER BY seq DESC LIMIT 1"
_FIND: Final = "SELECT seq FROM entries WHERE digest = ?"
# A random digest is not that of the body either, so the entry stays damaged.
_FORGET_DIGEST: Final = "UPDATE entries SET digest = randomblob(24) WHERE seq = ?"

_MOMENTS: Final = {0: b'"eventTime"', 1: b'"completed"'}
"""By kind, the member of an event or record that says when it happened."""

_MOMENT_WITHIN_BYTES: Final = 64 * 2**10
_MOMENT_CHARS: Final = 40
_MOMENT_DIGITS: Final = 17
"""The digits of an ISO 8601 instant with milliseconds."""

_MOMENT_BYTES: Final = 8
_HASH_BYTES: Final = 16
_NO_DIGITS: Final = bytes(set(range(256)) - set(b"0123456789"))

Item = tuple[int, bytes, str]
"""Kind, body and stamped system name of an entry that is to be kept."""


class Row(NamedTuple):
    """An entry before it has a sequence number.

    Attributes:
        digest: see `digest_of`; None for a mark, which is never a repeat.
        body: the bytes as accepted, or packed.
        unpacked_bytes: the size of the body as accepted, if it is packed.
        program: the process that submits it, where that is known and matters.
        contents: the files whose fingerprints the body says.
    """

    kind: int
    system_name: str
    digest: bytes | None
    body: bytes
    unpacked_bytes: int | None = None
    program: str | None = None
    contents: Sequence[FileContent] = ()


class StoredRow(NamedTuple):
    """A row as the database has it now, as far as it can be read.

    Attributes:
        kind: a number; -1 if it cannot be read.
        system_name: UTF-8, unless it is damaged.
        body: None if it cannot be read.
        program: UTF-8, unless it is damaged.
    """

    seq: int
    received_ms: int = 0
    kind: int = -1
    system_name: bytes = b""
    digest: bytes | None = None
    body: bytes | None = None
    unpacked_bytes: int | None = None
    program: bytes | None = None


def stored_rows(connection: apsw.Connection, after: int, limit: int) -> Generator[StoredRow, None, None]:
    """The rows after an entry, in order. A row with a damaged page is read as far as possible.

    Raises:
        apsw.CorruptError: not even the sequence numbers can be read.
    """
    while limit > 0:
        cursor = connection.cursor()
        try:
            for row in cursor.execute(_STORED, (after, limit)):
                yield StoredRow(*row)
                after, limit = row[0], limit - 1
        except apsw.CorruptError:
            seq = connection.execute(_NEXT, (after,)).get
            if seq is None:
                raise
            yield stored_row(connection, seq)
            after, limit = seq, limit - 1
        else:
            return
        finally:
            cursor.close(force=True)


def stored_row(connection: apsw.Connection, seq: int) -> StoredRow:
    """One row, as far as it can be read."""
    for columns in (_ALL, _HEAD):
        query = f"SELECT {columns} FROM entries WHERE seq = ?"  # noqa: S608 - a text of our own
        with contextlib.suppress(apsw.CorruptError):
            found = connection.execute(query, (seq,)).fetchone()
            return StoredRow(seq) if found is None else StoredRow(*found)
    return StoredRow(seq)


def row_of(kind: int, system_name: str, body: bytes, *, pack: bool, program: str | None = None) -> Row:
    """The row of an entry.

    A large body is packed if `pack` is set: that takes less work than writing it unpacked to the log and to
    the database, and it needs a quarter of the space.
    """
    digest = None if kind == Kind.MARK else digest_of(kind, body)
    contents = contents_in(kind, body, system_name)
    if pack and PACK_BYTES_MIN <= len(body) <= PACK_BYTES_MAX:
        packed = cast("bytes", codec().compress(body, asbytes=True))
        if len(packed) < len(body):
            return Row(kind, system_name, digest, packed, len(body), program, contents)
    return Row(kind, system_name, digest, body, program=program, contents=contents)


def digest_of(kind: int, body: bytes) -> bytes:
    """The digest that identifies repeats: 8 bytes of the moment that the body names, 16 of its hash.

    With the moment first, entries of the same time are neighbours in the index, so a commit changes few of
    its pages. With hashes alone, each entry would change a page of its own, which is then written to the log
    and to the disk. A missing or wrong moment costs no more than that, so the moment is read from its usual
    place, without a check.
    """
    return _moment_of(kind, body) + _hash_of(kind, body)


def _hash_of(kind: int, body: bytes) -> bytes:
    hashed = sha256(body)  # which most processors have instructions for
    hashed.update(bytes((kind,)))
    return hashed.digest()[:_HASH_BYTES]


def _moment_of(kind: int, body: bytes) -> bytes:
    name = _MOMENTS.get(kind, b"")
    at = body.find(name, 0, _MOMENT_WITHIN_BYTES)
    if not name or at < 0:
        return bytes(_MOMENT_BYTES)
    at += len(name)
    digits = body[at : at + _MOMENT_CHARS].translate(None, _NO_DIGITS)[:_MOMENT_DIGITS]
    return int(digits.ljust(_MOMENT_DIGITS, b"0")).to_bytes(_MOMENT_BYTES, "big")


def unpack(body: bytes | None, unpacked_bytes: int | None) -> bytes:
    """A body as it was accepted; one that is unreadable, or packed and damaged, raises a `ValueError`."""
    if body is None:
        raise ValueError("SQLite failed to read them")
    if unpacked_bytes is None:
        return body
    if not 0 <= unpacked_bytes <= PACK_BYTES_MAX:
        raise ValueError(f"an unpacked size of {unpacked_bytes} bytes is impossible")
    try:
        return cast("bytes", codec().decompress(body, unpacked_bytes, asbytes=True))
    except OSError as error:
        raise ValueError(str(error)) from None


def is_as_accepted(kind: int, body: bytes, digest: bytes | None) -> bool:
    """Whether a body matches its digest; only a mark has none."""
    if digest is None:
        return kind == Kind.MARK
    return _hash_of(kind, body) == digest[-_HASH_BYTES:]


def insert(writer: apsw.Connection, rows: Sequence[Row], received_ms: int, *, marks: bool) -> list[int]:
    """Insert the rows that are no repeats; the caller has begun a transaction.

    Returns the sequence number of each row; for a repeat, that of the first undamaged entry with the same
    bytes.
    """
    # A mark has no digest by which its number could be found if other rows of the statement are repeats.
    at_once = 1 if marks else _ROWS_AT_ONCE
    seqs: list[int] = []
    for at in range(0, len(rows), at_once):
        seqs += _insert_at_once(writer, received_ms, rows[at : at + at_once])
    return seqs


def _known(writer: apsw.Connection, row: Row) -> int | None:
    """The entry that a row repeats, found by its digest; a damaged one is never found by it again."""
    seq = cast("int | None", writer.execute(_FIND, (row.digest,)).get)
    if seq is None:
        return None
    body = _stored_body(writer, seq)
    if body is None:
        return None
    (rest,) = writer.execute(_WITHOUT_BODY, (seq,))
    found = StoredRow(*rest)
    is_alike = (found.kind, found.digest) == (row.kind, row.digest)
    with contextlib.suppress(ValueError):
        found.system_name.decode()
        # It may have been packed in another way.
        if is_alike and (
            (found.unpacked_bytes, body) == (row.unpacked_bytes, row.body)
            or is_as_accepted(row.kind, unpack(body, found.unpacked_bytes), row.digest)
        ):
            return seq
    writer.execute(_FORGET_DIGEST, (seq,))
    return None


def _stored_body(writer: apsw.Connection, seq: int) -> bytes | None:
    """A body as stored in the database, packed or not; None if it cannot be read.

    It is not read by a statement, because a statement that fails ends the transaction.
    """
    blob = writer.blob_open("main", "entries", "body", seq, False)  # noqa: FBT003 - not to be written
    try:
        return blob.read()
    except apsw.CorruptError:
        return None
    finally:
        blob.close(True)  # noqa: FBT003 - without the error again


def _insert_at_once(writer: apsw.Connection, received_ms: int, rows: Sequence[Row]) -> Sequence[int]:
    # One statement for all, because other threads would take the interpreter between two statements.
    begin, values, end = _INSERT
    writer.execute(
        begin + ",".join([values] * len(rows)) + end,
        [at for row in rows for at in (received_ms, *row[:_COLUMNS])],
    )
    if writer.changes() == len(rows):
        last = writer.last_insert_rowid()
        return range(last - len(rows) + 1, last + 1)
    seqs: list[int] = []
    for row in rows:
        known = _known(writer, row)
        seqs += (
            _insert_at_once(writer, received_ms, (_beside_damaged(writer, row),))
            if known is None
            else (known,)
        )
    return seqs


def _beside_damaged(writer: apsw.Connection, row: Row) -> Row:
    """The row with the digest of the next moment, if an unreadable entry has the row's own digest.

    SQLite cannot change a row with a damaged page.
    """
    if row.digest is None or writer.execute(_FIND, (row.digest,)).get is None:
        return row
    moment = int.from_bytes(row.digest[:_MOMENT_BYTES], "big") + 1
    return row._replace(
        digest=(moment % 256**_MOMENT_BYTES).to_bytes(_MOMENT_BYTES, "big") + row.digest[_MOMENT_BYTES:]
    )


@cache
def codec() -> pa.Codec:
    """The codec of packed bodies. It needs pyarrow, which a pipeline that keeps single events never loads."""
    import pyarrow as pa

    return pa.Codec("lz4_raw")
