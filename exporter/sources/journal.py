"""The journal of a home as a source; a part is a range of its sequence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.journal import Journal, Receipt

from ..stored_records import entries_of
from .source import SourceNotFoundError, Stored

if TYPE_CHECKING:
    from waybill.transport.config import Settings

_PART_ENTRIES: Final = 100_000


class JournalSource(msgspec.Struct, frozen=True):
    """The entries that a journal still holds.

    Attributes:
        since_ms: only entries that arrived then or later.
    """

    home: Path
    since_ms: int = 0

    def describe(self) -> str:
        """Name the home."""
        return f"journal {self.home}"

    def parts(self) -> list[str]:
        """Ranges of sequence numbers as ``first-last``."""
        if not Journal.exists(self.home):
            raise SourceNotFoundError(f"there is no journal at {self.home}; give the right home with --home")
        with contextlib.closing(Journal(self.home, to_read=True)) as journal:
            oldest, last = journal.first(), journal.last_seq()
            first = last + 1 if oldest is None else self._first_since(journal, oldest.seq, last + 1)
        return [
            f"{start}-{min(start + _PART_ENTRIES - 1, last)}"
            for start in range(first, last + 1, _PART_ENTRIES)
        ]

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The entries of a range, without those pruned in the meantime."""
        first, last = map(int, part.split("-"))
        with contextlib.closing(Journal(self.home, to_read=True)) as journal:
            for entries in entries_of(journal, first, last):
                yield [Stored(one.seq, one.kind, one.system_name, one.body) for one in entries]

    def _first_since(self, journal: Journal, first: int, end: int) -> int:
        """The first number of a range whose entry arrived in time, or its end; times never decrease."""
        while first < end:
            middle = (first + end) // 2
            found = next(iter(journal.read(middle - 1, limit=1)), None)
            if found is not None and found.received_ms < self.since_ms:
                first = max(middle, found.seq) + 1
            else:
                end = middle
        return first

    def place(self, part: str, at: int) -> str:  # noqa: ARG002 - of the protocol
        """The sequence number."""
        return f"entry {at} of the journal at {self.home}"

    def receipt(self, part: str, at: int) -> str | None:  # noqa: ARG002 - as that of the archive
        """The receipt of an entry."""
        with contextlib.closing(Journal(self.home, to_read=True)) as journal:
            node = next((node.name for node in reversed(journal.nodes()) if node.after < at), None)
        return None if node is None else str(Receipt(node, at))


def open_journal(places: Sequence[str], settings: Settings) -> JournalSource:
    """The journal of the home in the settings; it takes no places."""
    if places:
        raise SourceNotFoundError("the source `journal` takes no places; give its home with --home")
    return JournalSource(settings.home)
