"""Comparing two roots, record by record.

An hour at a time is in memory. Its rows are compared as columns, a stretch at a time; only where stretches
differ do rows become records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.query.reader import scan_hours
from waybill.facets import ProvenanceRecord, record_key
from waybill.facets.arrow import PIECE_BYTES, SCHEMA, from_table

_STRETCH_ROWS: Final = 16_384


class Difference(msgspec.Struct, frozen=True):
    """The two records of a natural key that two roots do not hold alike; None for a root that has none."""

    ours: ProvenanceRecord | None
    theirs: ProvenanceRecord | None


def compare(ours: Path, theirs: Path) -> Iterator[Difference]:
    """The differences between the records of two roots, by hour, whichever files they are in.

    Raises:
        IncompleteError: a file of a root could not be read, or is in quarantine, so that its records count as
            missing; all that could be read came before.
        OSError: a folder could not be read.
    """
    for tables in scan_hours(ours, theirs):
        mine, other = (parquet.sort(table, "completed") for table in tables)
        for stretches in _stretches(mine, other):
            one, two = map(_decoded, stretches)
            if not one.equals(two):
                yield from _by_key(from_table(one), from_table(two))


def _stretches(ours: pa.Table, theirs: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Both tables cut at the same instants, so that no key is in two stretches."""
    decoded_bytes = pc.sum(parquet.row_bytes(ours)).as_py() or 1
    rows = max(min(_STRETCH_ROWS, PIECE_BYTES * ours.num_rows // decoded_bytes), 1)
    mine_from = other_from = 0
    while mine_from < ours.num_rows:
        last = ours["completed"][min(mine_from + rows, ours.num_rows) - 1]
        mine_to, other_to = _after(ours, last), _after(theirs, last)
        yield ours.slice(mine_from, mine_to - mine_from), theirs.slice(other_from, other_to - other_from)
        mine_from, other_from = mine_to, other_to
    yield ours.slice(mine_from), theirs.slice(other_from)


def _decoded(stretch: pa.Table) -> pa.Table:
    return parquet.sort(stretch.cast(SCHEMA), "completed", "did", "system_name").combine_chunks()


def _after(table: pa.Table, instant: pa.Scalar) -> int:
    """How many rows completed at an instant or before."""
    count: int = pc.sum(pc.less_equal(table["completed"], instant)).as_py() or 0
    return count


def _by_key(ours: list[ProvenanceRecord], theirs: list[ProvenanceRecord]) -> Iterator[Difference]:
    mine = {record_key(record): record for record in ours}
    other = {record_key(record): record for record in theirs}
    for key in (*mine, *(key for key in other if key not in mine)):
        one, two = mine.get(key), other.get(key)
        if one != two:
            yield Difference(one, two)
