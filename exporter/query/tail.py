"""The tail: the records of accepted entries that the layout has not written yet.

The entries after the layout's cursor are folded by the layout's own code, over its stored state. What it
would store stays in a temporary database here. Runs that have ended are settled at once, so their records may
still change. The entries are in the journal, or in the archive if the journal has dropped them before the
layout read them: the layout's cursor stands still while `provenance_enabled` is off.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import apsw
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import SCHEMA, to_table, to_tables
from waybill.transport.budget import check_budget
from waybill.transport.counting import counted
from waybill.transport.errors import WaybillError
from waybill.transport.root import begun_range

from .. import parquet
from ..archive import archived_files, filed_ranges, read_entries
from ..layout import SETTLE_S, UnsettledRuns
from ..names import HOUR_MS, LAYOUT, Hour, RawName, hour_of
from ..stored_records import entries_of

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

_HELD_BYTES_MAX: Final = 64 * 2**20
"""Records that take more go into a temporary file."""
_HELD_TABLES_MAX: Final = 64
_SETTLE_MS: Final = int(SETTLE_S * 1_000)

STEP: Final = "step"
"""The column with the step of the fold that gave a row; see `Tail.retracted`."""

IN_FILES: Final = -1
"""The step of a row that is in a file, before all others."""

_SCHEMA: Final = SCHEMA.append(pa.field(STEP, pa.int32(), nullable=False))

_CHANGED: Final = """
PRAGMA cache_size = -16384;
CREATE TABLE changed (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID
"""
_CHANGE: Final = "INSERT OR REPLACE INTO changed VALUES (?, ?)"
_CHANGED_OF: Final = "SELECT key, value FROM changed WHERE key IN (SELECT value FROM json_each(?))"
_CHANGED_SOME: Final = "SELECT key, value FROM changed WHERE key >= ? AND key < ?"


class BacklogError(WaybillError):
    """Too much is not in files yet to answer now."""


class Tail(NamedTuple):
    """What the layout has not written yet.

    Attributes:
        records: tables of `waybill.facets.arrow.SCHEMA` and the column `STEP`, in any order. A record may be
            in a file already, and several times here.
        retracted: rows by whose natural key records are no more: those in files, and those in `records` of an
            earlier step.
        unsettled: the records that may still change.
        hours: the hours of all these rows.
        unread: a sentence about each entry or archived file that cannot be read.
        has_large_rows: whether records are large, so that few of them are read together.
    """

    records: pa.Table
    retracted: pa.Table
    unsettled: pa.Table
    hours: frozenset[Hour]
    unread: tuple[str, ...]
    has_large_rows: bool


_NOTHING: Final = _SCHEMA.empty_table()
NO_TAIL: Final = Tail(_NOTHING, _NOTHING, SCHEMA.empty_table(), frozenset(), (), has_large_rows=False)


class TailReader:
    """Reads the tail of a home's journal; one object serves many questions, from any thread.

    What it has folded stays until the layout's cursor moves, so that a question reads what is new.

    Args:
        journal: the home's, opened to be read.
        entries_max: more entries are too many to answer; None: however many there are.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        entries_max: int | None = None,
    ) -> None:
        self._journal = journal
        self._entries_max = entries_max
        self._lock = threading.Lock()
        self._fold: _Fold | None = None

    def read(self, settings: Settings) -> Tail:
        """The tail as it is now, by the home's agreed settings.

        Records that are filed from now on are in it and in the files.

        Raises:
            BacklogError: there are too many entries.
            JournalError: the journal cannot be read.
        """
        with self._lock, self._journal.snapshot():
            cursor, last_seq = self._journal.cursor(LAYOUT), self._journal.last_seq()
            if self._entries_max is not None and last_seq - cursor > self._entries_max:
                raise BacklogError(
                    f"{last_seq - cursor:,} accepted entries are not in files yet, too many to answer now; "
                    "try again later, or see `waybill status`"
                )
            _, begun = begun_range(self._journal, LAYOUT) or (0, 0)
            fold, self._fold = self._fold, None  # one that fails halfway is not gone on with
            if fold is None or not fold.can_go_on(cursor, begun, last_seq, settings):
                fold = _Fold(self._journal, settings, cursor, begun)
            tail = fold.tail(last_seq, self._journal.clock.now_ms())
            self._fold = fold
            return tail


