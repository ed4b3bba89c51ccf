"""The layout as a projection of the journal.

A batch of entries is one range. The range is stored before its first file is written, and deleted by the
commit that moves the cursor over it. A restart in between writes exactly that range again, so that its files
are overwritten. For the same reason, the records that a batch retracts are taken out of the compacted files
before that commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.exporter.compaction import (
    GATHER_S,
    CompactionReport,
    CompactionSchedule,
    Compactor,
    RawWriter,
    Retraction,
    squash_hour,
)
from waybill.exporter.directory import raw_hours
from waybill.exporter.layout.archived_runs import ArchivedRuns
from waybill.exporter.layout.runs import UnsettledRuns
from waybill.exporter.names import Hour, RawName
from waybill.exporter.parallel import workers_default
from waybill.exporter.stored_records import decode_entries
from waybill.facets import UNREADABLE
from waybill.facets.arrow import to_table
from waybill.transport.files import Files
from waybill.transport.runner import Step, note_published

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

log = logging.getLogger("waybill.exporter")

SETTLE_S: Final = 10.0
"""A derived run has settled when no event of it came for so long after its end."""

LINGER_S: Final = 1.0
"""Entries wait so long after a batch, for others to be written with."""

_NAME: Final = "layout"
_RANGE: Final = "range"
_ENTRIES_MAX: Final = 50_000
_FOLD_ENTRIES: Final = 5_000  # are decoded at once
_BATCH_BYTES_MAX: Final = 64 * 2**20
_REPLAY_BYTES_MAX: Final = 2**40  # what was one batch is one again
_SCHEDULE_EVERY_S: Final = 30.0
_RETRY_S: Final = 5.0
_DAY_MS: Final = 86_400_000
_RANGE_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int])


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
        workers = workers or workers_default()
        self._journal = journal
        self._settings = settings
        self._settle_ms = int(settle_s * 1_000)
        self._files = files or Files()
        self._writer = RawWriter(settings.root, files=self._files, workers=workers)
        self._compactor = Compactor(settings.root, node=journal.node, files=self._files, workers=workers)
        self._linger_s = linger_s
        self._schedule = CompactionSchedule(raw_hours(settings.root), gather_s=gather_s)
        self._runs: UnsettledRuns | None = None
        self._damaged: dict[Hour, str] = {}
        self._wrote_s = float("-inf")
        self._goes_on = False

    def step(self) -> Step:
        """Write one batch of entries, or compact the hours that are due."""
        try:
            return self._step()
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
        if self._journal.state_get(_NAME, _RANGE) is None:
            self._compact(raw_hours(self._settings.root))

    def close(self) -> None:
        """Do nothing: it holds no resources."""

    def _step(self) -> Step:
        if self._runs is None:
            self._runs = self._load_runs()
            if (stored := self._journal.state_get(_NAME, _RANGE)) is not None:
                first, last = _RANGE_DECODER.decode(stored)
                entries = self._journal.read(first - 1, limit=last - first + 1, max_bytes=_REPLAY_BYTES_MAX)
                entries = [entry for entry in entries if entry.seq <= last]
                return self._apply(self._runs, entries, RawName(self._journal.node, first, last))
        for hour in self._schedule.to_squash():
            squash_hour(self._settings.root, hour, node=self._journal.node, files=self._files)
            self._schedule.squashed(hour)
        cursor = self._journal.cursor(_NAME)
        waiting = self._journal.last_seq() - cursor
        linger_s = self._wrote_s + self._linger_s - time.monotonic()
        if waiting and (linger_s <= 0 or waiting >= _ENTRIES_MAX):
            entries = _first_range(self._journal.read(cursor, limit=_ENTRIES_MAX, max_bytes=_BATCH_BYTES_MAX))
            raw = RawName(self._journal.node, entries[0].seq, entries[-1].seq)
            # With more waiting than one batch holds there is nothing to linger for.
            self._goes_on = len(entries) < waiting
            self._journal.commit(_NAME, put={_RANGE: msgspec.msgpack.encode((raw.first, raw.last))})
            return self._apply(self._runs, entries, raw)
        return self._do_what_is_due(self._runs, linger_s if waiting else None)

    def _load_runs(self) -> UnsettledRuns:
        return UnsettledRuns(
            lambda prefix: self._journal.state(_NAME, prefix),
            lambda key: self._journal.state_get(_NAME, key),
            allowed=self._settings.provenance_annotations_allowed,
            settle_ms=self._settle_ms,
            retain_ms=int(self._settings.journal_retain_days * _DAY_MS),
            archived=ArchivedRuns(self._settings.root, self._journal.node, self._settings.system_name).of,
        )

    def _apply(self, runs: UnsettledRuns, entries: Sequence[Entry], raw: RawName) -> Step:
        tables = [
            self._fold(runs, entries[start : start + _FOLD_ENTRIES])
            for start in range(0, len(entries), _FOLD_ENTRIES)
        ]
        last = entries[-1]
        outcome = runs.finish(last.seq, last.received_ms)
        table = pa.concat_tables([*tables, to_table(outcome.records)])
        self._schedule.wrote(self._writer.write_table(raw, table))
        published: set[str] = set()
        if outcome.retracted:
            published.update(self._compact([], Retraction(raw, outcome.retracted)).published)
        put, delete = dict(outcome.put), [*outcome.delete, _RANGE]
        if last.is_flush:
            published.update(self._compact(raw_hours(self._settings.root)).published)
            noted, outdated = note_published(self._journal, _NAME, last.seq, published)
            put |= noted
            delete += outdated
        self._journal.commit(_NAME, cursor=raw.last, put=put, delete=delete)
        self._wrote_s = float("-inf") if self._goes_on else time.monotonic()
        return Step(applied=len(entries), problem=self._damage)

    def _fold(self, runs: UnsettledRuns, entries: Sequence[Entry]) -> pa.Table:
        """Fold what entries say of runs, and return the records that they hold by themselves."""
        system_name = self._settings.system_name
        found = decode_entries(
            entries,
            system_name=system_name,
            allowed=self._settings.provenance_annotations_allowed,
            on_error=_log_unreadable,
        )
        for entry, event in zip(entries, found.events, strict=True):
            runs.settle_until(entry.received_ms)
            if entry.is_flush:
                runs.settle_all(entry.received_ms)
            elif event is not None:
                stamped = entry.system_name or system_name
                try:
                    runs.add_event(event, system_name=stamped, received_ms=entry.received_ms)
                except UNREADABLE as error:
                    _log_unreadable(entry, error)
        return found.records

    def _do_what_is_due(self, runs: UnsettledRuns, linger_s: float | None) -> Step:
        """Settle runs and compact hours whose time has come, while there is nothing to write."""
        now_ms = time.time_ns() // 1_000_000
        settles_ms = runs.settles_ms
        if settles_ms is not None and settles_ms <= now_ms and linger_s is None:
            self._journal.mark(b"settle")
            return Step(applied=1, problem=self._damage)
        if hours := self._schedule.to_compact():
            self._compact(hours)
            return Step(applied=len(hours), problem=self._damage)
        waits_s = [_SCHEDULE_EVERY_S]
        if linger_s is not None:
            waits_s.append(max(linger_s, 0.0))
        if settles_ms is not None:
            waits_s.append(max(settles_ms - now_ms, 0) / 1_000)
        return Step(retry_s=min(waits_s), problem=self._damage)

    def _compact(self, hours: Collection[Hour], retraction: Retraction | None = None) -> CompactionReport:
        report = self._compactor.compact(hours, retraction=retraction)
        for hour in hours:
            self._damaged.pop(hour, None)
        self._damaged.update(report.unreadable)
        self._schedule.compacted(hours)
        self._schedule.postpone(report.unreadable)
        if report.failed:
            self._schedule.postpone(report.failed)
            raise OSError(next(iter(report.failed.values())))
        return report

    @property
    def _damage(self) -> str | None:
        return next(iter(self._damaged.values()), None)


def _log_unreadable(entry: Entry, error: Exception) -> None:
    # Admission lets no such entry in. Should there be one nevertheless, it must not hold up the others.
    log.error("entry %d of the journal cannot be read, and is not in the layout", entry.seq, exc_info=error)


def _first_range(entries: list[Entry]) -> list[Entry]:
    """Return the first entries up to the first flush, which ends a range."""
    end = next((at for at, entry in enumerate(entries, 1) if entry.is_flush), len(entries))
    return entries[:end]
