"""The layout as a projection of the journal.

A batch of entries is one range. The range is stored before its first file is written, and deleted by the
commit that moves the cursor over it. A restart in between makes exactly the same files again. For the same
reason, the records that a batch retracts are taken out of the compacted files before that commit.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.archive import filed_ranges
from waybill.exporter.compaction import (
    GATHER_S,
    CompactionReport,
    CompactionSchedule,
    Compactor,
    RawWriter,
    Retraction,
    squash_hour,
)
from waybill.exporter.directory import raw_files, raw_hours
from waybill.exporter.layout.archived_runs import ArchivedRuns
from waybill.exporter.layout.forgotten_runs import ForgottenRuns
from waybill.exporter.layout.runs import RUN, UnsettledRuns, unpublish
from waybill.exporter.names import PROVENANCE, Hour, RawName
from waybill.exporter.parallel import workers_default
from waybill.exporter.raw_notes import forget_raws, note_raws
from waybill.exporter.stored_records import decode_entries
from waybill.facets import UNREADABLE
from waybill.facets.arrow import to_tables
from waybill.facets.sizes import made_chars
from waybill.transport import RootError
from waybill.transport.files import Files
from waybill.transport.root import Filing
from waybill.transport.runner import Step, left_s, note_published

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

SETTLE_S: Final = 10.0
"""A derived run has settled when no event of it came for so long after its end."""

LINGER_S: Final = 1.0
"""Entries wait so long after a batch, for others to be written with."""

_NAME: Final = "layout"
_FOLDED: Final = "folded"
_ENTRIES_MAX: Final = 50_000
_FOLD_ENTRIES: Final = 5_000  # are decoded at once
_BATCH_BYTES_MAX: Final = 64 * 2**20
_REPLAY_BYTES_MAX: Final = 2**40  # what was one batch is one again
_SMALL_BYTES: Final = 2**16  # of which no event makes large records
_MADE_CHARS_MAX: Final = 2**29
"""An event makes records of at most so many characters; admission lets far fewer pass by default."""
_SCHEDULE_EVERY_S: Final = 30.0
_RETRY_S: Final = 5.0
_DAY_MS: Final = 86_400_000


def open_layout(journal: Journal, settings: Settings) -> Layout | None:
    """The layout of a home, or None where `provenance_enabled` is off."""
    return Layout(journal, settings) if settings.provenance_enabled else None


class Layout:
    """Writes the Parquet provenance layout from the journal."""

    name = _NAME
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
        self._settings = settings
        self._settle_ms = int(settle_s * 1_000)
        self._files = files or Files()
        self._workers = workers or workers_default()
        self._filing = Filing(journal, settings.root, _NAME, PROVENANCE, self._files)
        self._writer = RawWriter(settings.root, files=self._files, workers=self._workers, replaces=False)
        self._linger_s = linger_s
        self._schedule = CompactionSchedule(raw_hours(settings.root), gather_s=gather_s)
        self._runs: UnsettledRuns | None = None
        self._folded_from = 0
        """Every entry from this one on was folded by a version that notes which runs it forgets."""
        self._damaged: dict[Hour, str] = {}
        self._next_ms: int | None = None
        """When the next run settles, in received time."""
        self._next_s = 0.0
        """The same on the monotonic clock, which nobody sets back."""
        self._wrote_s = float("-inf")
        self._goes_on = False
        self._was_away = False

    def step(self) -> Step:
        """Write one batch of entries, or compact the hours that are due."""
        try:
            return self._step()
        except RootError as error:
            self._runs = None
            self._was_away = True
            return Step(retry_s=_RETRY_S, problem=str(error))
        except OSError as error:
            # What is in memory is ahead of what is stored: start again from what is stored.
            self._runs = None
            return Step(
                retry_s=_RETRY_S,
                problem=f"the layout below {self._settings.root} cannot be written ({error}); "
                "mend the disk or make room there, and it goes on",
            )
        except BaseException:
            self._runs = None
            raise

    def pending(self) -> int:
        """Entries that are not in the layout yet, and runs that have ended but not settled."""
        waiting = self._journal.last_seq() - self._journal.cursor(_NAME)
        return waiting + (self._runs.unsettled if self._runs else 0)

    def finish(self) -> None:
        """Compact every hour; raises `OSError` if one could not be compacted, after the others were."""
        # A range that was cut short is written again first: its retractions come before its own records.
        if self._filing.begun() is None:
            self._filing.open()
            self._compact(raw_hours(self._settings.root))

    def close(self) -> None:
        """Do nothing: it holds no resources."""

    def _step(self) -> Step:
        if self._runs is None:
            self._filing.open()
            if self._was_away:
                self._schedule.wrote(raw_hours(self._settings.root))
                self._was_away = False
            self._runs = self._load_runs()
            if (begun := self._filing.begun()) is not None:
                first, last = begun
                limit = last - first + 1
                entries = self._journal.feed(_NAME, first - 1, limit=limit, max_bytes=_REPLAY_BYTES_MAX)
                return self._apply(self._runs, [entry for entry in entries if entry.seq <= last])
        for hour in self._schedule.to_squash():
            self._filing.check()
            squash_hour(self._settings.root, hour, node=self._journal.nodes()[-1].name, files=self._files)
            self._schedule.squashed(hour)
        cursor = self._journal.cursor(_NAME)
        waiting = self._journal.last_seq() - cursor
        linger_s = self._wrote_s + self._linger_s - time.monotonic()
        if waiting and (linger_s <= 0 or waiting >= _ENTRIES_MAX):
            entries = self._journal.feed(_NAME, cursor, limit=_ENTRIES_MAX, max_bytes=_BATCH_BYTES_MAX)
            entries = _first_range(entries)
            # With more waiting than one batch holds there is nothing to linger for.
            self._goes_on = len(entries) < waiting
            return self._apply(self._runs, entries)
        return self._do_what_is_due(self._runs, linger_s if waiting else None)

    def _load_runs(self) -> UnsettledRuns:
        archived = ArchivedRuns(
            self._settings.root,
            self._journal.nodes,
            self._settings.system_name,
            filed=lambda: filed_ranges(self._journal),
            folded_from=lambda: self._folded_from,
        )
        return UnsettledRuns(
            lambda prefix: self._journal.state(_NAME, prefix),
            lambda key: self._journal.state_get(_NAME, key),
            lambda put: self._journal.commit(_NAME, put=put, durable=False),
            allowed=self._settings.provenance_annotations_allowed,
            settle_ms=self._settle_ms,
            retain_ms=int(self._settings.journal_retain_days * _DAY_MS),
            forgotten=ForgottenRuns(lambda keys: self._journal.state_of(_NAME, keys), archived.began_ms),
            archived=archived,
        )

    def _apply(self, runs: UnsettledRuns, entries: Sequence[Entry]) -> Step:
        tables = [
            self._fold(runs, entries[start : start + _FOLD_ENTRIES])
            for start in range(0, len(entries), _FOLD_ENTRIES)
        ]
        first, last = entries[0], entries[-1]
        # Only a claim shows whether the journal's numbers were used before, which the look-up must know.
        raw = RawName(self._filing.begin(first.seq, last.seq), first.seq, last.seq)
        self._folded_from = self._folded_without_gap_from(first.seq)
        outcome = runs.finish(last.seq, last.received_ms)
        try:
            hours = self._writer.write_tables(raw, chain(tables, to_tables(outcome.records)))
        except FileExistsError as error:
            # The range is begun: it is taken up again from what is stored, under another node.
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
        put = {**outcome.put, _FOLDED: msgspec.msgpack.encode((self._folded_from, last.seq))}
        delete = outcome.delete
        if last.is_flush:
            published.update(self._compact(raw_hours(self._settings.root)).published)
            noted, outdated = note_published(self._journal, _NAME, last.seq, published)
            put |= noted
            delete += outdated
        self._filing.done(raw.node, raw.last, put=put, delete=delete)
        self._wrote_s = float("-inf") if self._goes_on else time.monotonic()
        return Step(applied=len(entries), problem=self._damage)

    def _folded_without_gap_from(self, first_seq: int) -> int:
        """The first of the entries that are all folded, up to a batch that begins with an entry.

        There is a gap where an earlier version was at work in between, or where the projection was off for so
        long that the journal has let go of entries.
        """
        stored = self._journal.state_get(_NAME, _FOLDED)
        if stored is None:
            return first_seq
        folded_from, upto = _FOLDED_DECODER.decode(stored)
        return folded_from if first_seq <= upto + 1 else first_seq

    def _fold(self, runs: UnsettledRuns, entries: Sequence[Entry]) -> pa.Table:
        """Fold what entries say of runs, and return the records that they hold by themselves."""
        system_name = self._settings.system_name
        found = decode_entries(
            entries,
            system_name=system_name,
            allowed=self._settings.provenance_annotations_allowed,
            on_error=self._set_aside,
        )
        for entry, event in zip(entries, found.events, strict=True):
            runs.settle_until(entry.received_ms)
            if entry.is_flush:
                runs.settle_all(entry.received_ms)
            elif event is not None:
                stamped = entry.system_name or system_name
                try:
                    if len(entry.body) > _SMALL_BYTES and made_chars(event) > _MADE_CHARS_MAX:
                        raise ValueError("its records would be too large; send fewer outputs in one event")
                    runs.add_event(event, system_name=stamped, received_ms=entry.received_ms)
                except UNREADABLE as error:
                    self._set_aside(entry, error)
        return found.records

    def _set_aside(self, entry: Entry, error: Exception) -> None:
        # Admission lets no such entry in. Should there be one nevertheless, it must not hold up the others.
        self._journal.poison.set_aside(_NAME, entry.seq, f"{type(error).__name__}: {error}")

    def _do_what_is_due(self, runs: UnsettledRuns, linger_s: float | None) -> Step:
        """Settle runs and compact hours whose time has come, while there is nothing to write."""
        if linger_s is None:
            self._filing.check()
        settles_ms = runs.settles_ms
        if settles_ms is not None and settles_ms != self._next_ms:
            self._next_s = time.monotonic() + left_s(settles_ms, self._settle_ms / 1_000)
        self._next_ms = settles_ms
        if settles_ms is not None and self._next_s <= time.monotonic() and linger_s is None:
            self._journal.mark(b"settle", at_ms=settles_ms)
            return Step(applied=1, problem=self._damage)
        if hours := self._schedule.to_compact():
            self._compact(hours)
            return Step(applied=len(hours), problem=self._damage)
        waits_s = [_SCHEDULE_EVERY_S]
        if linger_s is not None:
            waits_s.append(max(linger_s, 0.0))
        if settles_ms is not None:
            waits_s.append(max(self._next_s - time.monotonic(), 0.0))
        return Step(retry_s=min(waits_s), problem=self._damage)

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
        # The notes go first and what is left is noted again, so that a crash leaves none of a file that went.
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
            raise OSError(next(iter(report.failed.values())))
        return report

    def _raws_of(self, nodes: Collection[str], hour: Hour) -> set[RawName]:
        return {raw for raw in raw_files(self._settings.root, hour) if raw.node in nodes}

    @property
    def _damage(self) -> str | None:
        return next(iter(self._damaged.values()), None)


_FOLDED_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int])


def write_again(journal: Journal, cursor: int) -> None:
    """Have the records of runs written once more that were written for the entries after a cursor.

    The root that had them is another one now, and the layout's cursor is about to be moved back. Only whoever
    holds the runner's lease may do so.
    """
    for entry in journal.read(cursor, limit=1):
        journal.commit(_NAME, put=unpublish(journal.state(_NAME, RUN), entry.received_ms))


def _first_range(entries: list[Entry]) -> list[Entry]:
    """Return the first entries up to the first flush, which ends a range."""
    end = next((at for at, entry in enumerate(entries, 1) if entry.is_flush), len(entries))
    return entries[:end]
