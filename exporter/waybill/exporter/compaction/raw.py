"""Raw files: the records of one range of the journal, one file per hour touched.

A file's name is its range and its bytes follow from its records, so writing a range again overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of, raw_folder
from waybill.exporter.parallel import in_parallel
from waybill.facets.arrow import to_table
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord


class RawWriter:
    """Writes raw files below a root.

    Args:
        root: the layout's root.
        files: the file system.
        workers: how many files are written at once.
    """

    def __init__(self, root: Path, *, files: Files | None = None, workers: int = 1) -> None:
        self._root = root
        self._files = files or Files()
        self._workers = workers

    def write(self, raw: RawName, records: Sequence[ProvenanceRecord]) -> list[Hour]:
        """Write the records of one range, in any order; see `write_table`."""
        return self.write_table(raw, to_table(records))

    def write_table(self, raw: RawName, table: pa.Table) -> list[Hour]:
        """Write the records of one range, durable on return.

        Args:
            raw: the range that the records come from.
            table: the records, of `waybill.facets.arrow.SCHEMA`, in any order.

        Returns:
            The hours touched, in order.

        Raises:
            OSError: a file could not be written; others of the range may have been, and writing it again
                mends it.
        """
        parts = list(by_hour(table))
        in_parallel(lambda part: self._publish(raw, *part), parts, workers=self._workers)
        return [hour for hour, _ in parts]

    def _publish(self, raw: RawName, hour: Hour, table: pa.Table) -> None:
        folder = self._root / raw_folder(hour)
        self._files.make_folder(folder)
        publish(self._files, folder / str(raw), parquet.encode(table, parquet.RAW_FILTERS))


def by_hour(table: pa.Table) -> Iterator[tuple[Hour, pa.Table]]:
    """Cut a table by hour; in each part a system's rows are together, as a compaction wants them."""
    if not table.num_rows:
        return
    table = table.combine_chunks()
    systems = table["system_name"].combine_chunks().dictionary_encode()
    completed = table["completed"].combine_chunks().cast(pa.int64())
    hours = pc.divide(completed, HOUR_MS)
    # One number orders by hour, system and time, which sorts several times faster than the columns do.
    groups = pc.add(pc.multiply(hours, len(systems.dictionary)), systems.indices.cast(pa.int64()))
    within = pc.subtract(completed, pc.multiply(hours, HOUR_MS))
    order = pc.sort_indices(pc.add(pc.multiply(groups, HOUR_MS), within))
    table, hours = table.take(order), hours.take(order)
    start = 0
    for run in pc.value_counts(hours).to_pylist():
        yield hour_of(run["values"] * HOUR_MS), table.slice(start, run["counts"])
        start += run["counts"]
