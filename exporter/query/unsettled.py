"""The unfiled records of ended runs without the facet.

The layout writes them once a run has settled. Until then they are in the layout's state of the run; while
`provenance_enabled` is off, only the journal and the archive have them.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import (
    UNREADABLE,
    ProvenanceRecord,
    RunState,
    has_record,
    keep_annotations,
    merge_states,
    observe,
    record_key,
    records_of,
)
from waybill.facets.arrow import from_table, to_table

from .. import parquet
from ..layout import DUE, SETTLE_S, StoredRun, key_of, read_run
from ..names import LAYOUT
from .backlog import UNFILED_BYTES_MAX, unfiled_entries
from .query import Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

_RECORD_BYTES: Final = 500
"""The memory that a record takes besides its text."""

_SIFTED_TOGETHER: Final = 1_000
"""So many records are compared with a query at once: one by one takes far longer."""

_SETTLE_MS: Final = int(SETTLE_S * 1_000)


class Unsettled(NamedTuple):
    """The unfiled records of runs without the facet.

    Attributes:
        settled: their records, of runs for which nothing more is expected.
        open: the records of the others, which may still change.
        is_whole: whether all of them are here; False: some did not fit.
    """

    settled: list[ProvenanceRecord]
    open: list[ProvenanceRecord]
    is_whole: bool


class _Run:
    """The states from those entries of a run that the layout has not written."""

    def __init__(self) -> None:
        self.last_ms = 0
        self.size_bytes = 0
        self.states: list[RunState] = []

    def add(self, state: RunState, entry: Entry) -> None:
        """Add the state from an event."""
        self.last_ms = max(self.last_ms, entry.received_ms)
        self.size_bytes += len(entry.body)
        self.states.append(state)

    def records(self, stored: StoredRun | None) -> list[ProvenanceRecord]:
        """The records not written yet, from these entries and the stored state of the run."""
        if stored is None:
            return list(_by_key(self.states).values())
        written = _by_key([stored.state]) if stored.state and stored.is_written else {}
        found = _by_key([*([stored.state] if stored.state else ()), *self.states])
        return [one for key, one in found.items() if written.get(key) != one]


def _by_key(states: list[RunState]) -> dict[RecordKey, ProvenanceRecord]:
    return {record_key(record): record for record in records_of(merge_states(*states))} if states else {}


class _Runs:
    """The runs without the facet in the unfiled entries."""

    def __init__(self, settings: Settings) -> None:
        self.size_bytes = 0
        self._settings = settings
        self._faceted: set[int] = set()
        self._runs: dict[str, _Run] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry to its run, if it has a run event."""
        event = entry.run_event  # `read_backlog` reports unreadable entries
        if event is None:
            return
        key = key_of(event.run.runId)
        if has_record(event):
            self._faceted.add(hash(key))
            self.pop(key)
        if hash(key) in self._faceted:
            return
        try:
            state = observe(event, system_name=entry.system_name or self._settings.system_name)
        except UNREADABLE:
            return
        self._runs.setdefault(key, _Run()).add(state, entry)
        self.size_bytes += len(entry.body)

    def pop(self, key: str) -> _Run:
        """Remove a run by its key and return it: an empty run if no entry had it."""
        run = self._runs.pop(key, None) or _Run()
        self.size_bytes -= run.size_bytes
        return run

    def drain(self, due: Iterable[str]) -> Iterator[tuple[str, _Run]]:
        """Remove and yield each run, and each run that is due, with its key, one at a time."""
        for key in list(dict.fromkeys(chain(self._runs, due))):
            if hash(key) not in self._faceted:
                yield key, self.pop(key)


def read_unsettled(
    journal: Journal, settings: Settings, query: Query, *, now_ms: int, max_bytes: int = UNFILED_BYTES_MAX
) -> Unsettled:
    """Read the unfiled records of ended runs without the facet that answer a query.

    Some of them may be filed meanwhile. At most about `max_bytes` of events are in memory, then as much of
    records, and one run more. If there are more events, no run can be read whole, and there are no records.

    Raises:
        JournalError: the journal cannot be read.
    """
    runs = _Runs(settings)
    for entry in chain.from_iterable(unfiled_entries(journal, settings.root, [])):
        runs.add(entry)
        if runs.size_bytes > max_bytes:
            return Unsettled([], [], is_whole=False)
    state_get = functools.partial(journal.state_get, LAYOUT)
    # What came of a file may be in records that do not meet the conditions themselves.
    found = _Found(query if query.missing_sink is None else Query(), settings, max_bytes)
    # Due runs are read after the entries: they include a run whose last entry was filed meanwhile.
    for key, run in runs.drain(row.removeprefix(DUE) for row in journal.state(LAYOUT, DUE)):
        stored = read_run(key, state_get)
        if stored is not None and stored.state is None:  # an event carried the facet
            continue
        last_ms = max(run.last_ms, stored.touched_ms if stored else 0)
        found.add(run.records(stored), is_settled=now_ms - last_ms >= _SETTLE_MS)
        if not found.is_whole:
            break
    return found.whole()


class _Found:
    """Collects the records that answer a query for as long as there is room for them."""

    def __init__(self, query: Query, settings: Settings, max_bytes: int) -> None:
        self.is_whole = True
        self._wanted = query.by_key() & query.by_rest()
        self._rule = settings.annotation_rule
        self._room_bytes = max_bytes
        self._found: dict[bool, list[ProvenanceRecord]] = {True: [], False: []}
        self._unsifted: dict[bool, list[ProvenanceRecord]] = {True: [], False: []}

    def add(self, records: list[ProvenanceRecord], *, is_settled: bool) -> None:
        """Add the records of a run."""
        self._unsifted[is_settled] += [keep_annotations(one, self._rule) for one in records]
        if len(self._unsifted[is_settled]) >= _SIFTED_TOGETHER:
            self._sift(is_settled=is_settled)

    def whole(self) -> Unsettled:
        """All the records collected."""
        for is_settled in (True, False):
            self._sift(is_settled=is_settled)
        return Unsettled(self._found[True], self._found[False], self.is_whole)

    def _sift(self, *, is_settled: bool) -> None:
        if not self._unsifted[is_settled]:
            return
        table = parquet.rows_where(to_table(self._unsifted[is_settled]), self._wanted)
        self._unsifted[is_settled] = []
        if table.num_rows and self._room_bytes < 0:
            self.is_whole = False
            return
        self._found[is_settled] += from_table(table)
        self._room_bytes -= table.nbytes + _RECORD_BYTES * table.num_rows
