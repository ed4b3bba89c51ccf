"""One piece of a rebuild's work: a part of the source read, or some buckets of runs folded.

Each piece writes raw files of its own numbers, so that doing it again overwrites. Pieces share nothing: they
are done in any order, by any process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.layout import Hour, RawName
from waybill.exporter.raw import RawWriter
from waybill.exporter.rebuilding.spill import Runs, Spill, add_run, read_bucket
from waybill.exporter.sources.source import Source, SourceError, SourceUnreachableError, Stored
from waybill.facets import (
    ProvenanceRecord,
    RunEvent,
    decode_event,
    decode_records,
    facet_records,
    observe,
    records_of,
)
from waybill.transport.files import Files
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.wanted import Wanted

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


class Site(msgspec.Struct, frozen=True):
    """Where a rebuild writes.

    Attributes:
        root: the layout's root.
        work: the rebuild's own folder.
        node: its own id in the names of raw files.
    """

    root: Path
    work: Path
    node: str

    def runs_path(self, index: int) -> Path:
        """The file of a part's runs; when it is there, the part is done."""
        return self.work / f"runs-{index:07}.arrow"


class _Writing:
    """The records of one piece on their way to raw files."""

    def __init__(self, site: Site, piece: int, files: Files) -> None:
        self.hours: set[Hour] = set()
        self.count = 0
        self._writer = RawWriter(site.root, files=files, workers=_WRITERS)
        self._node = site.node
        self._next, self._last = piece * _NUMBERS + 1, (piece + 1) * _NUMBERS
        self._records: list[ProvenanceRecord] = []

    def add(self, records: Sequence[ProvenanceRecord]) -> None:
        if len(self._records) >= _RECORDS_MAX:
            self._write(self._next)
        self._records += records

    def finish(self) -> None:
        # The last takes all numbers that are left, so that what the compacted files cover is one range.
        self._write(self._last)

    def _write(self, last: int) -> None:
        if self._records:
            self.hours.update(self._writer.write(RawName(self._node, self._next, last), self._records))
        self.count += len(self._records)
        self._records = []
        self._next = last + 1


def read_part(source: Source, part: str, index: int, site: Site, wanted: Wanted) -> PartReport:
    """Read one part: records with the facet become raw files, other runs go to the part's file.

    Raises:
        OSError: the source cannot be read now, or the root cannot be written; doing it again mends it.
    """
    files = Files()
    report, writing, spill = PartReport(), _Writing(site, index, files), Spill()
    for records, runs in read_folded(source, part, wanted, report):
        writing.add(records)
        if runs:
            spill.add(runs)
    writing.finish()
    report.hours, report.records, report.state_bytes = writing.hours, writing.count, spill.state_bytes
    spill.publish(files, site.runs_path(index), msgspec.json.encode(report))
    return report


def read_folded(
    source: Source, part: str, wanted: Wanted, report: PartReport
) -> Iterator[tuple[list[ProvenanceRecord], Runs]]:
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
    records: list[ProvenanceRecord] = []
    runs: Runs = {}
    for stored in _entries(source, part, report):
        report.entries += 1
        try:
            records += wanted.select(_fold(stored, runs, wanted))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            report.unreadable += 1
            if report.first_unreadable is None:
                report.first_unreadable = f"{source.place(part, stored.at)}: {' '.join(str(error).split())}"
        if len(records) >= _PIECE_RECORDS or len(runs) >= _RUNS_MAX:
            full = len(runs) >= _RUNS_MAX
            yield records, runs if full else {}
            records, runs = [], {} if full else runs
    yield records, runs


def fold_buckets(buckets: Sequence[int], parts: int, piece: int, site: Site, wanted: Wanted) -> PartReport:
    """Fold the runs of some buckets of every part's file, and write the records that are derived.

    Raises:
        OSError: a file cannot be read or written; doing it again mends it.
    """
    writing = _Writing(site, piece, Files())
    for bucket in buckets:
        runs: Runs = {}
        for index in range(parts):
            for run_id, state in read_bucket(site.runs_path(index), bucket):
                add_run(runs, run_id, state)
        for state in runs.values():
            if state is not None:
                writing.add(wanted.select(records_of(state)))
    writing.finish()
    return PartReport(hours=writing.hours, records=writing.count)


def _entries(source: Source, part: str, report: PartReport) -> Iterator[Stored]:
    try:
        for batch in source.read(part):
            yield from batch
    except SourceUnreachableError:
        raise
    except SourceError as error:
        report.damaged = str(error)


def _fold(stored: Stored, runs: Runs, wanted: Wanted) -> Iterable[ProvenanceRecord]:
    """The records that an entry says by itself; what else it says goes into `runs`."""
    system_name = stored.system_name or wanted.system_name
    if stored.kind is Kind.PROVENANCE:
        return decode_records(stored.body, system_name=system_name)
    if stored.kind is not Kind.OPENLINEAGE:
        return ()
    event = decode_event(stored.body)
    if not isinstance(event, RunEvent):
        return ()
    if records := facet_records(event, system_name=system_name):
        # Nothing else that is said of this run counts, so nothing else need be looked at.
        runs[event.run.runId] = None
        return records
    add_run(runs, event.run.runId, observe(event, system_name=system_name))
    return ()
