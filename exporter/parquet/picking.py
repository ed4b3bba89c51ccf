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

from waybill.facets.arrow import PIECE_BYTES, SCHEMA

from .bloom import can_hold
from .decoded import row_bytes

if TYPE_CHECKING:
    from .selection import Selectable

_ANNOTATIONS: Final = "annotations"
_SLICED_MAX: Final = 4
_MEASURED_BYTES: Final = 2**16
"""Rows that take at most this much need not be measured."""


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


class Group(NamedTuple):
    """Some rows of a row group, decoded.

    Attributes:
        rows: as `SCHEMA` has them.
        size_bytes: they take at most this much, as `row_bytes` counts.
        row_bytes_max: none of them takes more than this.
    """

    rows: pa.Table
    size_bytes: int
    row_bytes_max: int


def decode(coded: pa.Table, sizes: pa.Int64Array) -> Group:
    """Decode rows of `SELECTED_SCHEMA` whose `row_bytes` are given."""
    rows = coded.cast(SCHEMA).combine_chunks()
    return Group(rows, pc.sum(sizes).as_py() or 0, pc.max(sizes).as_py() or 0)


def pick(file: Selectable, key: Key) -> Iterator[Group]:
    """The rows of an open file that have the text of a key, for each row group with any.

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
        sizes = row_bytes(found)
        if pc.sum(sizes).as_py() > PIECE_BYTES:
            raise TooManyRowsError
        yield decode(found, sizes)


def pick_from(group: Group, key: Key) -> Group | None:
    """The rows that have the text of a key; a few of them are slices of the others. None: there are none."""
    places = _rows_with(group.rows, key)
    if not len(places):
        return None
    if len(places) > _SLICED_MAX:
        rows = group.rows.take(places)
    else:
        slices = [group.rows.slice(at, 1) for at in places.to_pylist()]
        rows = slices[0] if len(slices) == 1 else pa.concat_tables(slices)
    size_bytes = rows.num_rows * group.row_bytes_max
    return Group(rows, size_bytes if size_bytes <= _MEASURED_BYTES else int(rows.nbytes), group.row_bytes_max)


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
    if not texts:
        return pa.repeat(False, len(column))  # noqa: FBT003 - of no texts, none is there
    return functools.reduce(pc.or_, [pc.equal(column, text) for text in texts])


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
