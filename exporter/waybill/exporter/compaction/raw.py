"""Raw files: the records of one range of the journal, a file for each hour touched.

A file's name is its range and its bytes follow from its records, so writing a range again makes the same
file. The layout never replaces a file that has the name and other bytes: it is somebody else's.

While an hour has not ended, its many small raw files are squashed: joined to few, each of one longer range. A
reader opens every raw file of an hour, and compacting again and again what still grows would rewrite all of
it each time. So a file is joined with those after it once they are as large together as it is, and a large
one is left alone until the hour is compacted: a row is rewritten few times. The larger file is published
before the smaller ones are removed. A crash in between leaves rows twice, which every reader merges; the next
squash removes what is left of the smaller ones.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.directory import compacted_in, raw_files
from waybill.exporter.ledger import root_lock
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of, raw_folder
from waybill.exporter.parallel import in_parallel
from waybill.exporter.parquet import Covers
from waybill.exporter.raw_notes import read_raw_note
from waybill.facets.arrow import SCHEMA, to_tables
from waybill.transport.files import Files, publish, publish_new

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

LARGE_BYTES: Final = 16 * 2**20
"""A raw file of this size is not made larger."""

HELD_BYTES_MAX: Final = 64 * 2**20
"""More rows than this, in memory, of one range wait on the disk."""

_SPILL_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class RawWriter:
    """Writes raw files below a root, with so many workers at once.

    Args:
        replaces: whether a file of the same name is replaced, since nobody else can have written it.
    """

    def __init__(
        self, root: Path, *, files: Files | None = None, workers: int = 1, replaces: bool = True
    ) -> None:
        self._root = root
        self._files = files or Files()
        self._workers = workers
        self._publish = publish if replaces else publish_new

    def write(self, raw: RawName, records: Sequence[ProvenanceRecord]) -> list[Hour]:
        """Write the records of one range, in any order; see `write_tables`."""
        return self.write_tables(raw, to_tables(records))

    def write_tables(self, raw: RawName, tables: Iterable[pa.Table]) -> list[Hour]:
        """Write the records of one range, tables of `SCHEMA` in any order; durable on return.

        What is too much for memory waits on the disk. It returns the hours touched, in order.

        Raises:
            FileExistsError: there is a file of this name with other bytes, its `filename2`; see `replaces`.
            OSError: a file could not be written. Others of the range may have been; writing the range again
                makes it whole.
        """
        spill: _Spill | None = None
        held: list[pa.Table] = []
        held_bytes = 0
        for table in tables:
            held.append(table)
            held_bytes += table.nbytes
            if held_bytes > HELD_BYTES_MAX:
                if spill is None:
                    self._files.make_folder(self._root)
                    spill = _Spill(self._root)
                spill.add(pa.concat_tables(held))
                held, held_bytes = [], 0
        parts = list(by_hour(pa.concat_tables(held))) if held else []
        if spill is None:
            in_parallel(lambda part: self._write(raw, part[0], [part[1]]), parts, workers=self._workers)
            return [hour for hour, _ in parts]
        with spill:
            spill.add(pa.concat_tables(held or [SCHEMA.empty_table()]))
            hours = spill.hours
            for hour in hours:
                self._write(raw, hour, spill.read(hour), rows=spill.rows(hour), spool=self._root)
        return hours

    def _write(
        self,
        raw: RawName,
        hour: Hour,
        tables: Iterable[pa.Table],
        *,
        rows: int = 0,
        spool: Path | None = None,
    ) -> None:
        encoder = parquet.Encoder(parquet.RAW_FILTERS, rows=rows, spool=spool)
        for table in tables:
            encoder.add(table)
        folder = self._root / raw_folder(hour)
        self._files.make_folder(folder)
        self._publish(self._files, folder / str(raw), encoder.finish())


class _Spill:
    """Rows that wait on the disk until all of their hour are there."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is closed by `__exit__`
        self._pieces: defaultdict[Hour, list[tuple[int, int, int]]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, table: pa.Table) -> None:
        for hour, part in by_hour(table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=_SPILL_OPTIONS) as writer:
                writer.write_table(part)
            size_bytes = self._file.write(sink.getvalue())
            self._pieces[hour].append((self._file.tell() - size_bytes, size_bytes, part.num_rows))

    @property
    def hours(self) -> list[Hour]:
        """Those that have rows, in order."""
        return sorted(self._pieces)

    def rows(self, hour: Hour) -> int:
        return sum(rows for _, _, rows in self._pieces[hour])

    def read(self, hour: Hour) -> Iterator[pa.Table]:
        """The rows of an hour, in the pieces in which they came."""
        for at, size_bytes, _ in self._pieces[hour]:
            self._file.seek(at)
            yield pa.ipc.open_stream(self._file.read(size_bytes)).read_all()


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
    keys = pa.table({"place": pc.add(pc.multiply(groups, HOUR_MS), within), "did": table["did"]})
    # Large rows of an instant are read by `did`, since not all of them may fit into memory.
    by = ["place", "did"] if table.nbytes > table.num_rows * parquet.LARGE_ROW_BYTES else ["place"]
    order = pc.sort_indices(keys, [(name, "ascending") for name in by])
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
        lost = read_raw_note(root, hour, node).minus(Covers().adding(paths)).minus(covered)
        made = []
        for group in _groups(paths, covered, large_bytes, lost):
            try:
                data = _joined([paths[raw] for raw in group])
            except parquet.DAMAGED:
                continue  # The compaction reports it.
            raw = RawName(node, group[0].first, group[-1].last)
            try:
                publish_new(files, root / raw_folder(hour) / str(raw), data)
            except FileExistsError:
                continue  # It is somebody else's; these stay as they are.
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
    for path in compacted_in(root, hour):
        try:
            covered = covered.uniting(Covers.read(parquet.open_file(path).metadata.metadata))
        except FileNotFoundError:
            continue
        except parquet.DAMAGED:
            return None
    return covered


def _groups(
    paths: dict[RawName, Path], covered: Covers, large_bytes: int, lost: Covers
) -> Iterator[list[RawName]]:
    """Small files that follow each other, as many as make a large one; the new range holds nothing else.

    None spans a range whose file is `lost`: it would look as if it were there.
    """
    group: dict[RawName, int] = {}
    for raw, path in paths.items():
        size_bytes = path.stat().st_size
        ends = size_bytes >= large_bytes or covered.has(raw)
        last = next(reversed(group), None)
        spans_lost = last is not None and lost.minus(Covers({raw.node: ((last.last, raw.first),)})) != lost
        if ends or spans_lost or sum(group.values()) >= 2 * large_bytes:
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
    rows = size_bytes = 0
    for table in (table for file in opened for table in parquet.row_groups(file)):
        full = rows + table.num_rows > parquet.ROW_GROUP or size_bytes + table.nbytes > HELD_BYTES_MAX
        if rows and full:
            _add(encoder, waiting)
            waiting, rows, size_bytes = [], 0, 0
        waiting.append(table)
        rows += table.num_rows
        size_bytes += table.nbytes
    _add(encoder, waiting)
    return encoder.finish()


def _add(encoder: parquet.Encoder, tables: list[pa.Table]) -> None:
    # In each row group the rows of a system are together, as a compaction wants them.
    for _, table in by_hour(parquet.join(tables)):
        encoder.add(table)
