"""The correlation index as a projection of the journal.

The index has its own place in the sequence of entries, which changes together with its tables. The journal's
cursor follows it, and only tells which entries may be removed. Entries that the journal has removed, which a
new index lacks, are read from the archive.

With `lineage_retain_days`, the index forgets as of each day before it gets the first entry that was accepted
on that day, also when it is made again. So its tables follow from the entries and the clock.
"""

from __future__ import annotations

import logging
import time
from itertools import takewhile
from typing import TYPE_CHECKING, Final, cast

import apsw

from waybill.transport.errors import RootError, reason_of
from waybill.transport.known_contents import INDEX_NAME
from waybill.transport.root import check_root
from waybill.transport.runner import Step

from .forgetting import DAY_MS
from .index import CORRELATION, place_in_journal
from .sightings import sightings_in
from .writing import IndexWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from waybill.exporter.names import RawName
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

LINGER_S: Final = 1.0
"""After a batch, new entries wait this long for others, so that there are few fsyncs."""

_ENTRIES_MAX: Final = 20_000
_BYTES_MAX: Final = 32 * 2**20
_RETRY_S: Final = 5.0
_LOOK_S: Final = 3600.0
_GRACE_MS: Final = 600_000
"""So long after midnight no entry is still being added that was accepted before it."""

log = logging.getLogger("waybill.runner")


def open_correlation(journal: Journal, settings: Settings) -> Correlation | None:
    """The correlation index of a home; None if `correlation_enabled` or `provenance_enabled` is off."""
    wanted = settings.correlation_enabled and settings.provenance_enabled
    return Correlation(journal, settings) if wanted else None


class Correlation:
    """Keeps the correlation index of a home up to date."""

    name = CORRELATION
    stores = False

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        linger_s: float = LINGER_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._path = journal.home / INDEX_NAME
        self._linger_s = linger_s
        self._now_ms = now_ms
        self._wrote_s = float("-inf")
        self._writer: IndexWriter | None = None
        self._place = 0

    def step(self) -> Step:
        """Add one batch of entries."""
        try:
            return self._step()
        except (apsw.NotADBError, apsw.CorruptError, apsw.SchemaChangeError) as error:
            log.warning("%s cannot be used (%s), so it is made again", self._path, error)
            self._remove()
            return Step(applied=1)
        except apsw.Error as error:
            self.close()
            return Step(
                retry_s=_RETRY_S,
                problem=f"{self._path} cannot be written ({reason_of(error)}); free space there or fix the "
                "disk, and it continues: nothing that was acknowledged is lost",
            )
        except RootError as error:
            return Step(retry_s=_RETRY_S, problem=str(error))
        except BaseException:
            self.close()
            raise

    def pending(self) -> int:
        """The entries that are not in the index yet."""
        return self._journal.last_seq() - self._journal.cursor(CORRELATION)

    def finish(self) -> None:
        """Do nothing: what was added is durable."""

    def close(self) -> None:
        """Release the database; the next step opens it again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _remove(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(INDEX_NAME + suffix).unlink(missing_ok=True)

    def _step(self) -> Step:
        writer = self._writer or self._open()
        waiting = self._journal.last_seq() - self._place
        linger_s = self._wrote_s + self._linger_s - time.monotonic()
        if waiting <= 0:
            return self._idle(writer)
        if waiting < _ENTRIES_MAX and linger_s > 0:
            return Step(retry_s=linger_s)
        entries, upto = self._next()
        if entries and self._settings.lineage_retain_days is not None:
            day = self._day_of(entries[0])
            if day > writer.aged:
                return self._forget(writer, day)
            of_day = list(takewhile(lambda entry: self._day_of(entry) <= day, entries))
            if len(of_day) < len(entries):
                entries, upto = of_day, of_day[-1].seq
        node = self._journal.nodes()[-1].name
        writer.add(sightings_in(entries, system_name=self._settings.system_name), (node, upto))
        self._place, self._wrote_s = upto, time.monotonic()
        # Not fsynced by itself: a cursor that is behind the place is corrected when the index is opened.
        self._journal.commit(CORRELATION, cursor=upto, durable=False)
        return Step(applied=len(entries))

    def _idle(self, writer: IndexWriter) -> Step:
        """Forget what has become old, when every entry is in the index."""
        if self._settings.lineage_retain_days is None:
            return Step()
        day = (self._now_ms() - _GRACE_MS) // DAY_MS
        return self._forget(writer, day) if day > writer.aged else Step(retry_s=_LOOK_S)

    def _forget(self, writer: IndexWriter, day: int) -> Step:
        writer.forget(day, cast("float", self._settings.lineage_retain_days))
        return Step(applied=1)

    def _day_of(self, entry: Entry) -> int:
        """When an entry was accepted; a clock that was ahead makes nothing old."""
        return min(entry.received_ms, self._now_ms()) // DAY_MS

    def _open(self) -> IndexWriter:
        self._writer = IndexWriter(self._path, ancestors_max=self._settings.correlation_ancestors_max)
        self._place = place_in_journal(self._journal, *self._writer.place)
        if self._journal.cursor(CORRELATION) != self._place:
            self._journal.commit(CORRELATION, cursor=self._place)
        return self._writer

    def _next(self) -> tuple[list[Entry], int]:
        """The next entries, and the last number that they cover."""
        entries = self._journal.feed(CORRELATION, self._place, limit=_ENTRIES_MAX, max_bytes=_BYTES_MAX)
        if entries[0].seq > self._place + 1:
            check_root(self._journal, self._settings.root)
            for raw, path in self._archived(self._place, entries[0].seq):
                return [one for one in _entries_of(path) if self._place < one.seq <= raw.last], raw.last
        return entries, entries[-1].seq

    def _archived(self, after: int, before: int) -> list[tuple[RawName, Path]]:
        """The archive's files with entries of this journal between two numbers, in order."""
        from waybill.exporter.archive import archived_files  # loads pyarrow, and is seldom needed

        nodes = {node.name for node in self._journal.nodes()}
        found = [
            (raw, path)
            for raw, path in archived_files(self._settings.root)
            if raw.node in nodes and raw.last > after and raw.first < before
        ]
        return sorted(found, key=lambda one: (one[0].first, one[0].last))


def _entries_of(path: Path) -> list[Entry]:
    """The entries of a file of the archive; none if it cannot be read, which `waybill verify` reports."""
    from waybill.exporter.archive import read_entries
    from waybill.exporter.parquet import DAMAGED

    try:
        return [entry for batch in read_entries(path) for entry in batch]
    except DAMAGED as error:
        log.warning("the correlation index lacks what %s holds, which cannot be read: %s", path, error)
        return []
