"""Picking the few rows of a file that have a text, such as a did: only the column of that text is searched.

The rows are decoded, since few rows do not share their texts with many others.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.parquet.bloom import can_hold
from waybill.exporter.parquet.decoded import row_bytes
from waybill.facets.arrow import PIECE_BYTES, SCHEMA

if TYPE_CHECKING:
    from waybill.exporter.parquet.selection import Selectable

_ANNOTATIONS: Final = "annotations"
_SLICED_MAX: Final = 4


class TooManyRowsError(Exception):
    """More rows have the text than fit into memory."""


class Key(NamedTuple):
    """A text that rows are picked by.

    Attributes:
        column: where it is: a column of texts, or `annotations`.
        texts: the row has one of these there.
        name: of `annotations`, the one that has the text as its value.
    """

    column: str
    texts: tuple[str, ...]
    name: str = ""


def pick(file: Selectable, key: Key) -> Iterator[pa.Table]:
    """The rows of an open file that have the text of a key: a table of `SCHEMA` for each row group with any.

    If a row has an annotation twice, each of its values counts.

    Raises:
        TooManyRowsError: those of a row group take more than `PIECE_BYTES`.
        DAMAGED: some of the file cannot be read.
    """
    for at in range(file.metadata.num_row_groups):
        if not can_have(file, at, key):
            continue
        rows = _rows_with(file.group(at, [key.column]), key)
        if not len(rows):
            continue
        found = file.group(at, SCHEMA.names).take(rows)
        if sum(row_bytes(found).to_pylist()) > PIECE_BYTES:
            raise TooManyRowsError
        yield found.cast(SCHEMA)


def pick_from(table: pa.Table, key: Key) -> pa.Table:
    """The rows of a table of `SCHEMA` that have the text of a key; a few of them are slices of the table."""
    rows = _rows_with(table, key)
    if len(rows) > _SLICED_MAX:
        return table.take(rows)
    return pa.concat_tables([table.slice(0, 0), *(table.slice(at.as_py(), 1) for at in rows)])


def can_have(file: Selectable, at: int, key: Key) -> bool:
    """Whether a row group can have the text of a key, by its Bloom filter."""
    schema, group = file.metadata.schema, file.metadata.row_group(at)
    places = [place for place in range(len(schema)) if schema.column(place).path == key.column]
    return bool(key.texts) and all(
        any(can_hold(file.source, group.column(place), text) for text in key.texts) for place in places
    )


def _rows_with(table: pa.Table, key: Key) -> pa.Array:
    """The numbers of the rows that have the text."""
    column = table[key.column]
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if key.column == _ANNOTATIONS:
        return _annotated(column, key)
    return pc.indices_nonzero(_is_any(column, key.texts))


def _is_any(column: pa.Array, texts: Sequence[str]) -> pa.BooleanArray:
    # Compared one by one, since Arrow loads pandas to make an array of Python's texts.
    if pa.types.is_dictionary(column.type):
        return _is_any(column.dictionary, texts).take(column.indices)
    nothing = pa.repeat(False, len(column))  # noqa: FBT003 - of no texts, none is there
    return functools.reduce(pc.or_, [pc.equal(column, text) for text in texts], nothing)


def _annotated(column: pa.MapArray, key: Key) -> pa.Array:
    """The rows with an annotation, by the places of its value among the values of all rows."""
    keys = column.keys
    ends = memoryview(column.buffers()[1]).cast("i")[column.offset : column.offset + len(column) + 1]
    rows: dict[int, None] = {}
    for place in pc.indices_nonzero(_is_any(column.items, key.texts)).to_pylist():
        # A slice of rows has the values before and behind it, too.
        if ends[0] <= place < ends[-1] and keys[place].as_py() == key.name:
            rows[bisect_right(ends, place) - 1] = None
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(array("q", rows))])
