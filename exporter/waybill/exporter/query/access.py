"""How a question gets at the files of a root: which may hold part of its answer, and how they are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from waybill.exporter.hour_files import HourFiles
from waybill.exporter.parquet import Selectable, open_selectable, unreadable

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from waybill.exporter.hour_files import Listing
    from waybill.exporter.names import Hour
    from waybill.exporter.query.query import Query


class Access(Protocol):
    """Finds and opens the files of a root for questions."""

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:
        """List the files that may hold part of an answer.

        It is called once the unfiled records have been read. Of their hours, `unfiled`, it lists every file;
        in every other hour it may leave out files without a record that answers the query.

        Raises:
            OSError: a folder cannot be read.
        """

    def open_file(self, path: Path) -> Selectable:
        """Open a file that was listed; raises what `waybill.exporter.parquet.open_selectable` does."""

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file of a root that raised one of `waybill.exporter.parquet.DAMAGED`."""


class _Folders:
    """Lists every file of the system that is asked for, folder by folder."""

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:  # noqa: ARG002
        return HourFiles(root, query.system_name)

    def open_file(self, path: Path) -> Selectable:
        return open_selectable(path)

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        return unreadable(path, error, root=root)


FOLDERS: Final[Access] = _Folders()
"""Access by the folders alone, for a single question."""
