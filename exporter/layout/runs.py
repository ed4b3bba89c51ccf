"""The runs in progress of a projection: when each has settled, and which records it then produces.

A run whose terminal event carries the facet is recorded at once, and its other events add nothing. The
records of any other run are derived once it has settled: when it got no event for a while after its end, or
its application ended, or a flush requests it. The records follow from the run's events up to then, so a later
event can take them back. A run that gets no events for a long time is forgotten; if an event may belong to
such a run, the forgotten state is first restored from the archive.

The folded state of a run is stored as it grows: the latest part is in the run's own row, earlier parts are in
pieces, each at least twice as large as the next. So the cost of an event depends on its own size, and only a
run that settles is read as a whole.

Every decision depends on the times and marks in the journal, never on a clock. The journal's state contains
all runs. Memory contains only those about to settle and those with the latest events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import (
    AnnotationRule,
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
from waybill.facets.folding import Gathered

from .archived_runs import begun_ms
from .stored_runs import DUE, PIECE, ROW_BYTES, RUN, Piece, RunProgress, key_of

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey

    from .archived_runs import ArchivedRuns
    from .forgotten_runs import ForgottenRuns


# More state keys, besides those of `stored_runs`.
TOUCHED: Final = "touched:"  # of the runs touched in a minute, for pruning: minute, then sequence number
PRUNED: Final = "pruned"  # of the first minute that has not been pruned yet

_MINUTE_MS: Final = 60_000
_CACHED_MAX: Final = 20_000
_PRUNED_MINUTES_MAX: Final = 100
_FEW: Final = 16  # outputs, annotations and job namespaces; so few are cheap to merge each time
_INLINE_BYTES: Final = 4 * 2**10  # the part of a run in its own row
_PUT_BYTES_MAX: Final = 16 * 2**20  # more than this is stored before the end of the batch


class Due(msgspec.Struct, frozen=True, array_like=True):
    """An ended run: when it settles, and the key of the run that started it."""

    settles_ms: int
    parent: str | None


class _Written(NamedTuple):
    """The state that a run's written records follow from."""

    pieces: tuple[Piece, ...] = ()
    state: RunState | None = None

    @classmethod
    def of(cls, run: RunProgress) -> _Written:
        if not run.written:
            return _NOTHING
        with_state = run.written > len(run.pieces)
        return cls(tuple(run.pieces[: run.written]), run.state if with_state else None)


_NOTHING: Final = _Written()


class FoldedBatch(NamedTuple):
    """The result of a batch of entries.

    Attributes:
        records: the derived records to write; they are derived as the caller iterates.
        retracted: natural keys of written records that are contradicted now; complete once all records were
            iterated.
        put: state to store with the cursor.
        delete: state keys to delete with it.
    """

    records: Iterator[ProvenanceRecord]
    retracted: set[RecordKey]
    put: dict[str, bytes]
    delete: list[str]


