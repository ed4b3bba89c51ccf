"""The ledger's entries on disk: a file each, and one file for all of a day that is over.

    provenance/ledger/YYYYMMDD/NNNNNNNNNN.json                 one entry
    provenance/ledger/YYYYMMDD/NNNNNNNNNN-NNNNNNNNNN.jsonl     all of a day, a line each, byte for byte

The second kind is made of the first when a later day has its first entry, so a year is 365 files rather than
half a million. It is published before the others go; those that a crash left beside it count for nothing.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.exporter.directory import names
from waybill.exporter.names import LEDGER
from waybill.transport.files import Files, publish, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE: Final = re.compile(r"([0-9]{10})\.json")
_DAY: Final = re.compile(r"([0-9]{10})-([0-9]{10})\.jsonl")


class EntryFile(NamedTuple):
    """An entry as it is on disk."""

    path: Path
    """The file that it is in."""
    number: int
    """Its place in the ledger; in a day's file, of the last one there."""
    content: bytes
    """The entry itself, as it was published."""


def read_entries(root: Path) -> Iterator[EntryFile]:
    """Every entry, the first one first.

    Raises:
        OSError: one cannot be read.
    """
    for day in _days(root):
        yield from _of_day(root, day)


def last_entry(root: Path) -> EntryFile | None:
    """The last entry; None where there is none.

    Raises:
        OSError: it cannot be read.
    """
    return next((found[-1] for day in reversed(_days(root)) if (found := _of_day(root, day))), None)


def next_path(root: Path, last: EntryFile | None, at_ms: int) -> Path:
    """Where the next entry goes.

    Args:
        root: the layout's root.
        last: the entry before it.
        at_ms: when it is begun, in epoch milliseconds.
    """
    day = f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y%m%d}"
    number = 1
    if last is not None:
        # A clock that was put back does not put the order back.
        day, number = max(day, last.path.parent.name), last.number + 1
    return root / LEDGER / day / f"{number:010}.json"


def fold_days(root: Path, files: Files, before: str) -> None:
    """Make one file of each earlier day that has several; what cannot be done now is done another day.

    Only whoever has the turn may, and when every entry of those days is completed.

    Args:
        root: the layout's root.
        files: the file system.
        before: days before this one.
    """
    for day in reversed([day for day in _days(root) if day < before]):
        folder = root / LEDGER / day
        singles = [name for name in names(folder) if _ONE.fullmatch(name)]
        if not singles:
            if any(_DAY.fullmatch(name) for name in names(folder)):
                return  # and so it is with the days before
            continue
        with contextlib.suppress(OSError):
            _fold(files, folder, singles)


def _fold(files: Files, folder: Path, singles: list[str]) -> None:
    if not any(_DAY.fullmatch(name) for name in names(folder)):
        contents = [(folder / name).read_bytes() for name in singles]
        if any(b"\n" in content for content in contents):
            return  # none of ours; `verify` tells of it
        sweep(files, folder)
        name = f"{singles[0][:-5]}-{singles[-1][:-5]}.jsonl"
        publish(files, folder / name, b"".join(content + b"\n" for content in contents))
    for name in singles:
        files.remove(folder / name)
    files.fsync_folder(folder)


def _of_day(root: Path, day: str) -> list[EntryFile]:
    folder = root / LEDGER / day
    while True:
        # What vanishes while it is read is in the day's file now, or changed nothing.
        with contextlib.suppress(FileNotFoundError):
            return _read_day(folder)


def _read_day(folder: Path) -> list[EntryFile]:
    found: list[EntryFile] = []
    listed = list(names(folder))
    folded = 0
    for name in listed:
        if match := _DAY.fullmatch(name):
            folded = max(folded, int(match[2]))
            lines = (folder / name).read_bytes().split(b"\n")[:-1]
            found += [EntryFile(folder / name, int(match[2]), line) for line in lines]
    for name in listed:
        if (match := _ONE.fullmatch(name)) and int(match[1]) > folded:
            found.append(EntryFile(folder / name, int(match[1]), (folder / name).read_bytes()))
    return found


def _days(root: Path) -> list[str]:
    return list(names(root / LEDGER))
