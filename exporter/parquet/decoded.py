"""How large rows are once every text is written out, and cutting tables by it.

A text that many rows share is stored once, in files and in tables that are coded: 1,600 rows with one text of
900 KB take 1 MB there, and 1.4 GB as plain columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

DICTIONARY_BYTES: Final = 256 * 2**10
"""A dictionary of at most this size stays one in a file, and whole in memory; of a larger one, only what rows
use is kept."""

_OFFSET_BYTES: Final = 4


def in_pieces(table: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    """Cut a table, in order, into pieces of at most `max_bytes` once decoded, or of one row."""
    if not table.num_rows:
        return
    if table.nbytes <= max_bytes and not any(pt.is_dictionary(column.type) for column in table.columns):
        yield table
        return
    ends = pc.cumulative_sum(row_bytes(table)).to_pylist()
    cuts, limit = [0], max_bytes
    while limit < ends[-1] and cuts[-1] + 1 < len(ends):
        cuts.append(max(bisect_right(ends, limit), cuts[-1] + 1))
        limit = ends[cuts[-1] - 1] + max_bytes
    for start, end in pairwise([*cuts, len(ends)]):
        # A mere slice of a list still has the elements of the whole, and all of them are decoded with it.
        yield table.take(pa.arange(start, end))


def trimmed(table: pa.Table) -> pa.Table:
    """The same rows, with no large dictionary that holds more than they need, as filtered rows have it."""
    for place, field in enumerate(table.schema):
        chunks = table.column(place).chunks
        if any(_dictionary_bytes(chunk) > DICTIONARY_BYTES for chunk in chunks):
            kept = pa.chunked_array(map(_trimmed, chunks), field.type)
            table = table.set_column(place, field, kept)
    return table


def _dictionary_bytes(array: pa.Array) -> int:
    return int(array.dictionary.nbytes) if pt.is_dictionary(array.type) else 0


def _trimmed(array: pa.Array) -> pa.Array:
    used = array.indices.unique().drop_null()
    indices = pc.index_in(array.indices, used, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(indices, array.dictionary.take(used))


def row_bytes(table: pa.Table) -> pa.Int64Array:
    """How large each row is once decoded."""
    sizes = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for column in table.columns:
        sizes = pc.add(sizes, _sizes(column.combine_chunks()))
    return sizes


def largest_bytes(array: pa.Array) -> int:
    """What no value takes more than once it is decoded: far cheaper to know than `row_bytes`."""
    if pt.is_dictionary(array.type):
        return largest_bytes(array.dictionary)
    if pt.is_string(array.type):
        return (pc.max(pc.binary_length(array)).as_py() or 0) + _OFFSET_BYTES
    if pt.is_map(array.type):
        entry_bytes = largest_bytes(array.keys) + largest_bytes(array.items)
        return _most(array.offsets) * entry_bytes
    if pt.is_list(array.type):
        return _most(array.offsets) * largest_bytes(array.values)
    return int(array.type.bit_width) // 8


def _most(offsets: pa.Int32Array) -> int:
    """The most values between an offset and the next."""
    last = len(offsets) - 1
    return pc.max(pc.subtract(offsets.slice(1), offsets.slice(0, last))).as_py() or 0


def same_as_before(table: pa.Table, names: Collection[str]) -> pa.BooleanArray:
    """For each row whether it equals the row before it in these columns; None equals None."""
    if table.num_rows == 0:
        return pa.array([], pa.bool_())
    same: pa.BooleanArray | None = None
    for name in names:
        column = table[name].combine_chunks()
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(before, after), False)  # noqa: FBT003 - the value that stands for null
        if column.null_count:
            equal = pc.or_(equal, pc.and_(before.is_null(), after.is_null()))
        same = equal if same is None else pc.and_(same, equal)
    return pa.concat_arrays([pa.array([False]), same])


def _sizes(array: pa.Array) -> pa.Int64Array:
    if pt.is_dictionary(array.type):
        return pc.fill_null(_sizes(array.dictionary).take(array.indices), 0)
    if pt.is_string(array.type):
        return pc.add(pc.fill_null(pc.binary_length(array), 0).cast(pa.int64()), _OFFSET_BYTES)
    if pt.is_map(array.type):
        return _sums(array.offsets, pc.add(_sizes(array.keys), _sizes(array.items)))
    if pt.is_list(array.type):
        return _sums(array.offsets, _sizes(array.values))
    return pa.repeat(pa.scalar(array.type.bit_width // 8, pa.int64()), len(array))


def _sums(offsets: pa.Int32Array, sizes: pa.Int64Array) -> pa.Int64Array:
    """The sums of the sizes between each offset and the next."""
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)]).take(offsets)
    return pc.subtract(ends.slice(1), ends.slice(0, len(ends) - 1))
