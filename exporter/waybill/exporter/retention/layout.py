"""The age-off: files go when their hour and their last change are long enough ago.

A record that comes late ages from its arrival: whatever joins a file makes all of it as young as itself. Late
files go when they are safe elsewhere, and no sooner.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from waybill.exporter.directory import FileStamp, files_of
from waybill.exporter.exporting import ExportState, destinations, is_exported
from waybill.exporter.names import COMPACTED, LATE, Hour, safe_name
from waybill.exporter.removal import remove
from waybill.transport.files import Files

_DAY_MS: Final = 86_400_000


class AgedOff(msgspec.Struct, frozen=True):
    """What an age-off came to; paths are relative to the root.

    Attributes:
        removed: files that went, or would go.
        size_bytes: how large they were.
        waiting: files that are old enough, but not exported to every destination as they are now.
    """

    removed: tuple[str, ...] = ()
    size_bytes: int = 0
    waiting: tuple[str, ...] = ()


def age_off(
    root: Path,
    *,
    days: float,
    days_by_system: Mapping[str, float] | None = None,
    only_exported: bool = False,
    dry_run: bool = False,
    now_ms: int | None = None,
    files: Files | None = None,
) -> AgedOff:
    """Remove what is older than the age-off.

    A compacted file goes when its hour ended, and it was last written, longer ago than that; a late file
    whenever it is exported. Raw files are not touched: a compaction takes them first.

    Args:
        root: the layout's root.
        days: how long records are kept.
        days_by_system: how long those of some systems are kept instead, by name.
        only_exported: let nothing go that is not exported, as it is now, to every destination so far; nothing
            at all where there was none.
        dry_run: only say what would go.
        now_ms: the present, in epoch milliseconds; the clock's when None.
        files: the file system.

    Raises:
        OSError: a file cannot be looked at or removed.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    by_name = {safe_name(name): value for name, value in (days_by_system or {}).items()}
    notes = list(destinations(root))
    removed: list[str] = []
    waiting: list[str] = []
    size_bytes = 0
    for kind in (COMPACTED, LATE):
        for (system, day), paths in sorted(files_of(root / kind).items()):
            until_ms = now_ms - int(by_name.get(system, days) * _DAY_MS)
            going: list[tuple[Path, FileStamp]] = []
            for path in paths:
                try:
                    mark = FileStamp.of(path.stat())
                    if kind == COMPACTED and not _is_old(path, day, mark, until_ms):
                        continue
                    if (only_exported or kind == LATE) and not _is_exported(notes, root, path, system, day):
                        waiting.append(path.relative_to(root).as_posix())
                        continue
                except FileNotFoundError:
                    continue
                going.append((path, mark))
            sizes = {path.relative_to(root).as_posix(): mark.size_bytes for path, mark in going}
            gone = tuple(sizes) if dry_run else remove(root, system, day, going, files or Files())
            removed += gone
            size_bytes += sum(sizes[path] for path in gone)
    return AgedOff(tuple(removed), size_bytes, tuple(waiting))


def _is_old(path: Path, day: str, mark: FileStamp, until_ms: int) -> bool:
    return Hour(day, path.stem).end_ms <= until_ms and mark.mtime_ns // 1_000_000 <= until_ms


def _is_exported(notes: list[ExportState], root: Path, path: Path, system: str, day: str) -> bool:
    return is_exported(notes, root, path, system, Hour(day, path.stem))
