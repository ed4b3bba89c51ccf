"""Raw files: the records of one range of the journal, one file for each hour touched.

A file's name is its range, and its bytes follow from its records, so writing a range again makes the same
file. The layout never replaces a file that has the same name but other bytes: it was written by somebody
else.

Until an hour has ended, its many small raw files are squashed: joined into a few, each of one longer range. A
reader opens every raw file of an hour, and compacting a growing hour again and again would rewrite all of it
each time. So a file is joined with the files after it once they are together as large as it is, and a large
file is left alone until the hour is compacted. Thus each row is rewritten only a few times. The larger file
is published before the smaller ones are removed. A crash in between leaves duplicate rows, which every reader
merges; the next squash removes the remaining smaller files.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import AnnotationRule
from waybill.facets.arrow import SCHEMA, to_tables
from waybill.transport.files import Files, publish, publish_new

from .. import parquet
from ..directory import compacted_files, raw_files
from ..ledger import root_lock
from ..names import HOUR_MS, Hour, RawName, hour_of, raw_folder
from ..parallel import in_parallel
from ..parquet import Covers, Rules
from ..raw_notes import read_raw_note

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

LARGE_BYTES: Final = 16 * 2**20
"""A raw file of at least this size is not made larger."""

HELD_BYTES_MAX: Final = 64 * 2**20
"""If a range has more rows than this in memory, they are spilled to disk."""

_DEFAULT_RULE: Final = AnnotationRule()
_SPILL_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class RawWriter:
    """Writes raw files below a root, with several workers at once.

    Args:
        rule: the rule of annotations that the rows were written by; the files name it.
        replaces: whether a file of the same name is replaced, because nobody else can have written it.
    """

    def __init__(
        self,
        root: Path,
        *,
        rule: AnnotationRule = _DEFAULT_RULE,
        files: Files | None = None,
        workers: int = 1,
        replaces: bool = True,
    ) -> None:
        self._root = root
        self._rules = Rules.of(rule)
        self._files = files or Files()
        self._workers = workers
        self._publish = publish if replaces else publish_new

    def write(self, raw: RawName, records: Sequence[ProvenanceRecord]) -> list[Hour]:
        """Write the records of one range, in any order; see `write_tables`."""
        return self.write_tables(raw, to_tables(records))

    def write_tables(self, raw: RawName, tables: Iterable[pa.Table]) -> list[Hour]:
        """Write the records of one range, tables of `SCHEMA` in any order; durable on return.

        Rows that do not fit into memory are spilled to disk. Returns the hours touched, in order.

        Raises:
            FileExistsError: a file of this name, its `filename2`, has other bytes; see `replaces`.
            OSError: a file could not be written. Other files of the range may be written; writing the range
                again completes it.
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
        self._publish(self._files, folder / str(raw), encoder.finish(self._rules.metadata()))


class _Spill:
    """Rows spilled to disk until all rows of their hour are there."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `__exit__`
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
        """The hours that have rows, in order."""
        return sorted(self._pieces)

    def rows(self, hour: Hour) -> int:
        return sum(rows for _, _, rows in self._pieces[hour])

    def read(self, hour: Hour) -> Iterator[pa.Table]:
        """The rows of an hour, in the pieces in which they came."""
        for at, size_bytes, _ in self._pieces[hour]:
            self._file.seek(at)
            yield pa.ipc.open_stream(self._file.read(size_bytes)).read_all()


def by_hour(table: pa.Table) -> Iterator[tuple[Hour, pa.Table]]:
    """Split a table by hour; in each part a system's rows are together, as a compaction needs them."""
    if not table.num_rows:
        return
    table = table.combine_chunks()
    systems = table["system_name"].combine_chunks().dictionary_encode()
    completed = table["completed"].combine_chunks().cast(pa.int64())
    hours = pc.divide(completed, HOUR_MS)
    # One number encodes hour, system and time; sorting by it is several times faster than by the columns.
    groups = pc.add(pc.multiply(hours, len(systems.dictionary)), systems.indices.cast(pa.int64()))
    within = pc.subtract(completed, pc.multiply(hours, HOUR_MS))
    keys = pa.table({"place": pc.add(pc.multiply(groups, HOUR_MS), within), "did": table["did"]})
    # Large rows of one instant are read by `did`, because they may not all fit into memory.
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
    """Join a node's many raw files of an hour into a few; its journal must not write meanwhile.

    Files that have already been compacted, or that cannot be read, are left as they are. Returns the new
    files.

    Raises:
        OSError: a file could not be written. No row is lost; squashing again completes the work.
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
                continue  # The compaction will report it.
            raw = RawName(node, group[0].first, group[-1].last)
            try:
                publish_new(files, root / raw_folder(hour) / str(raw), data)
            except FileExistsError:
                continue  # Somebody else wrote it; the small files stay as they are.
            for one in group:
                files.remove(paths[one])
            made.append(raw)
        return made


def _is_left_over(raw: RawName, among: Iterable[RawName]) -> bool:
    """Whether it was joined into a larger file: only then do ranges of one journal overlap."""
    return any(other != raw and other.first <= raw.first and raw.last <= other.last for other in among)


def _covered(root: Path, hour: Hour) -> Covers | None:
    """The ranges that the hour's compacted files cover; None if a file cannot be read."""
    covered = Covers()
    for path in compacted_files(root, [hour])[hour]:
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
    """Groups of consecutive small files to join; a group's range contains no other file.

    No group spans a range whose file is `lost`, because that file would then seem to exist.
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
    """The group, by size in bytes, without leading files that are larger than all later ones together."""
    raws, after_bytes = list(group), sum(group.values())
    while len(raws) > 1:
        after_bytes -= group[raws[0]]
        if group[raws[0]] <= after_bytes:
            yield raws
            return
        raws.pop(0)


def _joined(paths: Sequence[Path]) -> memoryview:
    """Encode the rows of several files as one file, with about one row group in memory at a time."""
    opened = (parquet.open_file(path) for path in paths)
    footers = [parquet.open_file(path).metadata for path in paths]
    rules = Rules().uniting(Rules.read(footer.metadata) for footer in footers)
    encoder = parquet.Encoder(parquet.RAW_FILTERS, rows=sum(footer.num_rows for footer in footers))
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
    return encoder.finish(rules.metadata())


def _add(encoder: parquet.Encoder, tables: list[pa.Table]) -> None:
    # In each row group a system's rows are together, as a compaction needs them.
    for _, table in by_hour(parquet.join(tables)):
        encoder.add(table)
