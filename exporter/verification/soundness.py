"""Checking the rows of a file of the layout, with a part of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import FinalState

from .. import parquet
from ..parquet import WINDOW_ROWS, in_windows, merge_table

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ..names import Hour


class Rows:
    """The rows of one open file, which belong to an hour; raises `DAMAGED` if it cannot be read.

    Attributes:
        systems: the systems of the rows.
        elsewhere: how many rows completed in another hour.
        stateless: how many have an unknown final state.
        is_sorted: whether they are in order of `completed` and `did`.
    """

    def __init__(self, file: pq.ParquetFile, hour: Hour) -> None:
        self._file = file
        self._hour = hour
        self._end: pa.Table | None = None
        self._states = pa.array([state.value for state in FinalState], pa.string())
        self.systems: set[str] = set()
        self.elsewhere = 0
        self.stateless = 0
        self.is_sorted = True
        self._whole: pa.Table | None = None
        for table in parquet.row_groups(file):
            self._whole = table if file.num_row_groups == 1 else None
            self._add(table)

    def repeats(self) -> int:
        """Count the rows that repeat a record of the file; raises `DAMAGED` if it cannot be read."""
        if self._whole is not None:
            return int(self._whole.num_rows - merge_table(self._whole).num_rows)
        tables = in_windows(
            parquet.spans(self._file.metadata),
            WINDOW_ROWS,
            lambda room: parquet.read_window(self._file, room),
        )
        return sum(table.num_rows - merge_table(table).num_rows for table in tables)

    def faults(self) -> Iterator[tuple[str, str]]:
        """The findings about the rows of any file of the layout: the kind, and a sentence."""
        if self.elsewhere:
            yield "hour", f"{self.elsewhere} of its rows completed in another hour; rebuild both"
        if self.stateless:
            yield "state", f"{self.stateless} of its rows have an unknown final state; rebuild the hour"

    def _add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        completed = table["completed"].cast(pa.int64())
        begins, ends = self._hour.start_ms, self._hour.end_ms
        elsewhere = pc.or_(pc.less(completed, begins), pc.greater_equal(completed, ends))
        self.elsewhere += pc.sum(elsewhere).as_py() or 0
        known = pc.is_in(table["final_state"].cast(pa.string()), self._states)
        self.stateless += pc.sum(pc.invert(known)).as_py() or 0
        self.systems.update(table["system_name"].cast(pa.string()).unique().to_pylist())
        ordered = table.select(["completed", "did"])
        joined = ordered if self._end is None else pa.concat_tables([self._end, ordered])
        self.is_sorted = self.is_sorted and _is_sorted(joined)
        self._end = ordered.slice(table.num_rows - 1)


def _is_sorted(table: pa.Table) -> bool:
    last = table.num_rows - 1
    completed, did = (table[name].combine_chunks() for name in ("completed", "did"))
    earlier = pc.less(completed.slice(0, last), completed.slice(1))
    tied = pc.equal(completed.slice(0, last), completed.slice(1))
    follows = pc.less_equal(did.slice(0, last), did.slice(1))
    return pc.all(pc.or_(earlier, pc.and_(tied, follows)), min_count=0).as_py() is True
