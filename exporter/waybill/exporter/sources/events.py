"""The archive of a root as a source; a part is one of its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter import parquet
from waybill.exporter.sources.source import SourceError, Stored
from waybill.exporter.stored import EVENTS, archived_files, read_entries

if TYPE_CHECKING:
    from waybill.transport.settings import Settings


class EventsSource(msgspec.Struct, frozen=True):
    """What an archive holds.

    Attributes:
        root: the folder that has ``events/`` in it.
    """

    root: Path

    def describe(self) -> str:
        """Name the root."""
        return f"events {self.root}"

    def parts(self) -> list[str]:
        """The files, relative to the root.

        Raises:
            SourceError: there is no archive.
        """
        if not (self.root / EVENTS).is_dir():
            raise SourceError(
                f"there is no archive below {self.root}; give the root that has {EVENTS}/ in it"
            )
        return [str(path.relative_to(self.root)) for _, path in archived_files(self.root)]

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The entries of a file.

        Raises:
            SourceError: it is damaged.
        """
        try:
            for batch in read_entries(self.root / part):
                yield [Stored(one.seq, one.kind, one.system_name, one.body) for one in batch]
        except parquet.DAMAGED as error:
            raise SourceError(parquet.unreadable(self.root / part, error)) from None

    def place(self, part: str, at: int) -> str:
        """The file, and the sequence number in it."""
        return f"entry {at} in {self.root / part}"


def open_events(places: Sequence[str], settings: Settings) -> EventsSource:
    """The archive of a root; that of the settings when none is given.

    Raises:
        SourceError: more than one root is given.
    """
    if len(places) > 1:
        raise SourceError("the source `events` takes one root; rebuild from each in turn")
    return EventsSource(Path(places[0]).absolute() if places else settings.root)
