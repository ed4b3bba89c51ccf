"""What was known of some files at an instant: the records from what had been received by then.

A record does not keep when it arrived, but the entries that it was made of do, in the journal and in the
archive. Each file of the layout names the ranges of entries that its records come from. So the entries of
these ranges tell what was known at any instant, if all of them are still stored. If some are not, nothing
false is said: that is an error.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import (
    UNREADABLE,
    AnnotationRule,
    ProvenanceRecord,
    RunState,
    keep_annotations,
    merge_all,
    merge_states,
    observe,
    record_key,
    records_of,
)
from waybill.facets.arrow import from_table
from waybill.facets.json_events import instant
from waybill.transport.counting import counted
from waybill.transport.errors import WaybillError

from .. import parquet
from ..archive import archived_files, read_entries
from ..directory import raw_files
from ..incomplete import IncompleteError
from ..names import LAYOUT, RawName, compacted_path, hour_of, late_path
from ..parquet import Covers
from ..stored_records import decode_entries, entries_of

if TYPE_CHECKING:
    from waybill.transport.journal import Entry, Journal


class EntriesGoneError(WaybillError):
    """What was known at an instant cannot be said: entries that may tell it are no longer stored."""


def read_as_of(
    root: Path,
    journal: Journal | None,
    records: Collection[ProvenanceRecord],
    at_ms: int,
    *,
    system_name: str,
    rule: AnnotationRule,
    on_batch: Callable[[], object] = lambda: None,
) -> list[ProvenanceRecord]:
    """The records of some files, as the entries received until an instant give them.

    A run without the facet counts as soon as it has ended. Where a record was merged from repeats, it has
    only what those received by then say.

    Args:
        root: the folder of the layout and the archive.
        journal: the journal of the root's home; None: the root alone is asked.
        records: all records of these files that are known now.
        at_ms: the instant, epoch milliseconds; what was received in this millisecond counts.
        system_name: the name for records that have none.
        rule: which annotations they keep.
        on_batch: called after each batch of entries; it may raise to give up.

    Raises:
        EntriesGoneError: entries that may be about these files are stored no more.
        IncompleteError: a file or an entry could not be read.
        JournalError: the journal cannot be read.
        OSError: a folder could not be read.
    """
    heard = _Heard({record.did for record in records}, at_ms, system_name, rule)
    needed = _ranges_of(root, records)
    if journal is not None and (last := journal.last_seq()) > (cursor := journal.cursor(LAYOUT)):
        needed = needed.adding([RawName(journal.node, cursor + 1, last)])
    had = Covers()
    for name, entries in _stored(root, journal, needed):
        heard.add(entries)
        had = had.adding([name])
        on_batch()
    if lost := sum(last - first + 1 for spans in needed.minus(had).ranges.values() for first, last in spans):
        raise _gone(f"{counted(lost, 'entry of its time is', 'entries of its time are')}", at_ms)
    if runs := {record.did for record in heard.lacking(records)}:
        for entries in _of_runs(root, journal, runs):
            heard.add_runs(entries, runs)
            on_batch()
    if unknown := heard.lacking(records):
        raise _gone(f"{counted(len(unknown), 'record was', 'records were')} made of events that are", at_ms)
    if heard.unread:
        raise IncompleteError(tuple(heard.unread))
    return heard.by_then()


class _Heard:
    """What entries say of some files, until an instant and at all."""

    def __init__(self, dids: Collection[str], at_ms: int, system_name: str, rule: AnnotationRule) -> None:
        self.unread: dict[str, None] = {}
        self._dids = pa.array(sorted(dids), pa.string())
        self._at_ms = at_ms
        self._system_name = system_name
        self._rule = rule
        self._records: dict[bool, list[ProvenanceRecord]] = {True: [], False: []}
        """By whether they were received by then."""
        self._runs: defaultdict[str, list[tuple[bool, RunState]]] = defaultdict(list)

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the records that entries hold by themselves."""
        for is_by_then in (True, False):
            part = [entry for entry in self._readable(entries) if self._is_by_then(entry) is is_by_then]
            # What cannot be decoded, the layout has set aside too, and no answer has its records.
            found = decode_entries(part, system_name=self._system_name, rule=self._rule)
            wanted = pc.is_in(found.records["did"], self._dids)
            self._records[is_by_then] += from_table(found.records.filter(wanted))

    def add_runs(self, entries: Sequence[Entry], run_ids: Collection[str]) -> None:
        """Add the events of some runs, whose records follow from all of them."""
        for entry in self._readable(entries):
            event = entry.run_event
            if event is not None and event.run.runId in run_ids:
                with contextlib.suppress(*UNREADABLE):
                    state = observe(event, system_name=entry.system_name or self._system_name)
                    self._runs[event.run.runId].append((self._is_by_then(entry), state))

    def by_then(self) -> list[ProvenanceRecord]:
        """The records from what was received by then, each once."""
        derived = (
            record
            for states in self._runs.values()
            for record in self._derived(state for is_by_then, state in states if is_by_then)
        )
        return merge_all([*self._records[True], *derived])

    def lacking(self, records: Iterable[ProvenanceRecord]) -> list[ProvenanceRecord]:
        """Those of some records that nothing heard, at any time, gives."""
        keys = {record_key(one) for some in self._records.values() for one in some}
        for states in self._runs.values():
            keys |= {record_key(one) for one in self._derived(state for _, state in states)}
        return [record for record in records if record_key(record) not in keys]

    def _derived(self, states: Iterable[RunState]) -> list[ProvenanceRecord]:
        states = list(states)
        found = records_of(merge_states(*states)) if states else ()
        return [keep_annotations(one, self._rule) for one in found]

    def _is_by_then(self, entry: Entry) -> bool:
        return entry.received_ms <= self._at_ms

    def _readable(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.damage is None:
                yield entry
            else:
                self.unread[f"entry {entry.seq} cannot be read ({entry.damage})"] = None


def _gone(what: str, at_ms: int) -> EntriesGoneError:
    return EntriesGoneError(
        f"{what} neither in the journal nor in the archive, so what was known at {instant(at_ms)} cannot be "
        "said; ask for what is known now"
    )


def _ranges_of(root: Path, records: Iterable[ProvenanceRecord]) -> Covers:
    """The ranges of entries that the files with these records were made of."""
    found = Covers()
    # Raw files come first: one that a compaction takes meanwhile is then in the compacted file.
    for hour in sorted({hour_of(record.completed) for record in records}):
        found = found.adding(raw_files(root, hour))
    for system, hour in sorted({(record.system_name, hour_of(record.completed)) for record in records}):
        for path in (root / compacted_path(system, hour), root / late_path(system, hour)):
            try:
                found = found.uniting(Covers.read(parquet.open_file(path).metadata.metadata))
            except FileNotFoundError:
                continue
            except parquet.DAMAGED as error:
                raise IncompleteError((parquet.unreadable(path, error, root=root),)) from None
    return found


def _stored(root: Path, journal: Journal | None, needed: Covers) -> Iterator[tuple[RawName, Sequence[Entry]]]:
    """The entries of some ranges, of the journal and else of the archive, each time with their range."""
    had = Covers()
    if journal is not None:
        for name in _own_ranges(journal, needed):
            for entries in entries_of(journal, name.first, name.last):
                part = RawName(name.node, entries[0].seq, entries[-1].seq)
                had = had.adding([part])
                yield part, entries
    # What the journal drops meanwhile is in the archive by then.
    lacking = needed.minus(had)
    for name, path in archived_files(root) if lacking.ranges else ():
        if lacking.minus(Covers().adding([name])) == lacking:
            continue
        for entries in _of_archived(root, path):
            yield name, entries


def _own_ranges(journal: Journal, needed: Covers) -> Iterator[RawName]:
    """The ranges that are numbers of the journal's own nodes."""
    nodes = journal.nodes()
    ends = [*(node.after for node in nodes[1:]), journal.last_seq()]
    for node, end in zip(nodes, ends, strict=True):
        for first, last in needed.ranges.get(node.name, ()):
            if max(first, node.after + 1) <= min(last, end):
                yield RawName(node.name, max(first, node.after + 1), min(last, end))


def _of_archived(root: Path, path: Path, run_ids: Collection[str] | None = None) -> Iterator[list[Entry]]:
    try:
        yield from (entries for entries in read_entries(path, run_ids=run_ids) if entries)
    except FileNotFoundError:
        return  # It has been aged off meanwhile.
    except parquet.DAMAGED as error:
        raise IncompleteError((parquet.unreadable(path, error, root=root),)) from None


def _of_runs(root: Path, journal: Journal | None, run_ids: Collection[str]) -> Iterator[list[Entry]]:
    """All stored entries that may be events of some runs; some come twice."""
    if journal is not None and (first := journal.first()) is not None:
        yield from entries_of(journal, first.seq, journal.last_seq())
    for _, path in archived_files(root):
        yield from _of_archived(root, path, run_ids)
