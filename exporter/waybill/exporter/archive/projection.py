"""The archive as a projection of the journal: every entry of every kind, kept for rebuilds.

Entries gather in memory until they make a large file, have waited for a while, a flush asks for them, or
their hour of arrival has ended. A file holds one range of one hour. The range is stored before the file is
written, and deleted by the commit that moves the cursor over it. A restart in between writes exactly that
range again, so that its file is overwritten. Each file is sealed, names the one before it, and is in the
root's ledger.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import parquet
from waybill.exporter.archive.files import encode_entries, last_seal
from waybill.exporter.ledger import recorded, relative
from waybill.exporter.names import Hour, RawName, events_folder, hour_of
from waybill.transport.files import Files, publish, sweep
from waybill.transport.runner import Step

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

GATHER_S: Final = 60.0
"""Entries wait so long for others, so that there are few large files rather than many small ones."""

_NAME: Final = "archive"
_RANGE: Final = "range"
_ENTRIES_MAX: Final = 50_000
_BYTES_MAX: Final = 32 * 2**20
_READ_MAX: Final = 10_000
_READ_BYTES_MAX: Final = 8 * 2**20
_RETRY_S: Final = 5.0
_RANGE_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int])


def open_archive(journal: Journal, settings: Settings) -> Archive | None:
    """The archive of a home, or None where `archive_enabled` is off."""
    return Archive(journal, settings) if settings.archive_enabled else None


class Archive:
    """Writes every entry of the journal below ``events/``."""

    name = _NAME
    stores = True

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        files: Files | None = None,
        gather_s: float = GATHER_S,
        entries_max: int = _ENTRIES_MAX,
        read_max: int = _READ_MAX,
    ) -> None:
        self._entries_max = entries_max
        self._read_max = read_max
        self._journal = journal
        self._root: Path = settings.root
        self._files = files or Files()
        self._gather_ms = int(gather_s * 1_000)
        self._cursor: int | None = None
        self._gathered: list[Entry] = []
        self._gathered_bytes = 0
        self._flush: int | None = None
        self._stored_range: tuple[int, int] | None = None
        self._seal: str | None = None

    def step(self) -> Step:
        """Gather new entries, and write one file if it is due."""
        try:
            return self._step(finishing=False)
        except OSError as error:
            self._reset()
            return Step(
                retry_s=_RETRY_S,
                problem=f"the archive below {self._root} cannot be written ({error}); "
                "mend the disk or make room there, and it goes on",
            )
        except BaseException:
            self._reset()
            raise

    def pending(self) -> int:
        """Entries that were not read yet. No runner waits for those that gather: `finish` writes them."""
        return self._journal.last_seq() - self._seen

    def finish(self) -> None:
        """Write the gathered entries; raises `OSError` if a file could not be written."""
        try:
            while self._step(finishing=True).applied:
                pass
        except BaseException:
            self._reset()
            raise

    def close(self) -> None:
        """Do nothing: it holds no resources."""

    @property
    def _seen(self) -> int:
        if self._gathered:
            return self._gathered[-1].seq
        return self._journal.cursor(_NAME) if self._cursor is None else self._cursor

    def _reset(self) -> None:
        """Start again from what is stored."""
        self._cursor = None
        self._keep([])

    def _keep(self, entries: list[Entry]) -> None:
        self._gathered, self._gathered_bytes, self._flush = [], 0, None
        self._add(entries)

    def _add(self, entries: list[Entry]) -> None:
        self._gathered += entries
        self._gathered_bytes += sum(len(entry.body) for entry in entries)
        if self._flush is None:
            self._flush = next((entry.seq for entry in entries if entry.is_flush), None)

    @property
    def _has_enough(self) -> bool:
        return self._full if self._stored_range is None else self._seen >= self._stored_range[1]

    @property
    def _full(self) -> bool:
        return self._gathered_bytes >= _BYTES_MAX or len(self._gathered) >= self._entries_max

    def _step(self, *, finishing: bool) -> Step:
        if self._cursor is None:
            self._begin()
        while not self._has_enough and self._gather():
            pass
        count = self._due()
        if count is None and finishing:
            count = len(self._gathered)
        if count:
            return self._write(count)
        if not self._gathered:
            return Step()
        waits_ms = self._gathered[0].received_ms + self._gather_ms - time.time_ns() // 1_000_000
        return Step(retry_s=max(waits_ms, 0) / 1_000)

    def _begin(self) -> None:
        self._reset()
        self._cursor = self._journal.cursor(_NAME)
        stored = self._journal.state_get(_NAME, _RANGE)
        self._stored_range = None if stored is None else _RANGE_DECODER.decode(stored)
        self._seal = None
        # A damaged file has no seal to be named by; `verify` reports it.
        with contextlib.suppress(*parquet.DAMAGED):
            self._seal = last_seal(self._root, self._journal.node, self._cursor)

    def _gather(self) -> bool:
        """Read on; return False when there is nothing new."""
        entries = self._journal.read(self._seen, limit=self._read_max, max_bytes=_READ_BYTES_MAX)
        self._add(entries)
        return bool(entries)

    def _due(self) -> int | None:
        """How many of the gathered entries make a file now."""
        if not self._gathered:
            return None
        if self._stored_range is not None:
            # The stored range must become the same file again.
            last = self._stored_range[1]
            return self._upto(last) if self._gathered[-1].seq >= last else None
        hour = _hour(self._gathered[0])
        if _hour(self._gathered[-1]) != hour:
            return next(at for at, entry in enumerate(self._gathered) if _hour(entry) != hour)
        if self._flush is not None:
            return self._upto(self._flush)
        # After a clock was set back, they must not wait until it is that late again.
        waited_ms = time.time_ns() // 1_000_000 - self._gathered[0].received_ms
        gathering = 0 <= waited_ms < self._gather_ms
        return None if gathering and not self._full else len(self._gathered)

    def _upto(self, seq: int) -> int:
        return sum(entry.seq <= seq for entry in self._gathered)

    def _write(self, count: int) -> Step:
        entries = self._gathered[:count]
        name = RawName(self._journal.node, entries[0].seq, entries[-1].seq)
        folder = self._root / events_folder(_hour(entries[0]))
        if self._stored_range is None:
            self._journal.commit(_NAME, put={_RANGE: msgspec.msgpack.encode((name.first, name.last))})
        else:
            sweep(self._files, folder, f"{name}.")
        path = folder / str(name)
        data, seal = encode_entries(name.node, entries, self._seal)
        with recorded(self._root, self._files, [_hour(entries[0])]) as changed:
            self._files.make_folder(folder)
            publish(self._files, path, data)
            changed[relative(self._root, path)] = seal
        self._journal.commit(_NAME, cursor=name.last, delete=[_RANGE])
        self._cursor, self._stored_range, self._seal = name.last, None, seal
        self._keep(self._gathered[count:])
        return Step(applied=count)


def _hour(entry: Entry) -> Hour:
    return hour_of(entry.received_ms)
