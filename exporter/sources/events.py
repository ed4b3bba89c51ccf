"""The archive of a root as a source; a part is one of its files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.transport.journal import Receipt

from .. import parquet
from ..archive import archived_files, read_entries
from ..names import EVENTS, RawName, hour_in, hour_of
from ..object_stores import local_or_url
from .objects import MARK, list_objects, read_object, shown
from .source import SourceError, SourceNotFoundError, Stored

if TYPE_CHECKING:
    from waybill.transport.config import Settings


class EventsSource(msgspec.Struct, frozen=True):
    """The entries of an archive.

    Attributes:
        root: the folder that contains ``events/``, or the URL of such a folder in an object store.
        since_ms: only hours with entries that arrived then or later.
    """

    root: Path | str
    since_ms: int = 0

    def describe(self) -> str:
        """Name the root."""
        return f"events {self.root}"

    def parts(self) -> list[str]:
        """The archive's files, relative to the root."""
        if isinstance(self.root, str):
            return self._objects(self.root)
        if not (self.root / EVENTS).is_dir():
            raise SourceNotFoundError(
                f"there is no archive below {self.root}; give the root that contains {EVENTS}/"
            )
        files = archived_files(self.root, hour_of(self.since_ms))
        return [str(path.relative_to(self.root)) for _, path in files]

    def read(
        self, part: str, *, run_ids: Collection[str] | None = None, before_ms: int = 2**63
    ) -> Iterator[Sequence[Stored]]:
        """The entries of a file, or those of some runs; only those that arrived before an instant."""
        path = Path(self.root, part)
        file = path if isinstance(self.root, Path) else read_object(part)
        try:
            for batch in read_entries(file, run_ids=run_ids):
                yield [
                    Stored(one.seq, one.kind, one.system_name, one.body)
                    for one in batch
                    if one.received_ms < before_ms
                ]
        except parquet.DAMAGED as error:
            root = self.root if isinstance(self.root, Path) else None
            raise SourceError(parquet.unreadable(path, error, root=root)) from None

    def place(self, part: str, at: int) -> str:
        """The file, and the sequence number in it."""
        return f"entry {at} in {self.root / part if isinstance(self.root, Path) else shown(part)}"

    def receipt(self, part: str, at: int) -> str | None:
        """The receipt of an entry; None if the file has no name of ours."""
        name = RawName.parse(Path(part).name)
        return None if name is None else str(Receipt(name.node, at))

    def _objects(self, url: str) -> list[str]:
        names = list_objects(f"{url.rstrip('/')}/{EVENTS}")
        if not names:
            raise SourceNotFoundError(
                f"there is no archive below {url}; give the root that contains {EVENTS}/"
            )
        return [name for name in names if RawName.parse(name.rpartition("/")[2]) and self._is_since(name)]

    def _is_since(self, name: str) -> bool:
        hour = hour_in(f"{EVENTS}/{name.partition(MARK)[2]}")
        return hour is None or hour >= hour_of(self.since_ms)


def open_events(places: Sequence[str], settings: Settings) -> EventsSource:
    """The archive of the given root, or of the root in the settings."""
    if len(places) > 1:
        raise SourceNotFoundError("the source `events` takes one root; rebuild from one root after the other")
    return EventsSource(local_or_url(places[0]) if places else settings.root)
