"""Notes of a journal's raw files, so that a file that vanishes before it is compacted is noticed.

    provenance/filed/YYYYMMDD/HH/<node>.json    the ranges that have rows in the hour and are not compacted

Only a node's own layout writes its notes, each after the raw file and before the cursor moves. A note may be
lost but is never wrong: a note torn by a power cut is ignored, so notes need no fsync. Files about to be
compacted are taken out. Another program that compacts leaves the note alone, which causes no finding, because
compacted files say what they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from . import parquet
from .directory import compacted_files, names, raw_files
from .names import FILED, Hour, RawName, parse_hour
from .parquet import Covers

if TYPE_CHECKING:
    from waybill.transport.files import Files

_SUFFIX: Final = ".json"


def note_raws(root: Path, files: Files, hour: Hour, raws: Iterable[RawName]) -> None:
    """Note that an hour has these raw files; raises `OSError` if the note cannot be written."""
    _change(root, files, hour, raws, Covers.uniting)


def forget_raws(root: Path, files: Files, hour: Hour, raws: Iterable[RawName]) -> None:
    """Take out raw files about to be compacted; raises `OSError` if the note cannot be written."""
    _change(root, files, hour, raws, Covers.minus)


def _change(
    root: Path,
    files: Files,
    hour: Hour,
    raws: Iterable[RawName],
    how: Callable[[Covers, Covers], Covers],
) -> None:
    for node, spans in Covers().adding(raws).ranges.items():
        before = read_raw_note(root, hour, node)
        after = how(before, Covers({node: spans}))
        if after != before:
            _write(root / _note_path(hour, node), files, after)


def read_raw_note(root: Path, hour: Hour, node: str) -> Covers:
    """The ranges of a node that are noted for an hour; none if the note cannot be read."""
    try:
        return Covers.decode((root / _note_path(hour, node)).read_bytes())
    except (OSError, ValueError):
        return Covers()


def read_raw_notes(root: Path) -> dict[Hour, Covers]:
    """The noted ranges of all nodes, by hour."""
    found: dict[Hour, Covers] = {}
    for day in names(root / FILED):
        for name in names(root / FILED / day):
            if (hour := parse_hour(day, name)) is None:
                continue
            found[hour] = Covers()
            for note in names(root / FILED / day / name):
                found[hour] = found[hour].uniting(read_raw_note(root, hour, note.removesuffix(_SUFFIX)))
    return found


def not_there(root: Path, noted: Covers, hour: Hour) -> Covers:
    """The noted ranges that are in neither a raw file nor a compacted file of the hour.

    Raises `DAMAGED` if a compacted file cannot be read.
    """
    # Raw files are read first: one that is compacted meanwhile is then in the compacted file.
    left = noted.minus(Covers().adding(raw_files(root, hour)))
    for path in compacted_files(root, [hour])[hour] if left.ranges else ():
        left = left.minus(Covers.read(parquet.open_file(path).metadata.metadata))
    return left


def _write(path: Path, files: Files, noted: Covers) -> None:
    if noted.ranges:
        files.make_folder(path.parent)
        files.write(path, noted.encode())
    else:
        files.remove(path)
        files.remove_folder(path.parent)
        files.remove_folder(path.parent.parent)


def _note_path(hour: Hour, node: str) -> PurePosixPath:
    return FILED / hour.day / hour.hour / f"{node}{_SUFFIX}"
