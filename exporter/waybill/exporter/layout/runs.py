"""The runs that a projection is in the middle of: when each has settled, and which records it then gives.

A run whose terminal event carries the facet is recorded at once, and its other events add nothing. Any other
run is derived: its records are written once it has settled, that is when no event of it came for a while
after its end, or its application ended, or a flush asks for it. The records written are remembered, so that a
later event can take them back. A run that gets no events for long is forgotten; when an event may be of such
a run, what was forgotten is brought back from the archive first.

Every decision depends on the times and marks in the journal, never on a clock. The journal's state holds all
runs; in memory are only those that are about to settle, and those that got events last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from waybill.exporter.layout.archived_runs import begun_ms
from waybill.facets import (
    ProvenanceRecord,
    RunEvent,
    RunState,
    has_record,
    keep_annotations,
    merge_states,
    observe,
    parse_instant_us,
    record_key,
    records_of,
)
from waybill.facets.merge_rule import RecordKey

# State keys.
RUN: Final = "run:"  # of the runs, by run id
DUE: Final = "due:"  # of the runs that ended and have not settled, by run id
TOUCHED: Final = "touched:"  # of the runs touched in a minute, for pruning: minute, then sequence number
PRUNED: Final = "pruned"  # of the first minute that is not pruned yet

_MINUTE_MS: Final = 60_000
_CACHED_MAX: Final = 20_000
_PRUNED_MINUTES_MAX: Final = 100


class RunProgress(msgspec.Struct, array_like=True):
    """What is stored of one run.

    Attributes:
        touched_ms: when its last entry was received.
        state: what its events say together; None once an event carried the facet: then nothing else counts.
        published: the records written for it.
    """

    touched_ms: int
    state: RunState | None
    published: tuple[ProvenanceRecord, ...] = ()


class Due(msgspec.Struct, frozen=True, array_like=True):
    """A run that has ended: when it settles, and the run that started it."""

    settles_ms: int
    parent_run_id: str | None


class FoldedBatch(msgspec.Struct, frozen=True):
    """The result of a batch of entries.

    Attributes:
        records: the derived records to be written.
        retracted: natural keys of records that were written before and are contradicted now.
        put: state to be stored with the cursor.
        delete: state keys to be deleted with it.
    """

    records: list[ProvenanceRecord]
    retracted: frozenset[RecordKey]
    put: dict[str, bytes]
    delete: list[str]


class UnsettledRuns:
    """Folds events into runs, a batch at a time; `finish` ends a batch.

    Args:
        state: reads the stored state, all keys with a prefix.
        state_get: reads the stored state of one key.
        allowed: annotation keys that reach the records.
        settle_ms: how long after its last event an ended run has settled.
        retain_ms: how long a run that gets no events is remembered.
        archived: gives what was known of runs before an instant each, in epoch milliseconds; None for one
            that had the facet. A run that nothing was known of is left out.
    """

    def __init__(
        self,
        state: Callable[[str], Mapping[str, bytes]],
        state_get: Callable[[str], bytes | None],
        *,
        allowed: frozenset[str],
        settle_ms: int,
        retain_ms: int,
        archived: Callable[[Mapping[str, int]], Mapping[str, RunState | None]],
    ) -> None:
        self._archived = archived
        self._state = state
        self._state_get = state_get
        self._allowed = allowed
        self._settle_ms = settle_ms
        self._retain_ms = retain_ms
        self._runs: dict[str, RunProgress] = {}
        self._due: dict[str, Due] = {}
        self._children: dict[str, set[str]] = defaultdict(set)
        self._begin()
        stored = {key.removeprefix(DUE): _DUE_DECODER.decode(value) for key, value in state(DUE).items()}
        for run_id, due in sorted(stored.items(), key=lambda item: item[1].settles_ms):
            self._add_due(run_id, due)
        self._due_changed.clear()

    def _begin(self) -> None:
        self._touched: dict[str, None] = {}
        self._published_before: dict[str, tuple[ProvenanceRecord, ...]] = {}
        self._due_changed: set[str] = set()
        self._unsure: dict[str, int] = {}

    @property
    def unsettled(self) -> int:
        """How many runs have ended and not settled."""
        return len(self._due)

    @property
    def settles_ms(self) -> int | None:
        """When the next of them settles, in epoch milliseconds of received time."""
        return next((due.settles_ms for due in self._due.values()), None)

    def add_event(self, event: RunEvent, *, system_name: str, received_ms: int) -> None:
        """Fold one event; raises `ValueError` if it holds a time that cannot be read.

        The record of one that carries the facet is the caller's to write.
        """
        run_id = event.run.runId
        seen = None if has_record(event) else observe(event, system_name=system_name)
        known = self._get(run_id)
        if known is None and _began_ms(event) < received_ms - self._retain_ms:
            self._unsure[run_id] = received_ms - self._retain_ms
        if seen is None:
            self._drop_due(run_id)
            self._touch(run_id, RunProgress(received_ms, None), known)
        elif known is None or known.state is not None:
            merged = seen if known is None or known.state is None else merge_states(known.state, seen)
            published = known.published if known else ()
            self._touch(run_id, RunProgress(received_ms, merged, published), known)
            if merged.ended:
                self._drop_due(run_id)
                self._add_due(run_id, Due(received_ms + self._settle_ms, merged.parent_run_id))
        if seen is None or seen.ended:
            for child in sorted(self._children.get(run_id, ())):
                self._settle(child, received_ms)

    def settle_until(self, received_ms: int) -> None:
        """Settle the runs that are due at a time."""
        while self._due:
            run_id, due = next(iter(self._due.items()))
            if due.settles_ms > received_ms:
                break
            self._settle(run_id, received_ms)

    def settle_all(self, received_ms: int) -> None:
        """Settle every run that has ended."""
        for run_id in list(self._due):
            self._settle(run_id, received_ms)

    def finish(self, last_seq: int, received_ms: int) -> FoldedBatch:
        """End the batch, given its last entry and when that was received."""
        if self._unsure:
            for run_id, state in self._archived(self._unsure).items():
                self._bring_back(run_id, state, received_ms)
        records: list[ProvenanceRecord] = []
        retracted: set[RecordKey] = set()
        for run_id, before in self._published_before.items():
            now = self._runs[run_id].published
            records += [record for record in now if record not in before]
            retracted |= {record_key(record) for record in before if record not in now}
        put = {RUN + run_id: _ENCODER.encode(self._runs[run_id]) for run_id in self._touched}
        delete = []
        for run_id in self._due_changed:
            if due := self._due.get(run_id):
                put[DUE + run_id] = _ENCODER.encode(due)
            else:
                delete.append(DUE + run_id)
        if self._touched:
            put[f"{TOUCHED}{received_ms // _MINUTE_MS:012}:{last_seq}"] = _ENCODER.encode(list(self._touched))
        self._prune(received_ms, put, delete)
        # Those touched longest ago leave memory; they can be read again.
        for run_id in list(self._runs)[: max(len(self._runs) - _CACHED_MAX, 0)]:
            del self._runs[run_id]
        self._begin()
        return FoldedBatch(records, frozenset(retracted), put, delete)

    def _settle(self, run_id: str, received_ms: int) -> None:
        self._drop_due(run_id)
        run = self._get(run_id)
        if run is None or run.state is None:
            return
        self._touch(run_id, RunProgress(received_ms, run.state, self._records_of(run.state)), run)

    def _records_of(self, state: RunState | None) -> tuple[ProvenanceRecord, ...]:
        records = () if state is None else records_of(state)
        return tuple(keep_annotations(record, self._allowed) for record in records)

    def _bring_back(self, run_id: str, before: RunState | None, received_ms: int) -> None:
        """Go on with a run from what was known of it before this batch."""
        run, published = self._runs[run_id], self._records_of(before)
        self._published_before[run_id] = published
        if before is None or run.state is None:
            self._drop_due(run_id)
            self._runs[run_id] = RunProgress(received_ms, None)
            return
        state = merge_states(before, run.state)
        if run_id not in self._due:
            published = self._records_of(state)
        self._runs[run_id] = RunProgress(received_ms, state, published)

    def _get(self, run_id: str) -> RunProgress | None:
        run = self._runs.get(run_id)
        if run is None and (stored := self._state_get(RUN + run_id)) is not None:
            run = self._runs[run_id] = _RUN_DECODER.decode(stored)
        return run

    def _touch(self, run_id: str, run: RunProgress, before: RunProgress | None) -> None:
        self._runs.pop(run_id, None)
        self._runs[run_id] = run
        self._touched[run_id] = None
        published = before.published if before else ()
        if run.published != published:
            self._published_before.setdefault(run_id, published)

    def _add_due(self, run_id: str, due: Due) -> None:
        self._due[run_id] = due
        self._due_changed.add(run_id)
        if due.parent_run_id is not None:
            self._children[due.parent_run_id].add(run_id)

    def _drop_due(self, run_id: str) -> None:
        due = self._due.pop(run_id, None)
        if due is None:
            return
        self._due_changed.add(run_id)
        if due.parent_run_id is not None:
            siblings = self._children[due.parent_run_id]
            siblings.discard(run_id)
            if not siblings:
                del self._children[due.parent_run_id]

    def _prune(self, received_ms: int, put: dict[str, bytes], delete: list[str]) -> None:
        """Forget runs that got no events for long."""
        stored = self._state_get(PRUNED)
        end = (received_ms - self._retain_ms) // _MINUTE_MS
        start = end if stored is None else int(stored)
        if stored is not None and end <= start:
            return
        end = min(end, start + _PRUNED_MINUTES_MAX)
        for minute in range(start, end):
            for key, value in self._state(f"{TOUCHED}{minute:012}:").items():
                delete.append(key)
                run_ids = _IDS_DECODER.decode(value)
                delete.extend(RUN + run_id for run_id in run_ids if self._is_old(run_id, minute))
        put[PRUNED] = str(end).encode()

    def _is_old(self, run_id: str, minute: int) -> bool:
        run = self._get(run_id)
        if run is None or run.touched_ms // _MINUTE_MS > minute:
            return False
        del self._runs[run_id]
        return True


def _began_ms(event: RunEvent) -> int:
    """Return when an event's run began, in epoch milliseconds: by its id, else not after the event."""
    by_id_ms = begun_ms(event.run.runId)
    return parse_instant_us(event.eventTime) // 1_000 if by_id_ms is None else by_id_ms


_ENCODER: Final = msgspec.msgpack.Encoder()
_RUN_DECODER: Final = msgspec.msgpack.Decoder(RunProgress)
_DUE_DECODER: Final = msgspec.msgpack.Decoder(Due)
_IDS_DECODER: Final = msgspec.msgpack.Decoder(list[str])
