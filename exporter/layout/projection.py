"""The layout, a projection of the journal.

A batch of entries is one range. The range is stored before its first file is written, and deleted by the
commit that moves the cursor past it. A restart in between makes exactly the same files again. For the same
reason, the records that a batch retracts are removed from the compacted files before that commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.facets import EVIDENCE
from waybill.facets.arrow import to_tables
from waybill.facets.spark_writes import LISTENER_ONLY
from waybill.transport import RootError
from waybill.transport.errors import reason_of
from waybill.transport.files import Files
from waybill.transport.root import Filing
from waybill.transport.runner import Projection, Step, left_s, note_published

from ..compaction import (
    GATHER_S,
    CompactionReport,
    CompactionSchedule,
    Compactor,
    RawWriter,
    Retraction,
    squash_hour,
)
from ..directory import raw_files, raw_hours
from ..names import LAYOUT, OF_PLAIN_SPARK, PROVENANCE, Hour, RawName
from ..parallel import workers_default
from ..raw_notes import forget_raws, note_raws
from .runs import UnsettledRuns, unpublish

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

SETTLE_S: Final = 10.0
"""A derived run has settled when it got no event for this long after its end."""
LINGER_S: Final = 1.0
"""After a batch, new entries wait this long for others to be written with them."""

_FEW: Final = 100
_FEW_LINGER: Final = 2
"""Fewer entries wait so many times as long beyond that, since each batch is another file."""

_ENTRIES_MAX: Final = 50_000
_FOLD_ENTRIES: Final = 5_000  # are decoded at once
_BATCH_BYTES_MAX: Final = 64 * 2**20
_REPLAY_BYTES_MAX: Final = 2**40  # a batch is the same batch when it is read again
_SCHEDULE_EVERY_S: Final = 30.0
_RETRY_S: Final = 5.0


def open_layout(journal: Journal, settings: Settings) -> Layout | None:
    """The layout of a home; None if `provenance_enabled` is off."""
    return Layout(journal, settings) if settings.provenance_enabled else None


class Layout(Projection):
    """Writes the Parquet provenance layout from the journal."""

    name = LAYOUT
    stores = True

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        files: Files | None = None,
        workers: int | None = None,
        settle_s: float = SETTLE_S,
        linger_s: float = LINGER_S,
        gather_s: float = GATHER_S,
    ) -> None:
        self._journal = journal
        self._clock = journal.clock
        self._settings = settings
        self._settle_ms = int(settle_s * 1_000)
        self._files = files or Files()
        self._workers = workers or workers_default()
        self._filing = Filing(journal, settings.root, LAYOUT, PROVENANCE, self._files)
        self._writer = RawWriter(
            settings.root,
            rule=settings.annotation_rule,
            files=self._files,
            workers=self._workers,
            replaces=False,
        )
        self._linger_s = linger_s
        self._schedule = CompactionSchedule(raw_hours(settings.root), gather_s=gather_s, clock=self._clock)
        self._runs: UnsettledRuns | None = None
        self._damaged: dict[Hour, str] = {}
        self._next_ms: int | None = None
        """When the next run settles, in received time."""
        self._next_s = 0.0
        """The same instant on the monotonic clock, which is never set back."""
        self._wrote_s = float("-inf")
        self._goes_on = False
        self._was_away = False
        self._has_plain_spark = False
        self._settle_seq = 0
        """The newest mark of its own."""

    def step(self) -> Step:
        """Write one batch of entries, or compact the hours that are due."""
        try:
            return self._step()
        except RootError as error:
            self._runs = None
            self._was_away = True
            return Step(retry_s=_RETRY_S, problem=str(error))
        except OSError as error:
            # The state in memory is ahead of the stored state: start again from the stored state.
            self._runs = None
            return Step(
                retry_s=_RETRY_S,
                problem=f"the layout below {self._settings.root} cannot be written ({reason_of(error)}); "
                "free space there or fix the disk, and it continues: nothing that was acknowledged is lost",
            )
        except BaseException:
            self._runs = None
            raise

    def pending(self) -> int:
        """The entries that are not in the layout yet, plus the runs that have ended but not settled."""
        waiting = self._journal.last_seq() - self._journal.cursor(LAYOUT)
        return waiting + (self._runs.unsettled if self._runs else 0)

    def finish(self) -> None:
        """Compact every hour; if one cannot be compacted, raise `OSError` after compacting the others."""
        # An interrupted range is written again first: its retractions come before its own records.
        if self._filing.begun() is None:
            self._filing.open()
            self._compact(raw_hours(self._settings.root))

    def _step(self) -> Step:
        if self._runs is None:
            self._filing.open()
            if self._was_away:
                self._schedule.wrote(raw_hours(self._settings.root))
                self._was_away = False
            self._runs = UnsettledRuns(self._journal, self._settings, settle_ms=self._settle_ms)
            if (begun := self._filing.begun()) is not None:
                first, last = begun
                limit = last - first + 1
                entries = self._journal.feed(LAYOUT, first - 1, limit=limit, max_bytes=_REPLAY_BYTES_MAX)
                return self._apply(self._runs, [entry for entry in entries if entry.seq <= last])
        for hour in self._schedule.to_squash():
            self._filing.check()
            squash_hour(self._settings.root, hour, node=self._journal.nodes()[-1].name, files=self._files)
            self._schedule.squashed(hour)
        cursor = self._journal.cursor(LAYOUT)
        waiting = self._journal.last_seq() - cursor
        linger_s = self._lingers_s(cursor, waiting)
        if waiting and linger_s <= 0:
            entries = self._journal.feed(LAYOUT, cursor, limit=_ENTRIES_MAX, max_bytes=_BATCH_BYTES_MAX)
            entries = _first_range(entries)
            # If more than one batch is waiting, there is no reason to linger.
            self._goes_on = len(entries) < waiting
            return self._apply(self._runs, entries)
        return self._do_what_is_due(self._runs, linger_s if waiting else None)

    def _lingers_s(self, cursor: int, waiting: int) -> float:
        """How much longer the entries that wait do so for others, in seconds."""
        if waiting >= _ENTRIES_MAX or self._journal.last_mark() > max(cursor, self._settle_seq):
            return 0.0
        due_s, now_s = self._wrote_s + self._linger_s, self._clock.monotonic_s()
        if due_s > now_s or waiting >= _FEW:
            return due_s - now_s
        return min(due_s + _FEW_LINGER * self._linger_s - now_s, self._linger_s)

    def _apply(self, runs: UnsettledRuns, entries: list[Entry]) -> Step:
        first, last, count = entries[0], entries[-1], len(entries)
        tables = []
        while entries:
            some = entries[:_FOLD_ENTRIES]
            tables.append(runs.fold(some, self._set_aside))
            del entries[:_FOLD_ENTRIES]  # with their decoded events
        # Only a claim shows whether the journal's numbers were used before, and the look-up needs to know
        # that.
        raw = RawName(self._filing.begin(first.seq, last.seq), first.seq, last.seq)
        outcome = runs.finish(raw, last.received_ms)
        try:
            hours = self._writer.write_tables(raw, chain(tables, to_tables(self._watched(outcome.records))))
        except FileExistsError as error:
            # The range has been started: it is resumed from the stored state, under another node.
            self._filing.give_way(raw.node, Path(error.filename2))
            self._runs = None
            return Step(applied=1)
        self._schedule.wrote(hours)
        if hours:
            self._filing.check()
        for hour in hours:
            note_raws(self._settings.root, self._files, hour, [raw])
        published: set[str] = set()
        if outcome.retracted:
            earlier = frozenset(node.name for node in self._journal.nodes()) - {raw.node}
            retraction = Retraction(raw, frozenset(outcome.retracted), earlier)
            published.update(self._compact([], retraction).published)
        put = outcome.put
        if self._has_plain_spark:
            put[OF_PLAIN_SPARK] = b""
        delete = outcome.delete
        if last.is_flush:
            published.update(self._compact(raw_hours(self._settings.root)).published)
            noted, outdated = note_published(self._journal, LAYOUT, last.seq, published)
            put |= noted
            delete += outdated
        self._filing.done(raw.node, raw.last, put=put, delete=delete)
        self._wrote_s = float("-inf") if self._goes_on else self._clock.monotonic_s()
        return Step(applied=count, problem=self._damage)

    def _watched(self, records: Iterable[ProvenanceRecord]) -> Iterator[ProvenanceRecord]:
        """Note whether any record rests on the word of Spark's listener alone, which misses some failures."""
        for record in records:
            evidence = (record.annotations or {}).get(EVIDENCE, "")
            self._has_plain_spark = self._has_plain_spark or LISTENER_ONLY in evidence
            yield record

    def _set_aside(self, entry: Entry, error: Exception) -> None:
        # Admission refuses such entries. If there is one nevertheless, it must not stop the others.
        self._journal.poison.set_aside(LAYOUT, entry.seq, f"{type(error).__name__}: {error}")

    def _do_what_is_due(self, runs: UnsettledRuns, linger_s: float | None) -> Step:
        """Settle runs and compact hours that are due, while there is nothing to write."""
        if linger_s is None:
            self._filing.check()
        settles_ms = runs.settles_ms
        if settles_ms is not None and settles_ms != self._next_ms:
            remaining_s = left_s(self._clock, settles_ms, self._settle_ms / 1_000)
            self._next_s = self._clock.monotonic_s() + remaining_s
        self._next_ms = settles_ms
        if linger_s is not None:
            settles_ms = None  # the entries that wait tell the time themselves
        if settles_ms is not None and self._next_s <= self._clock.monotonic_s():
            self._settle_seq = self._journal.mark(b"settle", at_ms=settles_ms)
            return Step(applied=1, problem=self._damage)
        if hours := self._schedule.to_compact():
            self._compact(hours)
            return Step(applied=len(hours), problem=self._damage)
        waits_s = [_SCHEDULE_EVERY_S]
        if linger_s is not None:
            waits_s.append(max(linger_s, 0.0))
        if settles_ms is not None:
            waits_s.append(max(self._next_s - self._clock.monotonic_s(), 0.0))
        return Step(retry_s=min(waits_s), gathers=linger_s is not None, problem=self._damage)

    def _compact(self, hours: Collection[Hour], retraction: Retraction | None = None) -> CompactionReport:
        nodes = {node.name for node in self._journal.nodes()}
        compactor = Compactor(
            self._settings.root,
            nodes=nodes,
            files=self._files,
            workers=self._workers,
            check=self._filing.check,
        )
        noted = {*hours, *(retraction.hours() if retraction else ())}
        if noted:
            self._filing.check()
        # The notes are removed first and the remaining files noted again, so a crash leaves no note of a
        # removed file.
        for hour in noted:
            forget_raws(self._settings.root, self._files, hour, self._raws_of(nodes, hour))
        report = compactor.compact(hours, retraction=retraction)
        for hour in noted:
            note_raws(self._settings.root, self._files, hour, self._raws_of(nodes, hour))
        for hour in hours:
            self._damaged.pop(hour, None)
        self._damaged.update(report.unreadable)
        self._schedule.compacted(hours)
        self._schedule.postpone(report.unreadable)
        if report.failed:
            self._schedule.postpone(report.failed)
            raise OSError(next(iter(report.failed.values())))  # it is not empty
        return report

    def _raws_of(self, nodes: Collection[str], hour: Hour) -> set[RawName]:
        return {raw for raw in raw_files(self._settings.root, hour) if raw.node in nodes}

    @property
    def _damage(self) -> str | None:
        return next(iter(self._damaged.values()), None)


def write_again(journal: Journal, cursor: int) -> None:
    """Have the runs that were recorded for entries after a cursor recorded once more.

    The root that had them has been replaced, and the layout's cursor is about to be moved back. The caller
    must hold the runner's lease.
    """
    for entry in journal.read(cursor, limit=1):
        journal.commit(LAYOUT, put=unpublish(journal, entry.received_ms))


def _first_range(entries: list[Entry]) -> list[Entry]:
    """Return the entries up to and including the first flush, which ends a range."""
    end = next((at for at, entry in enumerate(entries, 1) if entry.is_flush), len(entries))
    return entries[:end]
