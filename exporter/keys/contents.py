"""What the keys have on disk, below ``provenance/keys``.

    contents.json                   the spans, and how far they follow the ledger
    differing.json                  see `waybill.exporter.differing`
    <span>-<serial>.keys.parquet    a hash of each text in the span's files, in order, and the file's number
    <span>-<serial>.files.parquet   the span's files, in order of their hours
    <span>-<serial>.sums.parquet    how many records of which kind each of them has

A span is some files of an hour, a day, a month or a year, which it is named by: ``2026010105`` or ``202601``.
It never changes. The contents are replaced as a whole, so a reader has either the old spans or the new ones.
Files that are in no contents were left by a crash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import duckdb
import msgspec

from waybill.transport.errors import WaybillError

from ..ledger import Position
from ..names import KEYS, Hour

CONTENTS: Final = KEYS / "contents.json"
KINDS: Final = ("keys", "files", "sums")
"""The kinds of the files of a span."""


class DamagedError(WaybillError):
    """A file below ``provenance/keys`` is not as it was written, or has another format.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} cannot be used; until it is made again, answers take longer"


class Span(msgspec.Struct, frozen=True):
    """Some files, and where their keys are.

    Attributes:
        name: the year, month, day or hour that all records of its files are of, as its first digits.
        serial: the number that no other span has or had.
        files: how many files it has.
        keys: how many keys it has.
        gone: the numbers of those of its files that have been removed or replaced since.
        footers: of its files of all `KINDS`, digests of the footers, which say how many rows there are and
            where; the pages have checksums.
    """

    name: str
    serial: int
    files: int
    keys: int
    gone: tuple[int, ...] = ()
    footers: tuple[str, ...] = ()

    @property
    def live(self) -> int:
        """How many of its files are not gone."""
        return self.files - len(self.gone)

    def path(self, root: Path, kind: str) -> Path:
        """The path of its file of a kind."""
        return root / KEYS / f"{self.name}-{self.serial}.{kind}.parquet"

    def has(self, hour: Hour) -> bool:
        """Whether an hour is in its time."""
        return digits_of(hour).startswith(self.name)


class Contents(msgspec.Struct, frozen=True):
    """The contents of the keys.

    Attributes:
        position: up to this entry the ledger has been followed.
        spans: the spans.
        waiting: the hours whose files have not been read yet, the newest first.
        whole: the hours of which every file is read: with one that could not be read for its keys, or with a
            compacted and a late file of one system, which may hold the same record.
        serial: the next free serial.
        number: the next free number of a file; none is ever used again.
        duckdb: the version that computed the hashes; those of another one are computed again.
        format: the number of the format of all these files; keys with another one are made again.
    """

    position: Position
    spans: tuple[Span, ...] = ()
    waiting: tuple[Hour, ...] = ()
    whole: tuple[Hour, ...] = ()
    serial: int = 1
    number: int = 1
    duckdb: str = duckdb.__version__
    format: Literal[3] = 3


def digits_of(hour: Hour) -> str:
    """An hour as ``YYYYMMDDHH``; that of its day, month and year is the begin of it."""
    return hour.day + hour.hour


def read_contents(root: Path) -> Contents | None:
    """The contents of a root's keys; None if it has none. Raises `DamagedError` and `OSError`."""
    try:
        contents = msgspec.json.decode((root / CONTENTS).read_bytes(), type=Contents)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        raise DamagedError(root / CONTENTS) from None
    if contents.duckdb != duckdb.__version__:
        raise DamagedError(root / CONTENTS)
    return contents
