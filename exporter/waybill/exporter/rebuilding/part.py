"""One piece of a rebuild's work: a part of the source read, or some buckets of runs folded.

Each piece writes raw files of its own numbers, so that doing it again overwrites. Pieces share nothing: they
are done in any order, by any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import pyarrow as pa

from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import Hour, RawName
from waybill.exporter.rebuilding.spill import Spill, StatesByRun, add_run, read_bucket
from waybill.exporter.sources import SourceError, SourceUnreachableError, Stored
from waybill.exporter.stored_records import decode_entries
from waybill.facets import UNREADABLE, has_record, observe, records_of
from waybill.facets.arrow import SCHEMA
from waybill.transport.files import Files

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.wanted import Wanted
    from waybill.exporter.sources import Source

_NUMBERS: Final = 2**20
"""How many raw numbers each piece has for its own."""
_RECORDS_MAX: Final = 100_000
_PIECE_RECORDS: Final = 5_000
_RUNS_MAX: Final = 50_000
_WRITERS: Final = 4  # most of a small file's time is its fsync


class PartReport(msgspec.Struct, kw_only=True):
    """What became of one part of the source.

    Attributes:
        entries: how many were read.
        records: how many records were written, before repeats are merged.
        unreadable: how many entries hold no event or records.
        first_unreadable: a sentence about the first of these.
        damaged: a sentence about the part itself if it could not be read to its end.
        hours: those that raw files were written for.
        state_bytes: by bucket, how much of runs without the facet there is to be folded.
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


class Site(msgspec.Struct, frozen=True):
    """Where a rebuild writes.

    Attributes:
        root: the layout's root.
        work: the rebuild's own folder.
        node: its own id in the names of raw files.
        files: the file system.
    """

    root: Path
    work: Path
    node: str
    files: Files

    def runs_path(self, index: int) -> Path:
        """The file of a part's runs; when it is there, the part is done."""
        return self.work / f"runs-{index:07}.arrow"


class Readable(Protocol):
    """Of what a `Source` is, that which reads a part."""

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The entries of one part."""

    def place(self, part: str, at: int) -> str:
        """Where an entry is stored."""


class _Writing:
    """The records of one piece on their way to raw files."""

    def __init__(self, site: Site, piece: int) -> None:
        self.hours: set[Hour] = set()
        self.count = 0
        self._writer = RawWriter(site.root, files=site.files, workers=_WRITERS)
        self._node = site.node
        self._next, self._last = piece * _NUMBERS + 1, (piece + 1) * _NUMBERS
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, records: pa.Table) -> None:
        if self._rows >= _RECORDS_MAX:
            self._write(self._next)
        self._waiting.append(records)
        self._rows += records.num_rows

    def finish(self) -> None:
        # The last takes all numbers that are left, so that what the compacted files cover is one range.
        self._write(self._last)

    def _write(self, last: int) -> None:
        if self._rows:
            raw = RawName(self._node, self._next, last)
            self.hours.update(self._writer.write_table(raw, pa.concat_tables(self._waiting)))
        self.count += self._rows
        self._waiting, self._rows = [], 0
        self._next = last + 1


def read_part(source: Source, part: str, index: int, site: Site, wanted: Wanted) -> PartReport:
    """Read one part: records with the facet become raw files, other runs go to the part's file.

    Raises:
        OSError: the source cannot be read now, or the root cannot be written; doing it again mends it.
    """
    report, writing, spill = PartReport(), _Writing(site, index), Spill()
    for records, runs in read_folded(source, part, wanted, report):
        writing.add(records)
        if runs:
            spill.add(runs)
    writing.finish()
    report.hours, report.records, report.state_bytes = writing.hours, writing.count, spill.state_bytes
    spill.publish(site.files, site.runs_path(index), msgspec.json.encode(report))
    return report


def read_folded(
    source: Readable, part: str, wanted: Wanted, report: PartReport
) -> Iterator[tuple[pa.Table, StatesByRun]]:
    """Read one part, a bounded piece at a time: the records that entries say by themselves, and the runs.

    Args:
        source: what is read.
        part: which part of it.
        wanted: which records.
        report: what is noted in: entries, and what cannot be read.

    Raises:
        OSError: the source cannot be read now.
        SourceUnreachableError: the same.
    """
    runs: StatesByRun = {}
    for batch in _batches(source, part, report):
        report.entries += len(batch)
        records = _read(batch, wanted, runs, lambda at, error: report.note(source.place(part, at), error))
        full = len(runs) >= _RUNS_MAX
        yield records, runs if full else {}
        runs = {} if full else runs
    yield SCHEMA.empty_table(), runs


def _read(
    batch: Sequence[Stored], wanted: Wanted, runs: StatesByRun, on_error: Callable[[int, Exception], None]
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
        add_run(runs, event.run.runId, state)
    return wanted.rows(found.records)


def fold_buckets(buckets: Sequence[int], parts: int, piece: int, site: Site, wanted: Wanted) -> PartReport:
    """Fold the runs of some buckets of every part's file, and write the records that are derived.

    Raises:
        OSError: a file cannot be read or written; doing it again mends it.
    """
    writing = _Writing(site, piece)
    for bucket in buckets:
        runs: StatesByRun = {}
        for index in range(parts):
            for run_id, state in read_bucket(site.runs_path(index), bucket):
                add_run(runs, run_id, state)
        derived = (one for state in runs.values() if state is not None for one in records_of(state))
        while some := list(islice(derived, _PIECE_RECORDS)):
            writing.add(wanted.table(some))
    writing.finish()
    return PartReport(hours=writing.hours, records=writing.count)


def _batches(source: Readable, part: str, report: PartReport) -> Iterator[Sequence[Stored]]:
    try:
        yield from source.read(part)
    except SourceUnreachableError:
        raise
    except SourceError as error:
        report.damaged = str(error)
