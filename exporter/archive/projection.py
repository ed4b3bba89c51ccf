"""The archive as a projection of the journal: every entry of every kind, kept for rebuilds.

Entries collect in memory until they make a large file, have waited long enough, are flushed, or their hour of
arrival has ended. A file contains one range of one hour. The range is stored before the file is written, and
deleted by the commit that moves the cursor past it. A restart in between makes exactly the same file again.
Each file is sealed, names the previous file, and is in the root's ledger.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.transport import RootError
from waybill.transport.errors import reason_of
from waybill.transport.files import Files, publish_new, sweep
from waybill.transport.root import Filing
from waybill.transport.runner import Projection, Step, left_s

from ..ledger import recorded
from ..names import ARCHIVE, EVENTS, RawName, events_folder, relative
from ..parquet import Covers
from .files import BYTES_MAX, ENTRIES_MAX, ArchivedEntry, arrival_hour, encode_entries, last_seal

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

GATHER_S: Final = 60.0
"""Entries wait this long for others, so that there are few large files instead of many small ones."""

_READ_EVERY_S: Final = 0.5
"""While it gathers, it reads what has arrived so often: what was read lately is not read again."""

_FILED: Final = "filed"
_READ_MAX: Final = 10_000
_READ_BYTES_MAX: Final = 8 * 2**20
_RETRY_S: Final = 5.0


def open_archive(journal: Journal, settings: Settings) -> Archive | None:
    """The archive of a home; None if `archive_enabled` is off."""
    return Archive(journal, settings) if settings.archive_enabled else None


def filed_ranges(journal: Journal) -> Covers:
    """The ranges that a journal's archive has filed.

    As long as a file of such a range exists, it contains the entries that the journal has or had under these
    numbers. The node's other files contain entries that the journal has lost, or entries of a copy of it.
    """
    stored = journal.state_get(ARCHIVE, _FILED)
    return Covers() if stored is None else Covers.decode(stored)


class Archive(Projection):
    """Writes every entry of the journal below ``events/``."""

    name = ARCHIVE
    stores = True

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        files: Files | None = None,
        gather_s: float = GATHER_S,
        entries_max: int = ENTRIES_MAX,
        read_max: int = _READ_MAX,
    ) -> None:
        self._entries_max = entries_max
        self._read_max = read_max
        self._journal = journal
        self._root: Path = settings.root
        self._files = files or Files()
        self._filing = Filing(journal, settings.root, ARCHIVE, str(EVENTS), self._files)
        self._gather_s = gather_s
        self._due_s = 0.0
        """When the collected entries have waited long enough, on the monotonic clock."""
        self._cursor: int | None = None
        self._gathered: list[ArchivedEntry] = []
        self._gathered_bytes = 0
        self._flush: int | None = None
        self._stored_range: tuple[int, int] | None = None
        self._node = ""
        self._seal: str | None = None

    def step(self) -> Step:
        """Collect new entries, and write one file if it is due."""
        try:
            return self._step(finishing=False)
        except RootError as error:
            self._reset()
            return Step(retry_s=_RETRY_S, problem=str(error))
        except OSError as error:
            self._reset()
            return Step(
                retry_s=_RETRY_S,
                problem=f"the archive below {self._root} cannot be written ({reason_of(error)}); "
                "free space there or fix the disk, and it continues: nothing that was acknowledged is lost",
            )
        except BaseException:
            self._reset()
            raise

    def pending(self) -> int:
        """Entries that were not read yet. No runner waits for collected entries: `finish` writes them."""
        return self._journal.last_seq() - self._seen

    def finish(self) -> None:
        """Write the collected entries; raises `OSError` if a file could not be written."""
        try:
            while self._step(finishing=True).applied:
                pass
        except BaseException:
            self._reset()
            raise

    @property
    def _seen(self) -> int:
        if self._gathered:
            return self._gathered[-1].seq
        return self._journal.cursor(ARCHIVE) if self._cursor is None else self._cursor

    def _reset(self) -> None:
        """Start again from the stored state."""
        self._cursor = None
        self._keep([])

    def _keep(self, entries: list[ArchivedEntry]) -> None:
        self._gathered, self._gathered_bytes, self._flush = [], 0, None
        self._add(entries)

    def _add(self, entries: list[ArchivedEntry]) -> None:
        if entries and not self._gathered:
            gathered_ms = entries[0].received_ms + int(self._gather_s * 1_000)
            clock = self._journal.clock
            self._due_s = clock.monotonic_s() + left_s(clock, gathered_ms, self._gather_s)
        self._gathered += entries
        self._gathered_bytes += sum(len(entry.body) for entry in entries)
        if self._flush is None:
            self._flush = next((entry.seq for entry in entries if entry.is_flush), None)

    @property
    def _has_enough(self) -> bool:
        return self._full if self._stored_range is None else self._seen >= self._stored_range[1]

    @property
    def _full(self) -> bool:
        return self._gathered_bytes >= BYTES_MAX or len(self._gathered) >= self._entries_max

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
        due_s = max(self._due_s - self._journal.clock.monotonic_s(), 0.0)
        return Step(retry_s=min(due_s, _READ_EVERY_S), gathers=True)

    def _begin(self) -> None:
        self._reset()
        self._filing.open()
        self._cursor = self._journal.cursor(ARCHIVE)
        self._stored_range = self._filing.begun()
        self._node, self._seal = "", None

    def _gather(self) -> bool:
        """Read more entries; return False if there is nothing new."""
        entries = self._journal.feed(ARCHIVE, self._seen, limit=self._read_max, max_bytes=_READ_BYTES_MAX)
        self._add(list(map(ArchivedEntry.of, entries)))
        return bool(entries)

    def _due(self) -> int | None:
        """How many of the collected entries make a file now."""
        if not self._gathered:
            return None
        if self._stored_range is not None:
            # The stored range must become the same file again.
            last = self._stored_range[1]
            return self._upto(last) if self._gathered[-1].seq >= last else None
        hour = arrival_hour(self._gathered[0])
        if arrival_hour(self._gathered[-1]) != hour:
            hours = map(arrival_hour, self._gathered)
            return next(at for at, one in enumerate(hours) if one != hour)  # the last one's is another
        if self._flush is not None:
            return self._upto(self._flush)
        gathering = self._journal.clock.monotonic_s() < self._due_s
        return None if gathering and not self._full else len(self._gathered)

    def _upto(self, seq: int) -> int:
        return sum(entry.seq <= seq for entry in self._gathered)

    def _write(self, count: int) -> Step:
        entries = self._gathered[:count]
        node = self._filing.begin(entries[0].seq, entries[-1].seq)
        if node != self._node:
            self._node, self._seal = node, last_seal(self._root, node, self._journal.cursor(ARCHIVE))
        name = RawName(node, entries[0].seq, entries[-1].seq)
        folder = self._root / events_folder(arrival_hour(entries[0]))
        if self._stored_range is not None:
            sweep(self._files, folder, f"{name}.")
        path = folder / str(name)
        data, seal = encode_entries(node, entries, self._seal)
        try:
            with recorded(self._root, self._files, [arrival_hour(entries[0])], keeps=True) as changed:
                self._files.make_folder(folder)
                publish_new(self._files, path, data)
                changed[relative(self._root, path)] = seal
        except FileExistsError:
            self._filing.give_way(node, path)
            return self._write(count)
        filed = filed_ranges(self._journal).adding([name])
        self._filing.done(node, name.last, put={_FILED: filed.encode()})
        self._cursor, self._stored_range, self._seal = name.last, None, seal
        self._keep(self._gathered[count:])
        return Step(applied=count)
