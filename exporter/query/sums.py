"""Counting the records of an answer, by what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .conditions import InvalidQueryError
from .query import TooManyError


class Dimension(StrEnum):
    """What records may be counted by; an hour is that of `completed`, in UTC."""

    STATE = "state"
    SYSTEM = "system"
    SOURCE = "source"
    SINK = "sink"
    HOUR = "hour"

    @property
    def column(self) -> str:
        """The column of the records that it is taken from."""
        return _COLUMNS[self]

    @property
    def field(self) -> str:
        """Its name in JSON: that of its column; an hour is only a part of its own."""
        return self.value if self is Dimension.HOUR else self.column


KIND_COLUMNS: Final = ("final_state", "system_name", "data_source", "data_sink")
"""The columns that records of one kind have in common."""

SUMMED_COLUMNS: Final = (*KIND_COLUMNS, "completed")
"""The columns of records that are summed."""

_COLUMNS: Final = dict(zip(Dimension, SUMMED_COLUMNS, strict=True))


def read_dimensions(text: str | None) -> tuple[Dimension, ...]:
    """The dimensions that a text names with commas between them; none if there is no text.

    Raises:
        InvalidQueryError: it names another.
    """
    names = () if text is None else dict.fromkeys(name.strip().lower() for name in text.split(","))
    for name in names:
        if name not in set(Dimension):
            raise InvalidQueryError("by", name[:40], f"is not one of {', '.join(Dimension)}")
    return tuple(map(Dimension, names))


Kind = tuple[str | int | None, ...]
"""A value of each dimension: an hour as the epoch milliseconds of its start; None for no sink."""


STATS_BY: Final = (Dimension.STATE, Dimension.SYSTEM, Dimension.SOURCE)
"""The dimensions of `Stats`."""


class Stats(msgspec.Struct, kw_only=True):
    """The number of records by kind; instants in epoch milliseconds.

    Attributes:
        unended_files: how many further files and runs have not ended that meet the conditions too; with
            `missing_sink`, how many of these did not get there.
    """

    total_records: int = 0
    by_final_state: dict[str, int] = {}
    by_system_name: dict[str, int] = {}
    by_data_source: dict[str, int] = {}
    oldest_record: int | None = None
    newest_record: int | None = None
    unended_files: int = 0


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of one kind; it has only the fields that were counted by.

    Attributes:
        data_sink: None: through no sink.
        hour: its start, in epoch milliseconds.
    """

    final_state: str | msgspec.UnsetType = msgspec.UNSET
    system_name: str | msgspec.UnsetType = msgspec.UNSET
    data_source: str | msgspec.UnsetType = msgspec.UNSET
    data_sink: str | msgspec.UnsetType | None = msgspec.UNSET
    hour: int | msgspec.UnsetType = msgspec.UNSET
    count: int


def summed(records: pa.Table, by: Collection[Dimension]) -> pa.Table:
    """How many records are of one kind by some dimensions, from a table with `SUMMED_COLUMNS`.

    The columns are these dimensions in order; `records`, how many there are; and `first` and `last`, their
    earliest and latest `completed`. Instants are epoch milliseconds. Texts may still be shared.
    """
    wanted = [one for one in Dimension if one in by]
    columns = [_values(records, one) for one in wanted]
    table = pa.table([*columns, records["completed"].cast(pa.int64())], names=[*wanted, "at"])
    counts = [([], "count_all"), ("at", "min"), ("at", "max")]
    sums = table.group_by(wanted, use_threads=False).aggregate(counts)
    return sums.rename_columns([*wanted, "records", "first", "last"])


def _values(records: pa.Table, dimension: Dimension) -> pa.ChunkedArray:
    values = records[dimension.column]
    if dimension is not Dimension.HOUR:
        return values
    return pc.floor_temporal(values, unit="hour").cast(pa.int64())


_KIND_BYTES: Final = 64
"""A kind in an answer, besides its names."""


def sums_of(
    tables: Iterable[pa.Table], by: Sequence[Dimension], *, names_bytes_max: int | None = None
) -> dict[Kind, int]:
    """The number of records of each kind, in order of the dimensions; no sink comes before any.

    Args:
        tables: sums of the records by these dimensions, as `summed` gives them.
        by: the dimensions; without any, there is one kind, and its number is that of all records.
        names_bytes_max: how many bytes all kinds may have, with their names.

    Raises:
        TooManyError: they have more.
    """
    counts: Counter[Kind] = Counter()
    size_bytes = 0
    for table in tables:
        for kind, count in _counted(table, by):
            if kind not in counts:
                size_bytes += _KIND_BYTES + sum(len(value) for value in kind if isinstance(value, str))
            counts[kind] += count
        _check_size(size_bytes, names_bytes_max)
    if not by:
        return {(): counts[()]}
    return dict(sorted(counts.items(), key=lambda one: [(value is not None, value) for value in one[0]]))


def told_sums(sums: Mapping[Kind, int], by: Sequence[Dimension]) -> list[Sum]:
    """What `sums_of` gives by these dimensions, as programs exchange it."""
    fields = [one.field for one in by]
    values = ({**dict(zip(fields, kind, strict=True)), "count": count} for kind, count in sums.items())
    return [msgspec.convert(one, Sum) for one in values]


def heard_sums(told: Iterable[Sum], by: Sequence[Dimension]) -> dict[Kind, int]:
    """What a program was told, as `sums_of` gives it."""
    return {tuple(getattr(one, dimension.field) for dimension in by): one.count for one in told}


def _counted(table: pa.Table, by: Sequence[Dimension]) -> Iterator[tuple[Kind, int]]:
    if not by:
        yield (), pc.sum(table["records"]).as_py() or 0
        return
    sums = table.group_by(list(by), use_threads=False).aggregate([("records", "sum")])
    for *kind, count in zip(*sums.to_pydict().values(), strict=True):
        yield tuple(kind), count


def stats_of(tables: Iterable[pa.Table], *, names_bytes_max: int | None = None) -> Stats:
    """The statistics of records, from their sums by `STATS_BY`; raises what `sums_of` does."""
    stats = Stats()
    counts: dict[Dimension, Counter[str]] = {one: Counter() for one in STATS_BY}
    size_bytes = 0
    for table in tables:
        if not table.num_rows:
            continue
        stats.total_records += pc.sum(table["records"]).as_py()
        for dimension, counter in counts.items():
            for (name,), count in _counted(table, [dimension]):
                if name not in counter:
                    size_bytes += len(str(name))
                counter[str(name)] += count
        _check_size(size_bytes, names_bytes_max)
        first, last = pc.min(table["first"]).as_py(), pc.max(table["last"]).as_py()
        stats.oldest_record = min(first, stats.oldest_record or first)
        stats.newest_record = max(last, stats.newest_record or last)
    stats.by_final_state, stats.by_system_name, stats.by_data_source = (
        dict(sorted(counter.items())) for counter in counts.values()
    )
    return stats


def _check_size(size_bytes: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size_bytes > max_bytes:
        raise TooManyError(f"the kinds alone take more than {max_bytes:,} bytes; narrow the query")
