"""How a question gets at the files of a root: which may hold part of its answer, and where they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ..hour_files import HourFiles
from ..parquet import unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from ..differing import Differing
    from ..names import Hour, RawName
    from .query import Query
    from .sums import Dimension


class Listing(Protocol):
    """The files of a root's hours that one question has to read."""

    @property
    def hours(self) -> Sequence[Hour]:
        """The hours that may have such files, in order: a superset of those that do."""

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        """The hour's raw files as they are now, in order of node and range."""

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:
        """The hour's compacted and late files; one that has gone meanwhile may be among them.

        `raws` are the raw files that were listed: rows that they lack are in the returned files.
        """

    def counted(
        self,
        query: Query,  # noqa: ARG002 - without sums
        by: Collection[Dimension],  # noqa: ARG002 - as above
    ) -> tuple[pa.Table | None, Listing]:
        """The sums of records that answer a query and need not be read, and the files of all others.

        The sums are as `waybill.exporter.query.summed` gives them by these dimensions; None: none are known.
        """
        return None, self

    def differing(self) -> Sequence[Differing]:
        """Those of the files asked for, or of their hours, that are not the ledger's, as far as is known.

        It is called once the files were read. Raises `OSError` if the ledger cannot be read.
        """
        return ()


class Access(Protocol):
    """Finds the files of a root for questions."""

    @property
    def problem(self) -> str | None:
        """Why the last question took longer than it need; None if it did not."""

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:
        """List the files that may hold part of an answer.

        It is called once the unfiled records have been read. Of their hours, `unfiled`, it lists every file;
        in every other hour it may leave out files without a record that answers the query.

        Raises:
            OSError: a folder cannot be read.
        """

    def place(self, path: Path) -> Path:
        """Where a file that was listed is on this machine, to be read.

        Raises:
            FileNotFoundError: it is gone.
            DAMAGED: it cannot be had.
        """
        return path

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file of a root that cannot be read."""
        return unreadable(path, error, root=root)


class _Folders(Access):
    """Lists every file of the system that is asked for, folder by folder."""

    problem: str | None = None

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:  # noqa: ARG002
        return HourFiles(root, query.system_name)


FOLDERS: Final[Access] = _Folders()
"""Access by the folders alone, for a single question."""
