"""What records have in common: the most frequent names of each dimension, and how many ended when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.exporter.query import Dimension, TooManyError
from waybill.facets import FinalState
from waybill.facets.record import AFTER_LAST_MS

if TYPE_CHECKING:
    import pyarrow as pa

NAMES_MAX: Final = 12
"""So many names of each dimension are counted, the most frequent first; further ones together."""

BARS_MAX: Final = 72
KINDS_BYTES_MAX: Final = 128 * 2**20
"""So much memory all kinds of records may take."""

_HOUR_MS: Final = 3_600_000
_WIDTHS_HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 168, 720, 2_160, 8_760, 87_600, 876_000)
_KINDS: Final = (Dimension.STATE, Dimension.SYSTEM, Dimension.SOURCE, Dimension.SINK)

Sum = Callable[["Sequence[Dimension]"], Iterable[Any]]
"""Gives tables of sums by some dimensions, as `waybill.exporter.query.summed` does."""


class Count(msgspec.Struct, frozen=True):
    """How many records have a name; without a name, they left through no sink."""

    name: str | None
    records: int


class Span(msgspec.Struct, frozen=True):
    """How many records ended within a span, in epoch milliseconds, and how many of them with an error."""

    since_ms: int
    until_ms: int
    records: int
    errors: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What records have in common.

    Attributes:
        total: how many records there are.
        names: by state, system, source and sink, the most frequent names.
        others: by the same, how many records have further names.
        spans: how many ended when.
    """

    total: int
    names: dict[str, list[Count]]
    others: dict[str, int]
    spans: list[Span]


def count_records(sum_by: Sum, *, is_by_kind: bool) -> Counts:
    """Count records by their names and by the time of their end.

    Args:
        sum_by: sums them.
        is_by_kind: whether the keys have the sums; otherwise files are read, and so only once.

    Raises:
        TooManyError: their kinds take more than `KINDS_BYTES_MAX`.
    """
    import pyarrow.compute as pc

    hours = (Dimension.STATE, Dimension.HOUR)
    sums = _summed(sum_by, _KINDS if is_by_kind else (*_KINDS, Dimension.HOUR))
    if not sums.num_rows:
        names, others = {one.field: list[Count]() for one in _KINDS}, {one.field: 0 for one in _KINDS}
        return Counts(total=0, names=names, others=others, spans=[])
    total = pc.sum(sums["records"]).as_py()
    names = {one.field: _most_frequent(sums, one) for one in _KINDS}
    others = {field: total - sum(one.records for one in counts) for field, counts in names.items()}
    by_hour = _grouped(_summed(sum_by, hours) if is_by_kind else sums, hours)
    return Counts(total=total, names=names, others=others, spans=_by_time(by_hour))


def _summed(sum_by: Sum, by: Sequence[Dimension]) -> pa.Table:
    import pyarrow as pa

    tables, size_bytes = [pa.table({})], 0
    for table in sum_by(by):
        size_bytes += table.nbytes
        if size_bytes > KINDS_BYTES_MAX:
            detail = f"the kinds of records take more than {KINDS_BYTES_MAX:,} bytes"
            raise TooManyError(f"{detail}; narrow the query")
        tables.append(table)
    return pa.concat_tables(tables[1:] or tables)


def _grouped(sums: pa.Table, by: Sequence[Dimension]) -> pa.Table:
    return sums.group_by(list(by), use_threads=False).aggregate([("records", "sum")])


def _most_frequent(sums: pa.Table, dimension: Dimension) -> list[Count]:
    import pyarrow.compute as pc

    counts = _grouped(sums, [dimension])
    order = [("records_sum", "descending"), (dimension, "ascending")]
    first = counts.take(pc.select_k_unstable(counts, NAMES_MAX, order))
    return [Count(*one) for one in zip(*first.to_pydict().values(), strict=True)]


def _by_time(sums: pa.Table) -> list[Span]:
    """The records by the time of their end, in at most `BARS_MAX` spans of whole hours."""
    by_hour, errors = Counter[int](), Counter[int]()
    for state, hour, count in zip(*sums.to_pydict().values(), strict=True):
        by_hour[hour] += count
        errors[hour] += count if state == FinalState.ERROR else 0
    first, last = min(by_hour), max(by_hour)
    hours = (last - first) // _HOUR_MS + 1
    widest = -(-hours // (BARS_MAX - 1))
    width_ms = next((width for width in _WIDTHS_HOURS if width >= widest), widest) * _HOUR_MS
    begin = first - first % width_ms
    spans = {at: [0, 0] for at in range(begin, last + 1, width_ms)}
    for hour, count in by_hour.items():
        span = spans[hour - hour % width_ms]
        span[0] += count
        span[1] += errors[hour]
    return [Span(at, min(at + width_ms, AFTER_LAST_MS), *counted) for at, counted in spans.items()]
