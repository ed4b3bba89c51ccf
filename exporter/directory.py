"""The layout's files, listed from the folders; a folder that vanishes meanwhile counts as empty."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport.files import is_temporary
from waybill.transport.root import MARKER

from .names import COMPACTED, EVENTS, LATE, PARTS, RAW, Hour, RawName, parse_hour, raw_folder, safe_name

_SUFFIX: Final = ".parquet"


class FileStamp(msgspec.Struct, frozen=True):
    """Identifies one version of a file: publishing another at its path changes at least one field."""

    inode: int
    mtime_ns: int
    size_bytes: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """Make it from the result of `os.stat`."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)


def is_root(folder: Path) -> bool:
    """Whether a folder is a root: it has the marker or, as a copy may, something of the layout or archive."""
    if (folder / MARKER).is_file() or any((folder / part).is_dir() for part in PARTS):
        return True
    return any(parse_hour(day, "00") for day in names(folder / EVENTS))


def raw_hours(root: Path) -> set[Hour]:
    """The hours that have a folder of raw files, even if it is empty."""
    return {
        hour
        for day in names(root / RAW)
        for name in names(root / RAW / day)
        if (hour := parse_hour(day, name))
    }


def raw_files(root: Path, hour: Hour) -> dict[RawName, Path]:
    """An hour's raw files, in order of node and range."""
    folder = root / raw_folder(hour)
    return {raw: folder / str(raw) for raw in sorted(filter(None, map(RawName.parse, names(folder))))}


def compacted_folders(root: Path, system_name: str | None = None) -> dict[Hour, list[Path]]:
    """By hour, the folders that contain a compacted or late file of it, of one system or of all.

    `compacted_file` names the file; the folder's name is the safe name of its system.
    """
    found: defaultdict[Hour, list[Path]] = defaultdict(list)
    for folder in _folders(root, system_name):
        for day in names(folder):
            for name in names(folder / day):
                if name.endswith(_SUFFIX) and (hour := parse_hour(day, name.removesuffix(_SUFFIX))):
                    found[hour].append(folder)
    return dict(found)


def compacted_file(folder: Path, hour: Hour) -> Path:
    """The path of an hour's file in one of `compacted_folders`."""
    return folder / hour.day / f"{hour.hour}{_SUFFIX}"


def compacted_files(
    root: Path, hours: Collection[Hour], system_name: str | None = None
) -> dict[Hour, list[Path]]:
    """By hour, the existing compacted and late files, of one system or of all.

    Each day's folders are listed once.
    """
    found: dict[Hour, list[Path]] = {hour: [] for hour in hours}
    days = sorted({hour.day for hour in hours})
    for folder in _folders(root, system_name):
        for day in days:
            for name in names(folder / day):
                hour = parse_hour(day, name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
                if hour in found:
                    found[hour].append(folder / day / name)
    return found


def files_of(folder: Path) -> dict[tuple[str, str], list[Path]]:
    """The files in the folder of compacted or of late files, in order, by safe name and day."""
    return {
        (system, day): [
            folder / system / day / name
            for name in names(folder / system / day)
            if name.endswith(_SUFFIX) and parse_hour(day, name.removesuffix(_SUFFIX))
        ]
        for system in names(folder)
        for day in names(folder / system)
    }


def files_below(folder: Path) -> Iterator[Path]:
    """All published files below a folder, in order; raises `OSError` if a folder cannot be read."""
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        path = folder / entry.name
        # Listing told what it is: a folder that has gone since must not pass for a file.
        if entry.is_dir():
            yield from files_below(path)
        elif not is_temporary(path):
            yield path


def _folders(root: Path, system_name: str | None) -> Iterator[Path]:
    for kind in (LATE, COMPACTED):
        for system in names(root / kind) if system_name is None else [safe_name(system_name)]:
            yield root / kind / system


def names(folder: Path) -> Iterator[str]:
    """The names in a folder, in order."""
    try:
        return iter(sorted(os.listdir(folder)))  # noqa: PTH208 - a folder may have thousands of names
    except (FileNotFoundError, NotADirectoryError):
        return iter(())