class _Fold:
    """The fold of the entries after the layout's cursor, which goes on with those that come.

    The range that the layout has begun is one step: its files may be there already, with records that a later
    entry takes back.
    """

    def __init__(self, journal: Journal, settings: Settings, cursor: int, begun: int) -> None:
        self._journal = journal
        self._settings = settings
        self._cursor = self._seq = self._finished = cursor
        self._begun = begun
        self._store = _Overlay(journal)
        self._rows = _Rows()
        self._unread: list[str] = []
        self._tail, self._until_ms = NO_TAIL, 0

    def can_go_on(self, cursor: int, begun: int, last_seq: int, settings: Settings) -> bool:
        """Whether what was folded still holds.

        The layout's files have, once it has come further, what runs gave then and may have lost since; and
        what it stored before may be gone. What could not be read is tried again with the next entries.
        """
        is_same = (self._cursor, self._begun, self._settings) == (cursor, begun, settings)
        return is_same and (self._seq == last_seq or not self._unread)

    def tail(self, last_seq: int, now_ms: int) -> Tail:
        """The tail at an instant, with all entries up to now."""
        if self._seq != last_seq or self._until_ms <= now_ms:
            runs = UnsettledRuns(self._journal, self._settings, settle_ms=_SETTLE_MS, store=self._store)
            for entries in entries_after(self._journal, self._settings.root, self._seq, self._unread):
                in_range = sum(entry.seq <= self._begun for entry in entries)
                for some in filter(None, (entries[:in_range], entries[in_range:])):
                    self._rows.add(runs.fold(self._readable(some), self._note))
                    self._seq = some[-1].seq
                    if self._seq >= self._begun:
                        self._finish(runs, self._rows, some[-1].received_ms)
            with self._store.undone():
                self._until_ms, self._tail = self._settled(runs, now_ms)
        return self._tail

    def _settled(self, runs: UnsettledRuns, now_ms: int) -> tuple[int, Tail]:
        """The tail with all runs that have ended, which are settled; and until when it stays the same."""
        rows = _Rows(self._rows.step)
        runs.settle_until(now_ms)
        self._finish(runs, rows)
        until_ms = 2**63 if runs.settles_ms is None else runs.settles_ms
        runs.settle_all()
        unsettled = self._finish(runs, rows)
        return until_ms, Tail(
            pa.concat_tables([_NOTHING, *self._rows.records, *rows.records]),
            pa.concat_tables([_NOTHING, *self._rows.retracted, *rows.retracted]),
            unsettled,
            frozenset(self._rows.hours | rows.hours),
            tuple(self._unread),
            self._rows.has_large or rows.has_large,
        )

    def _finish(self, runs: UnsettledRuns, rows: _Rows, received_ms: int = 0) -> pa.Table:
        """End a step, and return the records that runs have given."""
        node, first = self._journal.nodes()[-1].name, min(self._finished + 1, self._seq)
        batch = runs.finish(RawName(node, first, self._seq), received_ms)
        self._finished = self._seq
        derived = pa.concat_tables([SCHEMA.empty_table(), *to_tables(batch.records)])
        self._store.commit(LAYOUT, put=batch.put, delete=batch.delete, durable=False)
        rows.add(derived)
        if batch.retracted:
            rows.retract(to_table([_record_of(key) for key in batch.retracted]))
        rows.step += 1
        return derived

    def _readable(self, entries: Iterable[Entry]) -> list[Entry]:
        entries = list(entries)
        for entry in entries:
            if entry.damage is not None:
                self._note(entry, entry.damage)
        return [entry for entry in entries if entry.damage is None]

    def _note(self, entry: Entry, error: Exception | str) -> None:
        self._unread.append(damaged(self._journal, entry, error))


class _Rows:
    """Rows, in memory or, if they take too much of it, in temporary files."""

    def __init__(self, step: int = 0) -> None:
        self.step = step
        self.hours: set[Hour] = set()
        self.has_large = False
        self.retracted: list[pa.Table] = []
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._spilled: list[pa.Table] = []

    @property
    def records(self) -> list[pa.Table]:
        """The records of all steps."""
        return self._spilled + self._held

    def add(self, table: pa.Table) -> None:
        """Add records of this step."""
        if not table.num_rows:
            return
        self.has_large = self.has_large or parquet.has_large_rows(table)
        self._held.append(self._with_step(table))
        self._held_bytes += table.nbytes
        if self._held_bytes > _HELD_BYTES_MAX:
            self._spill()
        elif len(self._held) > _HELD_TABLES_MAX:
            self._held = [pa.concat_tables(self._held).combine_chunks()]

    def retract(self, table: pa.Table) -> None:
        """Add rows with the natural keys of records that are no more as of this step."""
        self.retracted.append(self._with_step(table))

    def _with_step(self, table: pa.Table) -> pa.Table:
        hours = pc.unique(pc.divide(table["completed"].cast(pa.int64()), HOUR_MS)).to_pylist()
        self.hours.update(hour_of(hour * HOUR_MS) for hour in hours)
        steps = pa.repeat(pa.scalar(self.step, pa.int32()), table.num_rows)
        return table.append_column(_SCHEMA.field(STEP), steps)

    def _spill(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="waybill-", suffix=".arrow") as file:
            with pa.ipc.new_file(file.name, _SCHEMA) as writer:
                for table in self._held:
                    writer.write_table(table)
            with pa.memory_map(file.name) as mapped:
                # The content stays for as long as the table does.
                self._spilled.append(pa.ipc.open_file(mapped).read_all())
        self._held, self._held_bytes = [], 0


