"""Removing compacted and late files, so that nobody takes an hour that left for one that never was."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.exporter import parquet
from waybill.exporter.directory import FileStamp
from waybill.exporter.ledger import recorded, relative
from waybill.exporter.names import COMPACTED, Hour
from waybill.exporter.root_lock import root_lock
from waybill.exporter.tombstones import Tombstone, write_tombstones

if TYPE_CHECKING:
    from waybill.transport.files import Files


def remove(
    root: Path, system: str, day: str, marked: Iterable[tuple[Path, FileStamp]], files: Files
) -> tuple[str, ...]:
    """Remove the files of a system (by safe name) and day that are still those marked.

    That a compacted file goes is noted before it does: see `waybill.exporter.tombstones`.

    Returns:
        The paths of the files removed, relative to the root.

    Raises:
        OSError: a note could not be written, or a file not removed.
    """
    marked = list(marked)
    if not marked:
        return ()
    hours = {Hour(day, path.stem) for path, _ in marked}
    with root_lock(root, files), recorded(root, files, hours) as changed:
        current = [path for path, mark in marked if _mark(path) == mark]
        compacted = [path for path in current if path.is_relative_to(root / COMPACTED)]
        if compacted:
            write_tombstones(files, root, system, day, {path.stem: _gone(path) for path in compacted})
        for path in current:
            files.remove(path)
        for folder in sorted({path.parent for path in current}):
            files.fsync_folder(folder)
            files.remove_folder(folder)
        changed.update(dict.fromkeys(relative(root, path) for path in current))
    return tuple(relative(root, path) for path in current)


def _mark(path: Path) -> FileStamp | None:
    try:
        return FileStamp.of(path.stat())
    except FileNotFoundError:
        return None


def _gone(path: Path) -> Tombstone:
    data = path.read_bytes()
    try:
        rows = parquet.open_bytes(data).metadata.num_rows
    except parquet.DAMAGED:
        rows = 0
    return Tombstone(hashlib.sha256(data).hexdigest(), rows, time.time_ns() // 1_000_000)
