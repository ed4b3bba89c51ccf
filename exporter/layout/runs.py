"""The runs in progress of a projection: when each has settled, and which records it then produces.

A run whose terminal event carries the facet is recorded at once, and its other events add nothing. The
records of any other run are derived once it has settled: when it got no event for a while after its end, or
its application ended, or a flush requests it. The records follow from the run's events up to then, so a later
event can take them back. A run that gets no events for a long time is forgotten; see `forgotten_runs`. What
is left takes about 120 bytes, and goes with the archive's files from its time, or once such rows take a tenth
of the journal.

A batch stores what its events add to a run as one more part of the run's state, and joins it with the last
parts that are not much larger. So the cost of an event depends on its own size, and only a run that settles
is read as a whole.

Every decision depends on the times and marks in the journal, never on a clock. The journal's state contains
all runs, memory only what is due and the runs of a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from waybill.facets import (
    UNREADABLE,
    ProvenanceRecord,
    RunEvent,
    RunState,
    has_record,
    keep_annotations,
    merge_states,
    observe,
    record_key,
    records_of,
)
from waybill.facets.folding import Gathered, ParentSeen
from waybill.facets.sizes import made_chars
from waybill.transport.journal import StateRows, key_of_run

from ..names import ARCHIVE, LAYOUT, RawName
from ..stored_records import decode_entries
from .forgotten_runs import ForgottenRuns

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal, StateStore

# State keys.
RUN: Final = "run:"  # of the runs
PART: Final = "part:"  # of their parts: run, number of the part, number of the row
DUE: Final = "due:"  # of the runs that ended and have not settled
SWEPT: Final = "swept"  # of the instant up to which runs were swept

_DAY_MS: Final = 86_400_000
_BUCKET_DIGITS: Final = 3  # that the keys of a bucket's runs begin with; memory has one bucket at a time
_BUCKETS: Final = 16**_BUCKET_DIGITS
_SWEEPS: Final = 4  # through all runs while the journal keeps an entry
_SWEPT_MAX: Final = 20_000  # runs in a batch, and those of one more bucket
_FORGOTTEN_BYTES: Final = 120  # a forgotten run in the journal
_FORGOTTEN_SHARE: Final = 10  # forgotten runs take at most one part in so many of a full journal
_SMALL_BYTES: Final = 2**16  # whose events make no large records
_MADE_CHARS_MAX: Final = 2**29  # the records of one event; admission's default is far lower
_ROW_BYTES: Final = 2**20
_INLINE_BYTES_MAX: Final = 4 * 2**10
_RUN_BYTES_MAX: Final = 160 * 2**20  # a larger run gets no further outputs, because it is folded in memory
_OUTPUT_BYTES: Final = 200  # the size of an output without its name, which is counted by its bytes
_JOINED_BYTES_MAX: Final = 32 * 2**20  # in one batch; the rest is joined with another one


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part of a run's state, encoded: a small one itself, a large one in rows of its own."""

    number: int
    size_bytes: int
    outputs: int
    encoded: bytes = b""

    def rows(self, key: str) -> list[str]:
        """The keys of its rows."""
        count = 0 if self.encoded else -(-self.size_bytes // _ROW_BYTES)
        return [f"{PART}{key}:{self.number}:{row}" for row in range(count)]


class Run(msgspec.Struct, array_like=True):
    """What is stored of a run beside its parts; of a forgotten one, only when its last entry was received.

    Attributes:
        touched_ms: when its last entry was received.
        faceted: whether an event carried the facet, so that nothing else counts.
        parts: what its events tell, each part about twice as large as the next.
        written: how many of the parts its written records follow from.
        numbers: how many parts it has had, for the number of the next.
        ended: whether a terminal event is in the parts.
        parent: the run that started it, according to the parts.
    """

    touched_ms: int = 0
    faceted: bool = False
    parts: list[Part] = []
    written: int = 0
    numbers: int = 0
    ended: bool = False
    parent: ParentSeen | None = None

    @property
    def is_forgotten(self) -> bool:
        """Whether only the archive has what its events tell."""
        return not self.parts and not self.faceted

    @property
    def has_room(self) -> bool:
        """Whether it may get more outputs."""
        return sum(part.size_bytes + _OUTPUT_BYTES * part.outputs for part in self.parts) <= _RUN_BYTES_MAX


class Due(msgspec.Struct, frozen=True, array_like=True):
    """An ended run: when it settles, and the key of the run that started it."""

    settles_ms: int
    parent: str | None

    @classmethod
    def of(cls, run: Run, settles_ms: int) -> Due:
        """That it settles at an instant."""
        return cls(settles_ms, None if run.parent is None else key_of_run(run.parent.run_id))


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
    """Folds entries into runs, one batch at a time, also for those who ask before the layout has come so far.

    `finish` ends a batch.

    Args:
        journal: the home's, which has the layout's state.
        settings: its agreed settings.
        settle_ms: how long after its last event an ended run settles.
        store: has the state instead of the journal.
    """

    def __init__(
        self, journal: Journal, settings: Settings, *, settle_ms: int, store: StateStore | None = None
    ) -> None:
        self._journal = journal
        self._store = store or journal
        self._forgotten = ForgottenRuns(self._store, settings.root, journal.nodes, settings.system_name)
        self._settings = settings
        self._settle_ms = settle_ms
        self._retain_ms = int(settings.journal_retain_days * _DAY_MS)
        self._sweep_ms = max(self._retain_ms // (_SWEEPS * _BUCKETS), 1)  # from one bucket to the next
        forgotten_bytes = settings.journal_max_bytes // (_FORGOTTEN_SHARE * _BUCKETS)  # of a bucket
        self._forgotten_max = max(forgotten_bytes // _FORGOTTEN_BYTES, 1)
        self._run_rows = StateRows(self._store, LAYOUT, RUN, Run)
        self._due_rows = StateRows(self._store, LAYOUT, DUE, Due)
        self._due: dict[str, Due] = {}
        self._children: dict[str, set[str]] = defaultdict(set)
        self._begin()
        for key, due in sorted(self._due_rows.all().items(), key=lambda item: item[1].settles_ms):
            self._add_due(key, due)
        self._due_changed.clear()

    def _begin(self) -> None:
        self._runs: dict[str, Run | None] = {}
        self._before: dict[str, Collection[Part | RunState]] = {}  # of the runs touched: what is written
        self._gathered: defaultdict[str, Gathered] = defaultdict(Gathered)
        self._new: dict[str, str] = {}  # the ids of the runs that are not stored, by key
        self._late: dict[str, str] = {}  # those of forgotten runs
        self._unknown_ms = 0
        self._settled: dict[str, None] = {}
        self._due_changed: set[str] = set()
        self._joined_bytes = 0
        self._put: dict[str, bytes] = {}
        self._delete: list[str] = []

    @property
    def unsettled(self) -> int:
        """How many runs have ended and not settled."""
        return len(self._due)

    @property
    def settles_ms(self) -> int | None:
        """When the next run settles, in epoch milliseconds of received time."""
        return next((due.settles_ms for due in self._due.values()), None)

    def fold(self, entries: Sequence[Entry], on_error: Callable[[Entry, Exception], None]) -> pa.Table:
        """Fold the entries' run events, and return the records that entries contain themselves."""
        system_name = self._settings.system_name
        found = decode_entries(
            entries, system_name=system_name, rule=self._settings.annotation_rule, on_error=on_error
        )
        self.load(key_of_run(event.run.runId) for event in found.events if event is not None)
        for entry, event in zip(entries, found.events, strict=True):
            self.settle_until(entry.received_ms)
            if entry.is_flush:
                self.settle_all()
            elif event is not None:
                stamped = entry.system_name or system_name
                try:
                    if len(entry.body) > _SMALL_BYTES and made_chars(event) > _MADE_CHARS_MAX:
                        raise ValueError("its records would be too large; send fewer outputs in one event")
                    self.add_event(event, system_name=stamped, received_ms=entry.received_ms)
                except UNREADABLE as error:
                    on_error(entry, error)
        return found.records

    def load(self, keys: Iterable[str]) -> None:
        """Read the stored runs among some keys, all at once."""
        wanted = [key for key in keys if key not in self._runs]
        self._runs.update({**dict.fromkeys(wanted), **self._run_rows.of(wanted)})

    def add_event(self, event: RunEvent, *, system_name: str, received_ms: int) -> None:
        """Fold one event of an entry. If it carries the facet, the caller writes its record.

        Raises:
            ValueError: it contains an unreadable time, or too many outputs for its run.
        """
        key = key_of_run(event.run.runId)
        seen = None if has_record(event) else observe(event, system_name=system_name)
        if key not in self._runs:
            self.load([key])
        run = self._runs[key]
        if run is None or (run.is_forgotten and key not in self._before):
            (self._new if run is None else self._late)[key] = event.run.runId
            run = self._runs[key] = run or Run()
            self._unknown_ms = self._unknown_ms or received_ms
        elif seen is not None and seen.outputs and not run.has_room:
            raise ValueError(
                "its run already has too many outputs; write fewer, or use shorter names, in one run"
            )
        self._touch(key, run, received_ms)
        if seen is None:
            run.faceted = True
            self._drop_due(key)
        elif not run.faceted:
            self._gathered[key].add(seen)
            self._note(run, seen)
            if run.ended:
                self._drop_due(key)
                self._add_due(key, Due.of(run, received_ms + self._settle_ms))
        if seen is None or seen.ended:
            for child in sorted(self._children.get(key, ())):
                self._settle(child)

    def settle_until(self, received_ms: int) -> None:
        """Settle the runs that are due at a given time."""
        while self._due:
            key, due = next(iter(self._due.items()))  # it is not empty
            if due.settles_ms > received_ms:
                break
            self._settle(key)

    def settle_all(self) -> None:
        """Settle every run that has ended."""
        for key in list(self._due):
            self._settle(key)

    def finish(self, batch: RawName, received_ms: int) -> FoldedBatch:
        """End the batch, given its node and entries, and the time the last one was received."""
        put, delete = self._put, self._delete
        self._bring_back(batch)
        put |= self._forgotten.with_batch(batch)
        self.load(self._settled)
        for key in self._settled:
            if (run := self._runs[key]) is not None:
                self._touch(key, run, received_ms)
        runs = {key: run for key in sorted(self._before) if (run := self._runs[key]) is not None}
        changed = {}
        for key, run in runs.items():
            is_settled = key in self._settled
            if run.faceted:
                self._drop(key, run.parts)
                run.parts, run.written = [], 0
            elif key in self._gathered:
                state = self._gathered[key].whole()
                self._append(key, run, state, first=0 if is_settled else run.written)
            elif is_settled and 0 < run.written < len(run.parts):
                last = run.parts.pop()
                state = self._state_of(key, last, put)
                self._drop(key, [last])
                self._append(key, run, state, first=0)
            if is_settled:
                run.written = len(run.parts)
            if (is_settled or run.faceted) and self._before[key] != run.parts:
                changed[key] = self._before[key], run.parts
        put |= self._run_rows.encoded(runs)
        due = {key: self._due[key] for key in self._due_changed if key in self._due}
        put |= self._due_rows.encoded(due)
        delete += [self._due_rows.name(key) for key in self._due_changed - due.keys()]
        self._sweep(received_ms)
        self._begin()
        retracted: set[RecordKey] = set()
        return FoldedBatch(self._changes(changed, put, retracted), retracted, put, delete)

    def _changes(
        self,
        changed: Mapping[str, tuple[Collection[Part | RunState], list[Part]]],
        put: dict[str, bytes],
        retracted: set[RecordKey],
    ) -> Iterator[ProvenanceRecord]:
        """Derive the records that are not written yet, and note the contradicted ones."""
        for key, (before, now) in changed.items():
            if not before:
                yield from self._records_of(key, now, put)
                continue
            new = {record_key(one): one for one in self._records_of(key, now, put)}
            old = {record_key(one): one for one in self._records_of(key, before, put)}
            yield from (record for at, record in new.items() if old.get(at) != record)
            retracted.update(at for at, record in old.items() if new.get(at) != record)

    def _records_of(
        self, key: str, parts: Collection[Part | RunState], put: Mapping[str, bytes]
    ) -> Iterator[ProvenanceRecord]:
        if parts:
            for record in records_of(merge_states(*(self._state_of(key, part, put) for part in parts))):
                yield keep_annotations(record, self._settings.annotation_rule)

    def _state_of(self, key: str, part: Part | RunState, put: Mapping[str, bytes]) -> RunState:
        """Read a part of a run from the state about to be stored, or from the stored state."""
        if isinstance(part, RunState):
            return part
        encoded = bytearray(part.encoded)
        for row in part.rows(key):
            encoded += put[row] if row in put else self._store.state_of(LAYOUT, [row])[row]
        return _STATE_DECODER.decode(encoded)

    def _append(self, key: str, run: Run, state: RunState, *, first: int) -> None:
        """Store a state as the last part of a run, joined with parts from `first` on, if not much larger."""
        encoded = msgspec.msgpack.encode(state)
        at, size_bytes = len(run.parts), len(encoded)
        while at > first and run.parts[at - 1].size_bytes <= 2 * size_bytes:
            at -= 1
            size_bytes += run.parts[at].size_bytes
            self._joined_bytes += run.parts[at].size_bytes
            if self._joined_bytes > _JOINED_BYTES_MAX:
                break
        if joined := run.parts[at:]:
            del encoded  # its replacement is larger
            state = merge_states(*(self._state_of(key, part, self._put) for part in joined), state)
            encoded = msgspec.msgpack.encode(state)
            self._drop(key, joined)
        outputs = sum(len(one.outputs) for one in state.parts)
        inline = encoded if len(encoded) <= _INLINE_BYTES_MAX else b""
        part = Part(run.numbers, len(encoded), outputs, inline)
        run.parts, run.numbers = [*run.parts[:at], part], run.numbers + 1
        for at, row in enumerate(part.rows(key)):
            self._put[row] = encoded[at * _ROW_BYTES : (at + 1) * _ROW_BYTES]

    def _drop(self, key: str, parts: Iterable[Part]) -> None:
        for row in (row for part in parts for row in part.rows(key)):
            if self._put.pop(row, None) is None:
                self._delete.append(row)

    def _bring_back(self, batch: RawName) -> None:
        """Continue the forgotten runs among the unknown ones from their state before this batch."""
        for keys, before_ms, known in self._forgotten.missing(batch):
            stored = self._run_rows.of(keys)
            runs = {key: stored.get(key) or Run() for key in keys}
            forgotten = {
                key: Run(max(run.touched_ms, before_ms)) for key, run in runs.items() if run.is_forgotten
            }
            put = self._run_rows.encoded(forgotten) | known
            # At once: nothing refers to it yet, and adding it again adds the same.
            self._store.commit(LAYOUT, put=put, delete=(), durable=False)
            self._late.update((key, self._new[key]) for key in keys & self._new.keys())
        found = self._forgotten.read(set(self._late.values()), self._unknown_ms - self._retain_ms)
        for run_id, state in found.items():
            key = key_of_run(run_id)
            run = cast("Run", self._runs[key])
            if state is None:
                run.faceted = True
                self._drop_due(key)
                continue
            self._before[key] = (state,)
            if not run.faceted:
                self._note(run, state)
                self._append(key, run, state, first=0)
                run.written = 1
                if key not in self._due:
                    self._settled[key] = None

    def _note(self, run: Run, seen: RunState) -> None:
        run.ended |= seen.ended
        if seen.parent is not None and (run.parent is None or seen.parent < run.parent):
            run.parent = seen.parent

    def _touch(self, key: str, run: Run, received_ms: int) -> None:
        run.touched_ms = received_ms
        self._before.setdefault(key, run.parts[: run.written])

    def _settle(self, key: str) -> None:
        self._drop_due(key)
        self._settled[key] = None

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

    def _sweep(self, received_ms: int) -> None:
        """Go on through the runs: forget those that got no events for a long time, and drop the oldest such.

        Some follow at each instant, so that all were looked at a few times while the journal keeps an entry.
        """
        end = received_ms // self._sweep_ms
        stored = self._store.state_of(LAYOUT, [SWEPT]).get(SWEPT)
        at = end if stored is None else max(int(stored) // self._sweep_ms, end - _BUCKETS)
        if stored is not None and at >= end:
            return
        began_ms = self._forgotten.began_ms()
        before_ms, swept = received_ms - self._retain_ms, 0
        if self._settings.archive_enabled:  # What the archive lacks would be lost.
            unarchived_ms = self._journal.waiting(self._journal.cursor(ARCHIVE)).oldest_ms
            before_ms = min(before_ms, unarchived_ms or before_ms)
        while at < end and swept <= _SWEPT_MAX:
            runs = self._run_rows.all(_bucket(at))
            swept, at = swept + len(runs), at + 1
            # Runs touched by the batch are stored with it.
            kept = self._before.keys() | self._due.keys()
            old = {key for key, run in runs.items() if run.touched_ms < before_ms} - kept
            newest = sorted(old, key=lambda key: runs[key].touched_ms, reverse=True)
            for number, key in enumerate(newest):
                run = runs[key]
                self._drop(key, run.parts)
                if began_ms is None or run.touched_ms < began_ms or number >= self._forgotten_max:
                    self._delete.append(self._run_rows.name(key))
                elif not run.is_forgotten:
                    self._put |= self._run_rows.encoded({key: Run(run.touched_ms)})
        self._put[SWEPT] = str(at * self._sweep_ms).encode()


def _bucket(number: int) -> str:
    """What the keys of some of the runs begin with; there are `_BUCKETS` in turn."""
    return f"{number % _BUCKETS:0{_BUCKET_DIGITS}x}"


def unpublish(store: StateStore, since_ms: int) -> dict[str, bytes]:
    """The state to store so that the next batch records once more the runs touched since an instant."""
    rows, due_rows = StateRows(store, LAYOUT, RUN, Run), StateRows(store, LAYOUT, DUE, Due)
    runs = {
        key: run
        for at in range(_BUCKETS)
        for key, run in rows.all(_bucket(at)).items()
        if run.written and run.touched_ms >= since_ms
    }
    due = {key: Due.of(run, run.touched_ms) for key, run in runs.items()}
    again = {key: msgspec.structs.replace(run, written=0) for key, run in runs.items()}
    return {**rows.encoded(again), **due_rows.encoded(due)}


_STATE_DECODER: Final = msgspec.msgpack.Decoder(RunState)