class _Overlay:
    """The layout's state, and what would be changed of it, which is in a temporary database."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._changed = apsw.Connection("")
        self._changed.execute(_CHANGED)

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """Undo all changes at the end."""
        self._changed.execute("BEGIN")
        try:
            yield
        finally:
            self._changed.execute("ROLLBACK")

    def state(self, projection: str, prefix: str) -> dict[str, bytes]:
        bounds = prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        every: dict[str, bytes | None] = dict(self._journal.state(projection, prefix))
        every.update(cast("Iterable[tuple[str, bytes | None]]", self._changed.execute(_CHANGED_SOME, bounds)))
        return {key: value for key, value in every.items() if value is not None}

    def state_of(self, projection: str, keys: Collection[str]) -> dict[str, bytes]:
        every: dict[str, bytes | None] = dict(self._journal.state_of(projection, keys))
        bounds = (msgspec.json.encode(list(keys)).decode(),)
        every.update(cast("Iterable[tuple[str, bytes | None]]", self._changed.execute(_CHANGED_OF, bounds)))
        return {key: value for key, value in every.items() if value is not None}

    def commit(
        self, _projection: str, *, put: Mapping[str, bytes], delete: Iterable[str], durable: bool
    ) -> None:
        del durable  # it is gone with the process
        with self._changed:
            self._changed.executemany(_CHANGE, [*dict.fromkeys(delete).items(), *put.items()])


def entries_after(journal: Journal, root: Path, cursor: int, unread: list[str]) -> Iterator[list[Entry]]:
    """The entries after a number, in order, a few at a time: from the archive what the journal has dropped.

    A sentence about each archived file that cannot be read is added to `unread`.
    """
    first, last = journal.first(), journal.last_seq()
    begin = last + 1 if first is None else first.seq
    if begin > cursor + 1:
        yield from archived_entries(journal, root, range(cursor + 1, begin), unread)
    for entries in entries_of(journal, max(cursor + 1, begin), last):
        check_budget()
        yield entries


def archived_entries(journal: Journal, root: Path, wanted: range, unread: list[str]) -> Iterator[list[Entry]]:
    """The archived entries of these numbers that the journal itself has filed."""
    filed = filed_ranges(journal)
    for name, path in archived_files(root):
        if not filed.has(name) or name.first >= wanted.stop or wanted.start > name.last:
            continue
        try:
            for entries in read_entries(path):
                if some := [entry for entry in entries if entry.seq in wanted]:
                    yield some
        except FileNotFoundError:
            continue  # It has been aged off meanwhile.
        except parquet.DAMAGED as error:
            unread.append(parquet.unreadable(path, error, root=root))


def damaged(journal: Journal, entry: Entry, error: Exception | str) -> str:
    """A sentence about an entry that cannot be read."""
    return f"entry {entry.seq} of {journal.path} cannot be read ({error})"


def poison_note(journal: Journal) -> str | None:
    """A sentence about the entries that the layout has set aside, since no answer has their records.

    Nobody knows which query they belong to, so every answer comes with this sentence. None: there are none.

    Raises:
        JournalError: the journal cannot be read.
    """
    count = journal.poison.counts().get(LAYOUT, 0)
    if not count:
        return None
    return f"{counted(count, 'entry is', 'entries are')} poison and in no answer; see `waybill poison list`"


def _record_of(key: RecordKey) -> ProvenanceRecord:
    """A record with a natural key, and nothing else."""
    system, did, sink, transforms, state, completed = key
    return ProvenanceRecord(
        did=did,
        system_name=system,
        data_source="",
        filename="",
        transforms=transforms,
        data_sink=sink,
        final_state=FinalState(state),
        created=completed,
        completed=completed,
    )
