"""What the catalog has on disk.

    provenance/catalog/catalog                 the contents: the segments, and how far they follow the ledger
    provenance/catalog/NNNNNNNNNN.files        the files of a segment, and the sums of their records
    provenance/catalog/NNNNNNNNNN.keys         their keys

A segment is some files of the root and their keys; it never changes. The contents are replaced as a whole, so
a reader has either the old segments or the new ones. Files that are in no contents were left by a crash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from waybill.exporter.directory import FileStamp
from waybill.exporter.ledger import Position
from waybill.exporter.names import CATALOG, Hour

from .kinds import StoredSums
from .sealing import unsealed

CONTENTS: Final = CATALOG / "catalog"


class CataloguedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A compacted or late file as it was when it was read.

    Attributes:
        number: its number in the keys.
        path: relative to the root.
        rows: how many records it has.
        first_ms: the earliest `completed`, in epoch milliseconds.
        last_ms: the latest `completed`.
        stamp: identifies this version of the file.
        is_summed: whether its segment has the sums of its records.
    """

    number: int
    path: str
    rows: int
    first_ms: int
    last_ms: int
    stamp: FileStamp
    is_summed: bool

    @property
    def system(self) -> str:
        """The safe name of its system."""
        return self.path.split("/")[2]

    @property
    def hour(self) -> Hour:
        """The hour of its records."""
        *_, day, name = self.path.split("/")
        return Hour(day, name[:2])


class SegmentFiles(msgspec.Struct, frozen=True, array_like=True):
    """The files of a segment, and the sums of their records.

    Attributes:
        files: the files, in any order.
        sums: how many records of which kind each has; nothing of a file that is not summed.
    """

    files: list[CataloguedFile]
    sums: StoredSums


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Some files, and where their keys are.

    Attributes:
        serial: the number that its files are named by.
        files: how many files it has.
        keys: how many keys it has.
        first: the earliest hour of its files.
        last: the latest hour of its files.
        first_number: the least number of its files.
        last_number: the greatest number of its files.
    """

    serial: int
    files: int
    keys: int
    first: Hour
    last: Hour
    first_number: int
    last_number: int

    @property
    def files_name(self) -> str:
        """The name of the file with its `CataloguedFile` entries."""
        return f"{self.serial:010}.files"

    @property
    def keys_name(self) -> str:
        """The name of the file with its keys."""
        return f"{self.serial:010}.keys"


class Contents(msgspec.Struct, frozen=True):
    """The contents of a catalog.

    Attributes:
        position: up to this entry the ledger has been followed.
        segments: the segments.
        gone: the numbers of files in the segments that have been removed or replaced since.
        waiting: the hours whose files have not been read yet, the newest first.
        unread: the hours with a file that could not be read.
        doubled: the hours with a compacted and a late file of one system, which may hold the same record.
        serial: the next free serial.
        number: the next free number.
        format: the number of the format of all these files; a catalog with another one is made again.
    """

    position: Position
    segments: tuple[Segment, ...] = ()
    gone: tuple[int, ...] = ()
    waiting: tuple[Hour, ...] = ()
    unread: tuple[Hour, ...] = ()
    doubled: tuple[Hour, ...] = ()
    serial: int = 1
    number: int = 1
    format: Literal[1] = 1


def read_contents(root: Path) -> Contents | None:
    """The contents of a root's catalog; None if it has none. Raises `DamagedError` and `OSError`."""
    try:
        return unsealed(root / CONTENTS, Contents)
    except FileNotFoundError:
        return None


def read_files(root: Path, segment: Segment) -> SegmentFiles:
    """The files of a segment; raises `DamagedError` and `OSError`."""
    return unsealed(root / CATALOG / segment.files_name, SegmentFiles)
