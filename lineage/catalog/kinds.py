"""How many records of which kind the files of a segment have."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.parquet import row_bytes, rows_where
from waybill.exporter.query import KIND_COLUMNS, Dimension, summed

if TYPE_CHECKING:
    from waybill.exporter import Query

Kind = tuple[str, str, str, str | None]
"""The values of `KIND_COLUMNS` that records have in common."""

Sum = tuple[int, int, int]
"""How many records, and their earliest and latest `completed` as milliseconds of their hour."""

_KINDS_BYTES_MAX: Final = 2**20
"""A file whose kinds take more is counted by reading it."""

_NUMBERS: Final = ("file", "kind", "records", "first", "last")
_KIND: Final = tuple(one for one in Dimension if one.column in KIND_COLUMNS)


class StoredSums(msgspec.Struct, frozen=True, array_like=True):
    """The sums of the files of a segment, as they are on disk.

    Attributes:
        kinds: the kinds that occur.
        numbers: a column of 32-bit numbers for each of: the place of a file in its segment, the place of a
            kind in `kinds`, and the three of a `Sum`.
    """

    kinds: list[Kind]
    numbers: list[bytes]


def sums_with(found: dict[Kind, Sum] | None, part: pa.Table, hour_ms: int) -> dict[Kind, Sum] | None:
    """The sums of a file's records, with those of one more row group; None: they take too much room.

    Args:
        found: the sums so far, which are added to.
        part: the row group, with `waybill.exporter.query.SUMMED_COLUMNS`.
        hour_ms: when the hour of the file begins, epoch milliseconds.
    """
    if found is None or sum(map(_names_bytes, part.select(KIND_COLUMNS).columns)) > _KINDS_BYTES_MAX:
        return None
    sums = summed(part, _KIND)
    # One long name may be part of many kinds.
    if sum(row_bytes(sums).to_pylist()) > _KINDS_BYTES_MAX:
        return None
    columns = sums.to_pydict().values()
    for state, system, source, sink, records, first_ms, last_ms in zip(*columns, strict=True):
        one = (records, first_ms - hour_ms, last_ms - hour_ms)
        kind = (state, system, source, sink)
        known = found.get(kind, (0, *one[1:]))
        found[kind] = (known[0] + one[0], min(known[1], one[1]), max(known[2], one[2]))
    size_bytes = sum(len(name) for kind in found for name in kind if name is not None)
    return found if size_bytes <= _KINDS_BYTES_MAX else None


def _names_bytes(column: pa.ChunkedArray) -> int:
    return sum(chunk.dictionary.nbytes for chunk in column.chunks)


def store(sums: Iterable[Mapping[Kind, Sum]]) -> StoredSums:
    """The sums of each file of a segment, as they are kept."""
    kinds: dict[Kind, int] = {}
    columns = [array("i") for _ in _NUMBERS]
    for place, of_file in enumerate(sums):
        for kind, one in of_file.items():
            row = (place, kinds.setdefault(kind, len(kinds)), *one)
            for column, number in zip(columns, row, strict=True):
                column.append(number)
    return StoredSums(list(kinds), [column.tobytes() for column in columns])


def restore(sums: StoredSums, files: int) -> list[dict[Kind, Sum]]:
    """The sums of each of so many files."""
    found: list[dict[Kind, Sum]] = [{} for _ in range(files)]
    for place, kind, *one in zip(*(memoryview(column).cast("i") for column in sums.numbers), strict=True):
        found[place][sums.kinds[kind]] = (one[0], one[1], one[2])
    return found


class SegmentSums:
    """The sums of a segment's files, to count by.

    Args:
        sums: as they were stored.
        hours_ms: when the hour of each file begins, epoch milliseconds.
    """

    def __init__(self, sums: StoredSums, hours_ms: Sequence[int]) -> None:
        columns: dict[str, Any] = {
            name: numbers_of(pa.int32(), data) for name, data in zip(_NUMBERS, sums.numbers, strict=True)
        }
        hours = numbers_of(pa.int64(), array("q", hours_ms)).take(columns["file"])
        for name in ("first", "last"):
            columns[name] = pc.add(columns[name], hours)
        self._table = pa.table({**columns, "hour": hours})
        names = [_texts(kind[at] for kind in sums.kinds) for at in range(len(KIND_COLUMNS))]
        places = numbers_of(pa.int32(), array("i", range(len(sums.kinds))))
        self._kinds = pa.table([*names, places], names=[*KIND_COLUMNS, "kind"])

    def counted(self, query: Query, by: Collection[Dimension], is_counted: bytes | None = None) -> pa.Table:
        """The sums of the records that meet the conditions on kinds, as `summed` gives them.

        Args:
            query: the conditions.
            by: the dimensions.
            is_counted: for each file whether it counts, 1 or 0; None: all do.
        """
        if is_counted is not None:
            mask = numbers_of(pa.int8(), is_counted).cast(pa.bool_())
            table = self._table.filter(mask.take(self._table["file"].combine_chunks()))
        else:
            table = self._table if Dimension.HOUR in by else self._of_all
        kinds = rows_where(self._kinds, query.by_kind())
        if kinds.num_rows < self._kinds.num_rows:
            table = table.filter(pc.is_in(table["kind"], value_set=kinds["kind"].combine_chunks()))
        if set(by) == {Dimension.HOUR}:
            return _grouped(table, ["hour"])  # Each hour may have a hundred kinds.
        grouped = _grouped(table, ["kind", "hour"] if Dimension.HOUR in by else ["kind"])
        names = self._kinds.take(grouped["kind"].combine_chunks())
        for dimension in _KIND:
            if dimension in by:
                grouped = grouped.append_column(dimension, names[dimension.column])
        return grouped.select([*(one for one in Dimension if one in by), "records", "first", "last"])

    def files_with(self, query: Query) -> frozenset[int] | None:
        """The places of the files with records that meet the conditions on kinds; None: all have some."""
        kinds = rows_where(self._kinds, query.by_kind())
        if kinds.num_rows == self._kinds.num_rows:
            return None
        is_wanted = pc.is_in(self._table["kind"], value_set=kinds["kind"].combine_chunks())
        return frozenset(self._table["file"].filter(is_wanted).unique().to_pylist())

    @functools.cached_property
    def _of_all(self) -> pa.Table:
        """The sums of all files, by kind."""
        return _grouped(self._table, ["kind"])


def _grouped(table: pa.Table, by: list[str]) -> pa.Table:
    sums = table.group_by(by, use_threads=False).aggregate(
        [("records", "sum"), ("first", "min"), ("last", "max")]
    )
    return sums.rename_columns([*by, "records", "first", "last"])


# To make an array of a list of Python's own values, Arrow would load pandas.


def numbers_of(kind: pa.DataType, data: bytes | array[int]) -> pa.Array:
    """Numbers of some type, as an Arrow array that shares their memory."""
    buffer = pa.py_buffer(data)
    return pa.Array.from_buffers(kind, buffer.size * 8 // kind.bit_width, [None, buffer])


def _texts(values: Iterable[str | None]) -> pa.Array:
    one_each = [pa.repeat(pa.scalar(value, pa.string()), 1) for value in values]
    return pa.concat_arrays(one_each or [pa.nulls(0, pa.string())])
