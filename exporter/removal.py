"""Removing published files: each removal is in the ledger, and each compacted file gets a tombstone.

Without the tombstone, an hour whose file was removed would look like an hour that never had one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport.clock import SYSTEM_CLOCK

from . import parquet
from .directory import FileStamp
from .ledger import hold_against_ledger, recorded
from .names import COMPACTED, EVENTS, hour_in, relative
from .tombstones import Tombstone, write_tombstones

if TYPE_CHECKING:
    from waybill.transport.files import Files


def remove(root: Path, stamps: Mapping[Path, FileStamp], files: Files) -> tuple[str, ...]:
    """Remove compacted, late or archived files; return the paths of the removed ones, relative to the root.

    A file that no longer matches its stamp stays, and a file that differs from the ledger is quarantined.
    Raises `OSError` if a tombstone could not be written or a file could not be removed.
    """
    if not stamps:
        return ()
    hours = {hour for path in stamps if (hour := hour_in(relative(root, path)))}
    with recorded(root, files, hours) as changed:
        hold_against_ledger(root, files, hours, changed, only=stamps.keys())
        current = [path for path, stamp in stamps.items() if _is_same(path, stamp)]
        _write_tombstones(root, current, files)
        for path in current:
            files.remove(path)
        _remove_emptied(root, current, files)
        changed.update(dict.fromkeys(relative(root, path) for path in current))
    return tuple(relative(root, path) for path in current)


def _is_same(path: Path, stamp: FileStamp) -> bool:
    try:
        return FileStamp.of(path.stat()) == stamp
    except FileNotFoundError:
        return False


def _write_tombstones(root: Path, paths: Iterable[Path], files: Files) -> None:
    left: defaultdict[tuple[str, str], dict[str, Tombstone]] = defaultdict(dict)
    for path in paths:
        if path.is_relative_to(root / COMPACTED):
            left[path.parent.parent.name, path.parent.name][path.stem] = _tombstone_of(path)
    for (system, day), by_hour in left.items():
        write_tombstones(files, root, system, day, by_hour)


def _tombstone_of(path: Path) -> Tombstone:
    data = path.read_bytes()
    try:
        rows = parquet.open_bytes(data).metadata.num_rows
    except parquet.DAMAGED:
        rows = 0
    return Tombstone(hashlib.sha256(data).hexdigest(), rows, SYSTEM_CLOCK.now_ms())


def _remove_emptied(root: Path, paths: Iterable[Path], files: Files) -> None:
    folders = sorted({path.parent for path in paths})
    for folder in folders:
        files.fsync_folder(folder)
        files.remove_folder(folder)
    for day in sorted({folder.parent for folder in folders if folder.is_relative_to(root / EVENTS)}):
        files.remove_folder(day)
