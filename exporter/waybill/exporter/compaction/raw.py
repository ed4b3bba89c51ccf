"""Raw files: the records of one range of the journal, a file for each hour touched.

A file's name is its range and its bytes follow from its records, so writing a range again overwrites it.

While an hour has not ended, its many small raw files are squashed: joined to few, each of one longer range. A
reader opens every raw file of an hour, and compacting again and again what still grows would rewrite all of
it each time. So a file is joined with those after it once they are as large together as it is, and a large
one is left alone until the hour is compacted: a row is rewritten few times. The larger file is published
before the smaller ones are removed. A crash in between leaves rows twice, which every reader merges; the next
squash removes what is left of the smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.directory import compacted_in, raw_files
from waybill.exporter.ledger import root_lock
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of, raw_folder
from waybill.exporter.parallel import in_parallel
from waybill.exporter.parquet import Covers
from waybill.facets.arrow import to_table
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

LARGE_BYTES: Final = 16 * 2**20
"""A raw file of this size is not made larger."""


class RawWriter:
    """Writes raw files below a root, with so many workers at once."""

    def __init__(self, root: Path, *, files: Files | None = None, workers: int = 1) -> None:
        self._root = root
        self._files = files or Files()
        self._workers = workers

    def write(self, raw: RawName, records: Sequence[ProvenanceRecord]) -> list[Hour]:
        """Write the records of one range, in any order; see `write_table`."""
        return self.write_table(raw, to_table(records))

    def write_table(self, raw: RawName, table: pa.Table) -> list[Hour]:
        """Write the records of one range, a table of `SCHEMA` in any order; durable on return.

        It returns the hours touched, in order.

        Raises:
            OSError: a file could not be written. Others of the range may have been; writing the range again
                makes it whole.
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


def squash_hour(
    root: Path, hour: Hour, *, node: str, files: Files | None = None, large_bytes: int = LARGE_BYTES
) -> list[RawName]:
    """Join the many raw files that a node's journal, which must not write meanwhile, has for an hour to few.

    Files that a compaction has taken already, or that cannot be read, are left as they are. It returns the
    new files.

    Raises:
        OSError: a file could not be written. No row is lost; squashing again finishes the work.
    """
    files = files or Files()
    with root_lock(root, files):
        paths = {raw: path for raw, path in raw_files(root, hour).items() if raw.node == node}
        for raw in [raw for raw in paths if _is_left_over(raw, paths)]:
            files.remove(paths.pop(raw))
        covered = _covered(root, hour)
        if covered is None:
            return []
        made = []
        for group in _groups(paths, covered, large_bytes):
            try:
                data = _joined([paths[raw] for raw in group])
            except parquet.DAMAGED:
                continue  # The compaction reports it.
            raw = RawName(node, group[0].first, group[-1].last)
            publish(files, root / raw_folder(hour) / str(raw), data)
            for one in group:
                files.remove(paths[one])
            made.append(raw)
        return made


def _is_left_over(raw: RawName, among: Iterable[RawName]) -> bool:
    """Whether it was joined to a larger file, since ranges of one journal do not overlap otherwise."""
    return any(other != raw and other.first <= raw.first and raw.last <= other.last for other in among)


def _covered(root: Path, hour: Hour) -> Covers | None:
    """The ranges that the hour's compacted files cover; None where one cannot be read."""
    covered = Covers()
    for _, path in compacted_in(root, hour):
        try:
            covered = covered.uniting(Covers.read(parquet.open_file(path).metadata.metadata))
        except FileNotFoundError:
            continue
        except parquet.DAMAGED:
            return None
    return covered


def _groups(paths: dict[RawName, Path], covered: Covers, large_bytes: int) -> Iterator[list[RawName]]:
    """Small files that follow each other, as many as make a large one; the new range holds nothing else."""
    group: dict[RawName, int] = {}
    for raw, path in paths.items():
        size_bytes = path.stat().st_size
        ends = size_bytes >= large_bytes or covered.has(raw)
        if ends or sum(group.values()) >= 2 * large_bytes:
            yield from _worthwhile(group)
            group = {}
        if not ends:
            group[raw] = size_bytes
    yield from _worthwhile(group)


def _worthwhile(group: dict[RawName, int]) -> Iterator[list[RawName]]:
    """The group, given with sizes in bytes, without the first files that are larger than all after them."""
    raws, after_bytes = list(group), sum(group.values())
    while len(raws) > 1:
        after_bytes -= group[raws[0]]
        if group[raws[0]] <= after_bytes:
            yield raws
            return
        raws.pop(0)


def _joined(paths: Sequence[Path]) -> memoryview:
    """The rows of several files as one file, encoded with about a row group at a time in memory."""
    opened = (parquet.open_file(path) for path in paths)
    rows = sum(parquet.open_file(path).metadata.num_rows for path in paths)
    encoder = parquet.Encoder(parquet.RAW_FILTERS, rows=rows)
    waiting: list[pa.Table] = []
    rows = 0
    for table in (table for file in opened for table in parquet.row_groups(file)):
        if rows and rows + table.num_rows > parquet.ROW_GROUP:
            _add(encoder, waiting)
            waiting, rows = [], 0
        waiting.append(table)
        rows += table.num_rows
    _add(encoder, waiting)
    return encoder.finish()


def _add(encoder: parquet.Encoder, tables: list[pa.Table]) -> None:
    # In each row group the rows of a system are together, as a compaction wants them.
    for _, table in by_hour(parquet.join(tables)):
        encoder.add(table)
