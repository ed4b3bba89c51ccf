"""One piece of a rebuild: reading a part of the source, or folding some buckets of runs.

Each piece writes raw files with its own numbers, so repeating it overwrites them. Pieces share nothing, and
can be done in any order by any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import UNREADABLE, has_record, observe, records_of
from waybill.facets.arrow import SCHEMA
from waybill.transport.files import Files
from waybill.transport.journal import Kind

from ..compaction import HELD_BYTES_MAX, RawWriter
from ..exporting import BlobStore
from ..names import Hour, RawName
from ..sources import Source, SourceError, SourceUnreachableError, Stored
from ..stored_records import decode_entries
from .coalesced import CoalescedFlow, counted_flows
from .spill import GatheredRuns, Spill, StatesByRun, read_bucket
from .wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS: Final = 2**20
"""How many numbers for raw files each piece has to itself."""
RUNS_MAX: Final = 50_000
_SAID_BYTES_MAX: Final = 256 * 2**20  # how many bytes of events are folded before their runs are spilled


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on how much of a rebuild each process has in memory at once.

    Attributes:
        records: how many records go into one raw file.
        runs: how many runs are held before they are spilled.
        fold_bytes: how many bytes of spilled runs are folded at once.
        writers: how many threads write raw files; a small file spends most of its time in fsync.
    """

    records: int = 100_000
    runs: int = RUNS_MAX
    fold_bytes: int = 16 * 2**20
    writers: int = 4


class PartReport(msgspec.Struct, kw_only=True):
    """The result of one part of the source.

    Attributes:
        records: how many records were written, before duplicates are merged.
        unreadable: how many entries contain no event or records.
        first_unreadable: a sentence about the first such entry.
        damaged: a sentence about the part itself, if it could not be read to its end.
        hours: the hours that raw files were written for.
        coalesced: files that are only counted, from all runs that were folded.
        has_summaries: whether some runs only count files.
        state_bytes: by bucket, the size of the runs to fold.
    """

    entries: int = 0
    records: int = 0
    unreadable: int = 0
    first_unreadable: str | None = None
    damaged: str | None = None
    hours: set[Hour] = set()
    coalesced: list[CoalescedFlow] = []
    has_summaries: bool = False
    state_bytes: list[int] = []

    def note(self, place: str, error: Exception) -> None:
        """Note an entry that cannot be read."""
        self.unreadable += 1
        if self.first_unreadable is None:
            self.first_unreadable = f"{place}: {' '.join(str(error).split())}"


class Task(msgspec.Struct, frozen=True):
    """The parameters that all pieces of a rebuild share; each process gets a copy."""

    source: Source
    root: Path
    wanted: Wanted
    node: str
    store: BlobStore
    files: Files
    limits: Limits


class _Writing:
    """Collects the records of one piece and writes them to raw files."""

    def __init__(self, task: Task, piece: int) -> None:
        self.hours: set[Hour] = set()
        self.count = 0
        self._writer = RawWriter(
            task.root, rule=task.wanted.rule, files=task.files, workers=task.limits.writers
        )
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
        # The last file takes all remaining numbers, so the compacted files cover a single range.
        self._write(self._last)

    def _write(self, last: int) -> None:
        if self._rows:
            raw = RawName(self._node, self._next, last)
            self.hours.update(self._writer.write_tables(raw, self._pending))
        self.count += self._rows
        self._pending, self._rows, self._bytes = [], 0, 0
        self._next = last + 1


def runs_name(index: int) -> str:
    """The name under which a part's runs are stored; once they are stored, the part is done."""
    return f"runs-{index:07}.arrow"


def read_part(task: Task, part: str, index: int) -> PartReport:
    """Read one part: records with the facet become raw files, the other runs are stored for folding.

    If it raises `OSError`, the part can be read again.
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
    """Read one part in bounded pieces: the records that entries contain, and the runs without records.

    `read` and `place` are those of `Source`, for this part. The report gets the number of entries and the
    unreadable ones. About `runs_max` runs come at once. Raises `OSError` or `SourceUnreachableError` if the
    source cannot be read now.
    """
    runs, runs_bytes = GatheredRuns(), 0
    try:
        for batch in read():
            report.entries += len(batch)
            records = _read(batch, wanted, runs, report, place)
            runs_bytes += sum([len(stored.body) for stored in batch if stored.kind is Kind.OPENLINEAGE])
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
    batch: Sequence[Stored],
    wanted: Wanted,
    runs: GatheredRuns,
    report: PartReport,
    place: Callable[[int], str],
) -> pa.Table:
    """Return the records that entries contain themselves, and fold the other events into `runs`."""
    found = decode_entries(
        batch,
        system_name=wanted.system_name,
        rule=wanted.rule,
        on_error=lambda stored, error: report.note(place(stored.at), error),
    )
    for stored, event in zip(batch, found.events, strict=True):
        if event is None:
            continue
        # If a run has the facet, its other events do not count.
        state = None
        if not has_record(event):
            try:
                state = observe(event, system_name=stored.system_name or wanted.system_name)
            except UNREADABLE as error:
                report.note(place(stored.at), error)
                continue
            report.has_summaries |= state.coalesced is not None
        runs.add(event.run.runId, state)
    return wanted.rows(found.records)


def fold_buckets(task: Task, buckets: Sequence[int], parts: int, piece: int) -> PartReport:
    """Fold the runs in some buckets of every part, and write the derived records.

    If it raises `OSError`, the buckets can be folded again.
    """
    writing, coalesced = _Writing(task, piece), list[CoalescedFlow]()
    for bucket in buckets:
        runs = GatheredRuns()
        for index in range(parts):
            if (file := task.store.open(runs_name(index))) is not None:
                with file:
                    for run_id, state in read_bucket(file, bucket):
                        runs.add(run_id, state)
        states = [state for state in runs.states().values() if state is not None]
        coalesced += counted_flows(states, task.wanted)
        derived = (record for state in states for record in records_of(state))
        for table in task.wanted.tables(derived):
            writing.add(table)
    writing.finish()
    return PartReport(hours=writing.hours, records=writing.count, coalesced=coalesced)