class UnsettledRuns:
    """Folds events into runs, one batch at a time; `finish` ends a batch.

    Args:
        state: reads the stored state of all keys with a prefix.
        state_get: reads the stored state of one key.
        state_put: stores state that does not fit into memory before the batch ends. Nothing refers to it
            until the batch is committed, and a repeated batch stores the same.
        rule: which annotations of a record are written.
        settle_ms: how long after its last event an ended run settles.
        retain_ms: how long a run without events is remembered.
        forgotten: contains the ids of the forgotten runs.
        archived: looks up the state of runs that are not stored.
    """

    def __init__(
        self,
        state: Callable[[str], Mapping[str, bytes]],
        state_get: Callable[[str], bytes | None],
        state_put: Callable[[Mapping[str, bytes]], None],
        *,
        rule: AnnotationRule,
        settle_ms: int,
        retain_ms: int,
        forgotten: ForgottenRuns,
        archived: ArchivedRuns,
    ) -> None:
        self._archived = archived
        self._forgotten = forgotten
        self._state = state
        self._state_get = state_get
        self._state_put = state_put
        self._rule = rule
        self._settle_ms = settle_ms
        self._retain_ms = retain_ms
        self._runs: dict[str, RunProgress] = {}
        self._due: dict[str, Due] = {}
        self._children: dict[str, set[str]] = defaultdict(set)
        self._begin()
        stored = {key.removeprefix(DUE): _DUE_DECODER.decode(value) for key, value in state(DUE).items()}
        for key, due in sorted(stored.items(), key=lambda item: item[1].settles_ms):
            self._add_due(key, due)
        self._due_changed.clear()

    def _begin(self) -> None:
        self._touched: dict[str, None] = {}
        self._fresh: dict[str, Gathered] = {}
        self._before: dict[str, _Written] = {}
        self._rewritten: set[str] = set()
        self._due_changed: set[str] = set()
        self._unsure: dict[str, int] = {}
        self._old: set[str] = set()
        self._put: dict[str, bytes] = {}
        self._put_bytes = 0
        self._delete: list[str] = []

    @property
    def unsettled(self) -> int:
        """How many runs have ended and not settled."""
        return len(self._due)

    @property
    def settles_ms(self) -> int | None:
        """When the next run settles, in epoch milliseconds of received time."""
        return next((due.settles_ms for due in self._due.values()), None)

    def add_event(self, event: RunEvent, *, system_name: str, received_ms: int) -> None:
        """Fold one event of an entry. If it carries the facet, the caller writes its record.

        Raises:
            ValueError: it contains an unreadable time, or too many outputs for its run.
        """
        run_id = event.run.runId
        key = key_of(run_id)
        seen = None if has_record(event) else observe(event, system_name=system_name)
        run = self._get(key)
        if run is not None and seen is not None and seen.outputs and not run.has_room:
            raise ValueError(
                "its run already has too many outputs; write fewer, or use shorter names, in one run"
            )
        if run is None:
            self._note_unknown(event, received_ms - self._retain_ms)
        if seen is None:
            self._drop_due(key)
            self._touch(key, self._faceted(key, run), received_ms)
        elif run is None:
            self._touch(
                key, RunProgress(received_ms, seen, ended=seen.ended, parent=seen.parent), received_ms
            )
            self._end(key, self._runs[key], received_ms)
        elif not run.is_faceted:
            self._add(key, run, seen)
            self._touch(key, run, received_ms)
            self._end(key, run, received_ms)
        if seen is None or seen.ended:
            for child in sorted(self._children.get(key, ())):
                self._settle(child, received_ms)

    def settle_until(self, received_ms: int) -> None:
        """Settle the runs that are due at a given time."""
        while self._due:
            key, due = next(iter(self._due.items()))  # it is not empty
            if due.settles_ms > received_ms:
                break
            self._settle(key, received_ms)

    def settle_all(self, received_ms: int) -> None:
        """Settle every run that has ended."""
        for key in list(self._due):
            self._settle(key, received_ms)

    def finish(self, last_seq: int, received_ms: int) -> FoldedBatch:
        """End the batch, given its last entry and the time that entry was received."""
        for run_id, state in self._look_up_unsure().items():
            self._bring_back(key_of(run_id), state, received_ms)
        for key in self._touched:
            run = self._runs[key]
            self._gather(key, run)
            encoded = _ENCODER.encode(run)
            if len(encoded) > _INLINE_BYTES and run.state is not None:
                del encoded  # it may be as large as the whole batch
                self._set_aside(key, run)
                encoded = _ENCODER.encode(run)
            self._put[RUN + key] = encoded
        put, delete = self._put, self._delete
        changed = {
            key: (self._before[key], _Written.of(self._runs[key]))
            for key in self._touched
            if key in self._rewritten
        }
        for key in self._due_changed:
            if due := self._due.get(key):
                put[DUE + key] = _ENCODER.encode(due)
            else:
                delete.append(DUE + key)
        if self._touched:
            put[f"{TOUCHED}{received_ms // _MINUTE_MS:012}:{last_seq}"] = _ENCODER.encode(list(self._touched))
        self._prune(received_ms, put, delete)
        # The least recently touched runs leave memory; they can be read again.
        for key in list(self._runs)[: max(len(self._runs) - _CACHED_MAX, 0)]:
            del self._runs[key]
        self._begin()
        retracted: set[RecordKey] = set()
        return FoldedBatch(self._changes(changed, put, retracted), retracted, put, delete)

    def _changes(
        self,
        changed: Mapping[str, tuple[_Written, _Written]],
        put: Mapping[str, bytes],
        retracted: set[RecordKey],
    ) -> Iterator[ProvenanceRecord]:
        """Derive the records that are not written yet, and note the contradicted ones."""
        for key, (before, now) in changed.items():
            if before is _NOTHING:
                yield from self._records_of(key, now, put)
                continue
            new = {record_key(record): record for record in self._records_of(key, now, put)}
            old = {record_key(record): record for record in self._records_of(key, before, put)}
            yield from (record for at, record in new.items() if old.get(at) != record)
            retracted.update(at for at, record in old.items() if new.get(at) != record)

    def _records_of(
        self, key: str, written: _Written, put: Mapping[str, bytes]
    ) -> Iterator[ProvenanceRecord]:
        states = [self._read(key, piece, put) for piece in written.pieces]
        states += [] if written.state is None else [written.state]
        derived = records_of(merge_states(*states)) if states else ()
        return (keep_annotations(record, self._rule) for record in derived)

    def _end(self, key: str, run: RunProgress, received_ms: int) -> None:
        if run.ended:
            self._drop_due(key)
            parent = None if run.parent is None else key_of(run.parent.run_id)
            self._add_due(key, Due(received_ms + self._settle_ms, parent))

    def _settle(self, key: str, received_ms: int) -> None:
        self._drop_due(key)
        run = self._get(key)
        if run is None or run.is_faceted:
            return
        self._note_before(key, run)
        self._rewritten.add(key)
        self._gather(key, run)
        run.written = len(run.pieces) + (run.state is not None)
        self._touch(key, run, received_ms)

    def _faceted(self, key: str, run: RunProgress | None) -> RunProgress:
        """Return the reduced state of a run that has an event with the facet."""
        if run is not None:
            self._note_before(key, run)
            self._rewritten.add(key)
            self._fresh.pop(key, None)
            self._drop(key, run.pieces)
        return RunProgress(0, None)

    def _note_unknown(self, event: RunEvent, before_ms: int) -> None:
        """Note a run that is not stored, if it may have got events before an instant."""
        run_id = event.run.runId
        began_ms = begun_ms(run_id)
        is_old = (parse_instant_us(event.eventTime) // 1_000 if began_ms is None else began_ms) < before_ms
        if is_old or began_ms is None:
            self._unsure[run_id] = before_ms
        if is_old:
            self._old.add(run_id)

    def _look_up_unsure(self) -> Mapping[str, RunState | None]:
        """The archived state of the runs that are not stored; see `ArchivedRuns.of`."""
        keys = {run_id: key_of(run_id) for run_id in self._unsure}
        found = self._forgotten.among(keys.values())
        forgotten = {run_id for run_id, key in keys.items() if key in found}
        before_ms = {run_id: self._unsure[run_id] for run_id in forgotten | self._old}
        return self._archived.of(before_ms, forgotten)

    def _bring_back(self, key: str, before: RunState | None, received_ms: int) -> None:
        """Continue a run from its state before this batch."""
        run = self._runs[key]
        self._before[key] = _Written(state=before)
        self._rewritten.add(key)
        if before is None or run.is_faceted:
            self._drop_due(key)
            self._drop(key, run.pieces)
            self._fresh.pop(key, None)
            self._runs[key] = RunProgress(received_ms, None)
            return
        self._gather(key, run)
        since = [self._read(key, piece, self._put) for piece in run.pieces]
        since += [] if run.state is None else [run.state]
        self._drop(key, run.pieces)
        run.pieces, run.written, run.state = [], 1, before
        self._set_aside(key, run)
        run.state = merge_states(*since)
        run.written = 1 if key in self._due else 2
        run.ended |= before.ended
        run.parent = merge_states(before, run.state).parent

    def _add(self, key: str, run: RunProgress, seen: RunState) -> None:
        """Fold an event into a run's state."""
        self._note_before(key, run)
        if run.state is not None and run.is_all_written:
            self._set_aside(key, run)
        if run.state is None:
            run.state = seen
        elif key not in self._fresh and _size(run.state) <= _FEW:
            run.state = merge_states(run.state, seen)
        else:
            self._fresh.setdefault(key, Gathered()).add(seen)
        run.ended |= seen.ended
        if seen.parent is not None and (run.parent is None or seen.parent < run.parent):
            run.parent = seen.parent

    def _note_before(self, key: str, run: RunProgress) -> None:
        """Note which records of a run are written before this batch changes it."""
        if key not in self._before:
            self._before[key] = _Written.of(run)

    def _gather(self, key: str, run: RunProgress) -> None:
        if (fresh := self._fresh.pop(key, None)) is not None and run.state is not None:
            run.state = merge_states(run.state, fresh.whole())

    def _set_aside(self, key: str, run: RunProgress) -> None:
        """Move a run's own row into a piece, together with pieces that are not much larger."""
        if run.state is None:
            return
        encoded = _ENCODER.encode(run.state)
        number = run.pieces[-1].number + 1 if run.pieces else 0
        # The state behind the written records must not be mixed with later state.
        first = 0 if run.is_all_written else run.written
        at, size_bytes = len(run.pieces), len(encoded)
        while at > first and run.pieces[at - 1].size_bytes <= 2 * size_bytes:
            at -= 1
            size_bytes += run.pieces[at].size_bytes
        if joined := run.pieces[at:]:
            del encoded  # its replacement is larger
            run.state = merge_states(*(self._read(key, piece, self._put) for piece in joined), run.state)
            encoded = _ENCODER.encode(run.state)
            self._drop(key, joined)
        written = at + 1 if run.is_all_written else run.written
        piece = Piece(number, len(encoded), sum(len(part.outputs) for part in run.state.parts))
        run.pieces, run.written, run.state = [*run.pieces[:at], piece], written, None
        for row, row_key in enumerate(piece.keys(key)):
            self._put[row_key] = encoded[row * ROW_BYTES : (row + 1) * ROW_BYTES]
            self._put_bytes += len(self._put[row_key])
            if self._put_bytes > _PUT_BYTES_MAX:
                self._store_pieces()

    def _store_pieces(self) -> None:
        pieces = {row_key: value for row_key, value in self._put.items() if row_key.startswith(PIECE)}
        self._state_put(pieces)
        self._put = {row_key: value for row_key, value in self._put.items() if row_key not in pieces}
        self._put_bytes = 0

    def _read(self, key: str, piece: Piece, put: Mapping[str, bytes]) -> RunState:
        """Read a piece of a run from the state about to be stored, or from the stored state."""
        encoded = bytearray()
        for row in piece.keys(key):
            encoded += put[row] if row in put else self._state_get(row) or b""
        return _STATE_DECODER.decode(encoded)

    def _drop(self, key: str, pieces: list[Piece]) -> None:
        rows = [row for piece in pieces for row in piece.keys(key)]
        for row in rows:
            self._put.pop(row, None)
        self._delete += rows

    def _get(self, key: str) -> RunProgress | None:
        run = self._runs.get(key)
        if run is None and (stored := self._state_get(RUN + key)) is not None:
            run = self._runs[key] = _RUN_DECODER.decode(stored)
        return run

    def _touch(self, key: str, run: RunProgress, received_ms: int) -> None:
        run.touched_ms = received_ms
        self._runs.pop(key, None)
        self._runs[key] = run
        self._touched[key] = None

    def _add_due(self, key: str, due: Due) -> None:
        self._due[key] = due
        self._due_changed.add(key)
        if due.parent is not None:
            self._children[due.parent].add(key)

    def _drop_due(self, key: str) -> None:
        due = self._due.pop(key, None)
        if due is None:
            return
        self._due_changed.add(key)
        if due.parent is not None:
            siblings = self._children[due.parent]
            siblings.discard(key)
            if not siblings:
                del self._children[due.parent]

    def _prune(self, received_ms: int, put: dict[str, bytes], delete: list[str]) -> None:
        """Forget runs that got no events for a long time."""
        stored = self._state_get(PRUNED)
        end = (received_ms - self._retain_ms) // _MINUTE_MS
        start = end if stored is None else int(stored)
        if stored is not None and end <= start:
            return
        end = min(end, start + _PRUNED_MINUTES_MAX)
        forgotten: dict[str, None] = {}
        for minute in range(start, end):
            for row, value in self._state(f"{TOUCHED}{minute:012}:").items():
                delete.append(row)
                for key in _IDS_DECODER.decode(value):
                    run = self._get(key)
                    # Runs touched by the batch are stored with it.
                    if run and key not in self._touched and run.touched_ms // _MINUTE_MS <= minute:
                        delete.append(RUN + key)
                        delete.extend(row for piece in run.pieces for row in piece.keys(key))
                        del self._runs[key]
                        forgotten[key] = None
        self._forgotten.add(forgotten, received_ms, put, delete)
        put[PRUNED] = str(end).encode()


def _size(state: RunState) -> int:
    parts = (state, *state.others)
    return sum(1 + len(one.outputs) + len(one.annotations) + len(one.late_annotations) for one in parts)


def unpublish(stored: Mapping[str, bytes], since_ms: int) -> dict[str, bytes]:
    """The state to store, given the stored runs, so that runs touched since then are recorded once more.

    They settle with the next batch.
    """
    put: dict[str, bytes] = {}
    for key, value in stored.items():
        run = _RUN_DECODER.decode(value)
        if not run.is_faceted and run.written and run.touched_ms >= since_ms:
            put[key] = _ENCODER.encode(msgspec.structs.replace(run, written=0))
            due = Due(run.touched_ms, None if run.parent is None else key_of(run.parent.run_id))
            put[DUE + key.removeprefix(RUN)] = _ENCODER.encode(due)
    return put


_ENCODER: Final = msgspec.msgpack.Encoder()
_RUN_DECODER: Final = msgspec.msgpack.Decoder(RunProgress)
_STATE_DECODER: Final = msgspec.msgpack.Decoder(RunState)
_DUE_DECODER: Final = msgspec.msgpack.Decoder(Due)
_IDS_DECODER: Final = msgspec.msgpack.Decoder(list[str])
