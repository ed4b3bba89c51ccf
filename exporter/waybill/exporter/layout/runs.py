"""The runs that a projection is in the middle of: when each has settled, and which records it then gives.

A run whose terminal event carries the facet is recorded at once, and its other events add nothing. Any other
run is derived: its records are written once it has settled, that is when no event of it came for a while
after its end, or its application ended, or a flush asks for it. What was written follows from what the run's
events had said by then, so that a later event can take it back. A run that gets no events for long is
forgotten; when an event may be of such a run, what was forgotten is brought back from the archive first.

What a run's events say is stored as it grows: what came last is in the run's own row, what was there before
in pieces, of which each is at least twice as large as the next. So an event costs what it says itself, and
only a run that settles is read as a whole.

Every decision depends on the times and marks in the journal, never on a clock. The journal's state holds all
runs; in memory are only those that are about to settle, and those that got events last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.exporter.layout.archived_runs import begun_ms
from waybill.facets import (
    EVIDENCE,
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
from waybill.facets.folding import Gathered, ParentSeen

if TYPE_CHECKING:
    from waybill.exporter.layout.archived_runs import ArchivedRuns
    from waybill.exporter.layout.forgotten_runs import ForgottenRuns
    from waybill.facets.merge_rule import RecordKey

# State keys. A run's part of them is its id; see `_key_of`.
RUN: Final = "run:"  # of the runs
PIECE: Final = (
    "piece:"  # of what is too large for a run's own row: run, number of the piece, number of the row
)
DUE: Final = "due:"  # of the runs that ended and have not settled
TOUCHED: Final = "touched:"  # of the runs touched in a minute, for pruning: minute, then sequence number
PRUNED: Final = "pruned"  # of the first minute that is not pruned yet

_MINUTE_MS: Final = 60_000
_CACHED_MAX: Final = 20_000
_PRUNED_MINUTES_MAX: Final = 100
_KEY_CHARS_MAX: Final = 512
_HASHED: Final = "#"
_FEW: Final = 16  # outputs and annotations, which cost little to merge each time
_INLINE_BYTES: Final = 4 * 2**10  # as much of a run is in its own row
_ROW_BYTES: Final = 2**20
_PUT_BYTES_MAX: Final = 16 * 2**20  # more than this is stored before the batch ends
_RUN_BYTES_MAX: Final = 160 * 2**20  # a run that takes more gets no further outputs: it is folded in memory
_OUTPUT_BYTES: Final = 200  # what an output takes besides its name, as the bytes of names are counted


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of what a run's events say, encoded, in rows of its own."""

    number: int
    size_bytes: int
    outputs: int = 0

    def keys(self, key: str) -> list[str]:
        """The keys of its rows."""
        rows = -(-self.size_bytes // _ROW_BYTES)
        return [f"{PIECE}{key}:{self.number}:{row}" for row in range(rows)]


class RunProgress(msgspec.Struct, array_like=True):
    """What is stored of one run.

    Attributes:
        touched_ms: when its last entry was received.
        state: what its last events say together. None without any pieces: an event carried the facet, and
            nothing else counts.
        published: the records written for it, where an earlier version stored them.
        pieces: what its events said before; the largest first.
        written: how many pieces the records written for it follow from; with one more, from `state` too.
        ended: whether a terminal event is in the pieces.
        parent: what the pieces say of the run that started it.
    """

    touched_ms: int
    state: RunState | None
    published: tuple[ProvenanceRecord, ...] = ()
    pieces: list[Piece] = []
    written: int = 0
    ended: bool = False
    parent: ParentSeen | None = None

    @property
    def is_faceted(self) -> bool:
        """Whether an event carried the facet."""
        return self.state is None and not self.pieces

    @property
    def has_room(self) -> bool:
        """Whether it may get further outputs."""
        taken_bytes = sum(piece.size_bytes + _OUTPUT_BYTES * piece.outputs for piece in self.pieces)
        return taken_bytes <= _RUN_BYTES_MAX

    @property
    def is_all_written(self) -> bool:
        """Whether the records written for it follow from everything that is in its row and pieces."""
        return self.written == len(self.pieces) + (self.state is not None)


class Due(msgspec.Struct, frozen=True, array_like=True):
    """A run that has ended: when it settles, and the key of the run that started it."""

    settles_ms: int
    parent: str | None


class _Written(NamedTuple):
    """What the records that are written for a run follow from."""

    published: tuple[ProvenanceRecord, ...] = ()
    pieces: tuple[Piece, ...] = ()
    state: RunState | None = None

    @classmethod
    def of(cls, run: RunProgress) -> _Written:
        if not run.written and not run.published:
            return _NOTHING
        with_state = run.written > len(run.pieces)
        return cls(run.published, tuple(run.pieces[: run.written]), run.state if with_state else None)


_NOTHING: Final = _Written()


class FoldedBatch(NamedTuple):
    """The result of a batch of entries.

    Attributes:
        records: the derived records to be written; they are derived as they are taken.
        retracted: natural keys of records that were written before and are contradicted now; they are all
            there once all records were taken.
        put: state to be stored with the cursor.
        delete: state keys to be deleted with it.
    """

    records: Iterator[ProvenanceRecord]
    retracted: set[RecordKey]
    put: dict[str, bytes]
    delete: list[str]


class UnsettledRuns:
    """Folds events into runs, a batch at a time; `finish` ends a batch.

    Args:
        state: reads the stored state, all keys with a prefix.
        state_get: reads the stored state of one key.
        state_put: stores what is too much for memory before the batch ends. Nothing refers to it until the
            batch is committed, and a batch that is repeated stores the same.
        allowed: annotation keys that reach the records.
        settle_ms: how long after its last event an ended run has settled.
        retain_ms: how long a run that gets no events is remembered.
        forgotten: holds the ids of the runs that were forgotten.
        archived: tells what was known of runs that are not stored.
    """

    def __init__(
        self,
        state: Callable[[str], Mapping[str, bytes]],
        state_get: Callable[[str], bytes | None],
        state_put: Callable[[Mapping[str, bytes]], None],
        *,
        allowed: frozenset[str],
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
        self._allowed = allowed | {EVIDENCE}
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
        for key in [key for key in self._due if len(key) > _KEY_CHARS_MAX]:
            self._rename(key)

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
        """When the next of them settles, in epoch milliseconds of received time."""
        return next((due.settles_ms for due in self._due.values()), None)

    def add_event(self, event: RunEvent, *, system_name: str, received_ms: int) -> None:
        """Fold one event. The record of one that carries the facet is the caller's to write.

        Raises:
            ValueError: it holds a time that cannot be read, or outputs for which its run has no room.
        """
        run_id = event.run.runId
        key = _key_of(run_id)
        seen = None if has_record(event) else observe(event, system_name=system_name)
        run = self._get(key) or self._rename(run_id)
        if run is not None and seen is not None and seen.outputs and not run.has_room:
            raise ValueError(
                "its run has too many outputs already; write fewer, or shorter names, in one run"
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
        """Settle the runs that are due at a time."""
        while self._due:
            key, due = next(iter(self._due.items()))
            if due.settles_ms > received_ms:
                break
            self._settle(key, received_ms)

    def settle_all(self, received_ms: int) -> None:
        """Settle every run that has ended."""
        for key in list(self._due):
            self._settle(key, received_ms)

    def finish(self, last_seq: int, received_ms: int) -> FoldedBatch:
        """End the batch, given its last entry and when that was received."""
        for run_id, state in self._look_up_unsure().items():
            self._bring_back(_key_of(run_id), state, received_ms)
        for key in self._touched:
            run = self._runs[key]
            self._gather(key, run)
            encoded = _ENCODER.encode(run)
            if len(encoded) > _INLINE_BYTES and run.state is not None:
                del encoded  # it may be as large as all that a batch says
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
        # Those touched longest ago leave memory; they can be read again.
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
        """Derive the records that were not written before, and note those that are contradicted."""
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
        derived = records_of(merge_states(*states)) if states else written.published
        return (keep_annotations(record, self._allowed) for record in derived)

    def _end(self, key: str, run: RunProgress, received_ms: int) -> None:
        if run.ended:
            self._drop_due(key)
            parent = None if run.parent is None else _key_of(run.parent.run_id)
            self._add_due(key, Due(received_ms + self._settle_ms, parent))

    def _settle(self, key: str, received_ms: int) -> None:
        self._drop_due(key)
        run = self._get(key)
        if run is None or run.is_faceted:
            return
        self._note_before(key, run)
        self._rewritten.add(key)
        self._gather(key, run)
        run.published, run.written = (), len(run.pieces) + (run.state is not None)
        self._touch(key, run, received_ms)

    def _faceted(self, key: str, run: RunProgress | None) -> RunProgress:
        """Return what is left of a run of which an event carries the facet."""
        if run is not None:
            self._note_before(key, run)
            self._rewritten.add(key)
            self._fresh.pop(key, None)
            self._drop(key, run.pieces)
        return RunProgress(0, None)

    def _note_unknown(self, event: RunEvent, before_ms: int) -> None:
        """Note a run that is not stored, if events of it may have come before an instant."""
        run_id = event.run.runId
        began_ms = begun_ms(run_id)
        is_old = (parse_instant_us(event.eventTime) // 1_000 if began_ms is None else began_ms) < before_ms
        if is_old or began_ms is None:
            self._unsure[run_id] = before_ms
        if is_old:
            self._old.add(run_id)

    def _look_up_unsure(self) -> Mapping[str, RunState | None]:
        """What was known of the runs that are not stored; see `ArchivedRuns.of`."""
        keys = {run_id: _key_of(run_id) for run_id in self._unsure}
        found = self._forgotten.among(keys.values())
        forgotten = {run_id for run_id, key in keys.items() if key in found}
        before_ms = {run_id: self._unsure[run_id] for run_id in forgotten | self._old}
        return self._archived.of(before_ms, forgotten)

    def _bring_back(self, key: str, before: RunState | None, received_ms: int) -> None:
        """Go on with a run from what was known of it before this batch."""
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
        """Add what an event says to what came before."""
        self._note_before(key, run)
        if run.state is not None and run.is_all_written:
            self._set_aside(key, run)
        if run.state is None:
            run.state = seen
        elif key not in self._fresh and len(run.state.outputs) + len(run.state.annotations) <= _FEW:
            run.state = merge_states(run.state, seen)
        else:
            self._fresh.setdefault(key, Gathered()).add(seen)
        run.ended |= seen.ended
        if seen.parent is not None and (run.parent is None or seen.parent < run.parent):
            run.parent = seen.parent

    def _note_before(self, key: str, run: RunProgress) -> None:
        """Note what is written for a run before this batch changes anything about it."""
        if key not in self._before:
            self._before[key] = _Written.of(run)

    def _gather(self, key: str, run: RunProgress) -> None:
        if (fresh := self._fresh.pop(key, None)) is not None and run.state is not None:
            run.state = merge_states(run.state, fresh.whole())

    def _set_aside(self, key: str, run: RunProgress) -> None:
        """Make a piece of a run's own row, together with pieces that are not much larger."""
        if run.state is None:
            return
        encoded = _ENCODER.encode(run.state)
        number = run.pieces[-1].number + 1 if run.pieces else 0
        # What the written records follow from must not be mixed with what came later.
        first = 0 if run.is_all_written else run.written
        at, size_bytes = len(run.pieces), len(encoded)
        while at > first and run.pieces[at - 1].size_bytes <= 2 * size_bytes:
            at -= 1
            size_bytes += run.pieces[at].size_bytes
        if joined := run.pieces[at:]:
            del encoded  # what comes in its place is larger
            run.state = merge_states(*(self._read(key, piece, self._put) for piece in joined), run.state)
            encoded = _ENCODER.encode(run.state)
            self._drop(key, joined)
        written = at + 1 if run.is_all_written else run.written
        piece = Piece(number, len(encoded), len(run.state.outputs))
        run.pieces, run.written, run.state = [*run.pieces[:at], piece], written, None
        for row, row_key in enumerate(piece.keys(key)):
            self._put[row_key] = encoded[row * _ROW_BYTES : (row + 1) * _ROW_BYTES]
            self._put_bytes += len(self._put[row_key])
            if self._put_bytes > _PUT_BYTES_MAX:
                self._store_pieces()

    def _store_pieces(self) -> None:
        pieces = {row_key: value for row_key, value in self._put.items() if row_key.startswith(PIECE)}
        self._state_put(pieces)
        self._put = {row_key: value for row_key, value in self._put.items() if row_key not in pieces}
        self._put_bytes = 0

    def _read(self, key: str, piece: Piece, put: Mapping[str, bytes]) -> RunState:
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
            run = self._runs[key] = self._decode(key, stored)
        return run

    def _rename(self, run_id: str) -> RunProgress | None:
        """Take up a run with a long id, which an earlier version stored under the id itself."""
        key = _key_of(run_id)
        if key == run_id or (stored := self._state_get(RUN + run_id)) is None:
            return None
        run = self._decode(key, stored)
        self._touch(key, run, run.touched_ms)
        self._delete += [RUN + run_id, DUE + run_id]
        if due := self._due.pop(run_id, None):
            self._add_due(key, due)
        return run

    def _decode(self, key: str, stored: bytes) -> RunProgress:
        run = _RUN_DECODER.decode(stored)
        if run.state is not None and not run.pieces:
            run.ended, run.parent = run.state.ended, run.state.parent
        # An earlier version stored the records themselves.
        if run.published and run.published == tuple(self._records_of(key, _Written(state=run.state), {})):
            run.published, run.written = (), 1
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
        """Forget runs that got no events for long."""
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
                    # What is touched by the batch is stored with it.
                    if run and key not in self._touched and run.touched_ms // _MINUTE_MS <= minute:
                        delete.append(RUN + key)
                        delete.extend(row for piece in run.pieces for row in piece.keys(key))
                        del self._runs[key]
                        # An earlier version stored a run with a long id under the id itself.
                        forgotten |= dict.fromkeys((key, _key_of(key)))
        self._forgotten.add(forgotten, received_ms, put, delete)
        put[PRUNED] = str(end).encode()


def _key_of(run_id: str) -> str:
    """Return a run's part of its state keys: its id, or the hash of a long one."""
    if len(run_id) <= _KEY_CHARS_MAX and not run_id.startswith(_HASHED):
        return run_id
    return _HASHED + blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def unpublish(stored: Mapping[str, bytes], since_ms: int) -> dict[str, bytes]:
    """What to store, given the stored runs, so that those touched since then are recorded once more.

    They settle with the next batch.
    """
    put: dict[str, bytes] = {}
    for key, value in stored.items():
        run = _RUN_DECODER.decode(value)
        if not run.is_faceted and (run.published or run.written) and run.touched_ms >= since_ms:
            put[key] = _ENCODER.encode(msgspec.structs.replace(run, published=(), written=0))
            parent = run.parent or (None if run.state is None else run.state.parent)
            due = Due(run.touched_ms, None if parent is None else _key_of(parent.run_id))
            put[DUE + key.removeprefix(RUN)] = _ENCODER.encode(due)
    return put


_ENCODER: Final = msgspec.msgpack.Encoder()
_RUN_DECODER: Final = msgspec.msgpack.Decoder(RunProgress)
_STATE_DECODER: Final = msgspec.msgpack.Decoder(RunState)
_DUE_DECODER: Final = msgspec.msgpack.Decoder(Due)
_IDS_DECODER: Final = msgspec.msgpack.Decoder(list[str])
