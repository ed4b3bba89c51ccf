"""One piece of a rebuild: a part of the source is read, or some buckets of runs are folded.

Each piece writes raw files of its own numbers, so that doing it again overwrites them. Pieces share nothing:
they are done in any order, by any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.compaction import HELD_BYTES_MAX, RawWriter
from waybill.exporter.exporting import BlobStore
from waybill.exporter.names import Hour, RawName
from waybill.exporter.rebuilding.spill import GatheredRuns, Spill, StatesByRun, read_bucket
from waybill.exporter.rebuilding.wanted import Wanted
from waybill.exporter.sources import Source, SourceError, SourceUnreachableError, Stored
from waybill.exporter.stored_records import decode_entries
from waybill.facets import UNREADABLE, has_record, observe, records_of
from waybill.facets.arrow import SCHEMA
from waybill.transport.files import Files
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS: Final = 2**20
"""How many numbers of raw files each piece has for itself."""
RUNS_MAX: Final = 50_000
_SAID_BYTES_MAX: Final = 256 * 2**20  # as many bytes of events are folded before their runs are spilled


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a rebuild each process has in memory at once.

    Attributes:
        records: as many records go into one raw file.
        runs: as many runs are held before they are spilled.
        fold_bytes: as much of spilled runs is folded at once.
        writers: as many threads write raw files; most of a small file's time is its fsync.
    """

    records: int = 100_000
    runs: int = RUNS_MAX
    fold_bytes: int = 16 * 2**20
    writers: int = 4


class PartReport(msgspec.Struct, kw_only=True):
    """What became of one part of the source.

    Attributes:
        records: how many records were written, before repeats are merged.
        unreadable: how many entries hold no event or records.
        first_unreadable: a sentence about the first of these.
        damaged: a sentence about the part itself if it could not be read to its end.
        hours: those that raw files were written for.
        state_bytes: by bucket, the size of the runs that are to be folded.
    """

    entries: int = 0
    records: int = 0
    unreadable: int = 0
    first_unreadable: str | None = None
    damaged: str | None = None
    hours: set[Hour] = set()
    state_bytes: list[int] = []

    def note(self, place: str, error: Exception) -> None:
        """Note an entry that cannot be read."""
        self.unreadable += 1
        if self.first_unreadable is None:
            self.first_unreadable = f"{place}: {' '.join(str(error).split())}"


class Task(msgspec.Struct, frozen=True):
    """What all pieces of one rebuild have in common; the processes that do them get a copy."""

    source: Source
    root: Path
    wanted: Wanted
    node: str
    store: BlobStore
    files: Files
    limits: Limits


class _Writing:
    """The records of one piece on their way to raw files."""

    def __init__(self, task: Task, piece: int) -> None:
        self.hours: set[Hour] = set()
        self.count = 0
        self._writer = RawWriter(task.root, files=task.files, workers=task.limits.writers)
        self._records_max = task.limits.records
        self._node = task.node
        self._next, self._last = piece * _NUMBERS + 1, (piece + 1) * _NUMBERS
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, records: pa.Table) -> None:
        if self._rows >= self._records_max or self._bytes >= HELD_BYTES_MAX:
            self._write(self._next)
        self._pending.append(records)
        self._rows += records.num_rows
        self._bytes += records.nbytes

    def finish(self) -> None:
        # The last file takes all remaining numbers, so that the compacted files cover one range.
        self._write(self._last)

    def _write(self, last: int) -> None:
        if self._rows:
            raw = RawName(self._node, self._next, last)
            self.hours.update(self._writer.write_tables(raw, self._pending))
        self.count += self._rows
        self._pending, self._rows, self._bytes = [], 0, 0
        self._next = last + 1


def runs_name(index: int) -> str:
    """The name under which a part's runs are kept; once they are, the part is done."""
    return f"runs-{index:07}.arrow"


def read_part(task: Task, part: str, index: int) -> PartReport:
    """Read one part: records with the facet become raw files, the other runs are kept to be folded.

    Where it raises `OSError`, reading the part again mends it.
    """
    report, writing, spill = PartReport(), _Writing(task, index), Spill()
    found = partial(task.source.read, part), partial(task.source.place, part)
    for records, runs in read_folded(*found, task.wanted, report, runs_max=task.limits.runs):
        writing.add(records)
        if runs:
            spill.add(runs)
    writing.finish()
    report.hours, report.records, report.state_bytes = writing.hours, writing.count, spill.state_bytes
    with task.store.writing(runs_name(index)) as path:
        task.files.write(path, spill.encode(msgspec.json.encode(report)))
    return report


def read_folded(
    read: Callable[[], Iterable[Sequence[Stored]]],
    place: Callable[[int], str],
    wanted: Wanted,
    report: PartReport,
    *,
    runs_max: int = RUNS_MAX,
) -> Iterator[tuple[pa.Table, StatesByRun]]:
    """Read one part, a bounded piece at a time: the records that entries hold, and the runs without any.

    `read` and `place` are those of `Source`, for this part. The report gets the number of entries, and what
    cannot be read. About `runs_max` runs come at once. Raises `OSError` or `SourceUnreachableError` if the
    source cannot be read now.
    """
    runs, runs_bytes = GatheredRuns(), 0
    try:
        for batch in read():
            report.entries += len(batch)
            records = _read(batch, wanted, runs, lambda at, error: report.note(place(at), error))
            runs_bytes += sum(len(stored.body) for stored in batch if stored.kind is Kind.OPENLINEAGE)
            full = len(runs) >= runs_max or runs_bytes >= _SAID_BYTES_MAX
            yield records, runs.states() if full else {}
            if full:
                runs, runs_bytes = GatheredRuns(), 0
    except SourceUnreachableError:
        raise
    except SourceError as error:
        report.damaged = str(error)
    yield SCHEMA.empty_table(), runs.states()


def _read(
    batch: Sequence[Stored], wanted: Wanted, runs: GatheredRuns, on_error: Callable[[int, Exception], None]
) -> pa.Table:
    """Return the records that entries hold by themselves, and add to `runs` what the other events say."""
    found = decode_entries(
        batch,
        system_name=wanted.system_name,
        allowed=wanted.annotations_allowed,
        on_error=lambda stored, error: on_error(stored.at, error),
    )
    for stored, event in zip(batch, found.events, strict=True):
        if event is None:
            continue
        # Nothing else that is said of a run with the facet counts.
        state = None
        if not has_record(event):
            try:
                state = observe(event, system_name=stored.system_name or wanted.system_name)
            except UNREADABLE as error:
                on_error(stored.at, error)
                continue
        runs.add(event.run.runId, state)
    return wanted.rows(found.records)


def fold_buckets(task: Task, buckets: Sequence[int], parts: int, piece: int) -> PartReport:
    """Fold the runs of some buckets of every part, and write the records that are derived.

    Where it raises `OSError`, folding the buckets again mends it.
    """
    writing = _Writing(task, piece)
    for bucket in buckets:
        runs = GatheredRuns()
        for index in range(parts):
            if (file := task.store.open(runs_name(index))) is not None:
                with file:
                    for run_id, state in read_bucket(file, bucket):
                        runs.add(run_id, state)
        derived = (
            record for state in runs.states().values() if state is not None for record in records_of(state)
        )
        for table in task.wanted.tables(derived):
            writing.add(table)
    writing.finish()
    return PartReport(hours=writing.hours, records=writing.count)
