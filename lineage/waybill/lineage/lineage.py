"""`Lineage`: the door to all answers about the files of a home or a root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from waybill.exporter import Query, find
from waybill.lineage.tracing import trace
from waybill.transport import NotFoundError, Settings

if TYPE_CHECKING:
    import os

    from waybill.facets import ProvenanceRecord
    from waybill.lineage.journey import Journey, JourneyFile


class Lineage:
    """The records of a home or a root, to read only.

    Each question sees every record that was accepted before it, whether or not it is in a file yet, as
    `waybill find` does. A run that has ended and may still change is left out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def open(cls, folder: str | os.PathLike[str] | None = None) -> Lineage:
        """Open a home, or a root that is no home.

        Args:
            folder: its path; None: the home of the settings, as the command `waybill` would take it.

        Raises:
            NotFoundError: there is no such folder.
            SettingsError: a setting is invalid.
        """
        place = Settings.load({}, origin="Lineage.open").home if folder is None else Path(folder)
        if not place.is_dir():
            raise NotFoundError(f"there is no folder {place}; give the path of a home or of a root")
        return cls(place)

    def find(self, query: Query | None = None) -> list[ProvenanceRecord]:
        """The records that answer a query, newest first; see `waybill.find` for what it raises."""
        return find(self._folder, query)

    def trace(self, did: str, *, up: bool = True, down: bool = True, depth: int | None = None) -> Journey:
        """The journey of a file: see `waybill.lineage.trace`.

        Raises:
            NotFoundError: nothing is recorded of it.
            IncompleteError: a file or an entry could not be read.
        """
        return trace(self.find, did, up=up, down=down, depth=depth)

    def ancestors(self, did: str) -> list[JourneyFile]:
        """The files that a file came from, the nearest first; raises what `trace` does."""
        return self.trace(did, down=False).ancestors()

    def descendants(self, did: str) -> list[JourneyFile]:
        """The files that came from a file, the nearest first; raises what `trace` does."""
        return self.trace(did, up=False).descendants()
