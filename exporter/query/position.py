"""The order of an answer's records, and the place of one record in it.

Records come in order of `completed`, then of `did`; the few that have both in common come in order of a hash
of the rest of their natural key. So every record has one place, which stays while others arrive: a page that
goes on after a place neither repeats a record nor leaves one out that was there before.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from waybill.facets.record import AFTER_LAST_MS, FIRST_MS

from .. import parquet
from .conditions import InvalidQueryError

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

KEY_COLUMNS: Final = ("completed", "did", "system_name", "data_sink", "transforms", "final_state")
"""The columns of the natural key, those first that an answer is ordered by."""

_REST: Final = KEY_COLUMNS[2:]
_REST_HASH: Final = "rest"


class CursorError(InvalidQueryError):
    """A cursor is not one that an answer gave."""


class Position(NamedTuple):
    """The place of a record: places compare as the records are ordered, oldest first.

    Attributes:
        completed_ms: its `completed`, in epoch milliseconds.
        did: its did.
        rest: a hash of the rest of its natural key.
    """

    completed_ms: int
    did: str
    rest: int


_DECODER: Final = msgspec.msgpack.Decoder(Position)


def cursor_of(record: ProvenanceRecord) -> str:
    """The cursor with which a question goes on after a record; it may be part of a URL as it is."""
    rest = _hash_of(getattr(record, name) for name in _REST)
    return _encoded(Position(record.completed, record.did, rest))


def _encoded(position: Position) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).rstrip(b"=").decode()


def read_cursor(cursor: str) -> Position:
    """The place that a cursor stands for.

    Raises:
        CursorError: no answer gave this cursor.
    """
    with contextlib.suppress(ValueError, msgspec.MsgspecError):
        position = _DECODER.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        # Decoding ignores characters that do not belong there.
        if _encoded(position) == cursor and FIRST_MS <= position.completed_ms < AFTER_LAST_MS:
            return position
    raise CursorError(
        "after", cursor[:40], "is not a cursor; give the whole cursor that came with the answer"
    )


def in_order(table: pa.Table, *, oldest_first: bool) -> pa.Table:
    """The rows in order, newest first or oldest first; as far as the table has `KEY_COLUMNS`."""
    order: Final = "ascending" if oldest_first else "descending"
    known = [name for name in KEY_COLUMNS[:2] if name in table.column_names]
    table = parquet.sort(table, *known, order=order)
    if not set(KEY_COLUMNS) <= set(table.column_names):
        return table
    tied = parquet.whole_groups(parquet.same_as_before(table, known))
    if not pc.any(tied).as_py():
        return table
    none = pa.repeat(pa.scalar(0, pa.uint64()), table.num_rows)
    rests = pc.replace_with_mask(none, tied, pa.array(_rests_of(table.filter(tied)), pa.uint64()))
    keyed = table.append_column(_REST_HASH, rests)
    return parquet.sort(keyed, *known, _REST_HASH, order=order).drop_columns(_REST_HASH)


def beyond(table: pa.Table, after: Position, *, oldest_first: bool) -> pa.Table:
    """The rows that come after a place; the table has all of `KEY_COLUMNS`."""
    completed = table["completed"].cast(pa.int64())
    further = pc.greater if oldest_first else pc.less
    is_beyond = pc.or_(
        further(completed, after.completed_ms),
        pc.and_(pc.equal(completed, after.completed_ms), further(table["did"], after.did)),
    )
    beside = pc.and_(pc.equal(completed, after.completed_ms), pc.equal(table["did"], after.did))
    if pc.any(beside).as_py():
        tied = table.filter(beside)
        rests = _rests_of(tied)
        kept = [
            at for at, rest in enumerate(rests) if (rest > after.rest if oldest_first else rest < after.rest)
        ]
        return pa.concat_tables([table.filter(is_beyond), tied.take(pa.array(kept, pa.int64()))])
    return table.filter(is_beyond)


def _rests_of(table: pa.Table) -> list[int]:
    return [_hash_of(row.values()) for row in table.select(list(_REST)).to_pylist()]


def _hash_of(values: Iterable[Any]) -> int:
    return xxh3_64_intdigest(msgspec.msgpack.encode(list(values)))
