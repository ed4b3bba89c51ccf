"""The age-off: files that are old enough are removed, from the layout and from the archive."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import parquet
from waybill.exporter.archive import archived_files, folder_hour
from waybill.exporter.directory import FileStamp, files_of, raw_files, raw_hours
from waybill.exporter.exporting import destinations, is_exported
from waybill.exporter.names import COMPACTED, LATE, Hour, RawName, relative, safe_name
from waybill.exporter.parquet import Covers
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.removal import remove
from waybill.transport.files import Files

if TYPE_CHECKING:
    from waybill.exporter.exporting import ExportState

_DAY_MS: Final = 86_400_000


class AgedOff(msgspec.Struct, frozen=True):
    """What an age-off did; paths are relative to the root.

    Attributes:
        removed: the files that were removed, or would be.
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
    """Remove old compacted files, and late files that are exported.

    A compacted file is old when both the end of its hour and its last change are. So a record that comes late
    ages from its arrival: whatever joins a file makes all of it as young as itself. A late file is removed
    once it is exported, and never before. Raw files are left alone: a compaction takes them first.

    Records are kept for `days`, and those of some systems for `days_by_system`, by name. With
    `only_exported`, only what is exported, as it is now, to every destination so far is removed; nothing at
    all where there was none. With `dry_run`, the report says what would be removed. `now_ms` is the present,
    in epoch milliseconds; None: the clock's. Raises `OSError` if a file cannot be looked at or removed.
    """
    now_ms = _now_ms() if now_ms is None else now_ms
    by_name = {safe_name(name): value for name, value in (days_by_system or {}).items()}
    states = list(destinations(root))
    removed: list[str] = []
    waiting: list[str] = []
    size_bytes = 0
    for kind in (COMPACTED, LATE):
        for (system, day), paths in sorted(files_of(root / kind).items()):
            until_ms = now_ms - int(by_name.get(system, days) * _DAY_MS)
            due: dict[Path, FileStamp] = {}
            for path in paths:
                hour = Hour(day, path.stem)
                try:
                    stamp = FileStamp.of(path.stat())
                    if kind == COMPACTED and max(hour.end_ms, stamp.mtime_ns // 1_000_000) > until_ms:
                        continue
                    if (only_exported or kind == LATE) and not is_exported(states, root, path, system, hour):
                        waiting.append(relative(root, path))
                        continue
                except FileNotFoundError:
                    continue
                due[path] = stamp
            done, done_bytes = _remove(root, due, files, dry_run=dry_run)
            removed += done
            size_bytes += done_bytes
    return AgedOff(tuple(removed), size_bytes, tuple(waiting))


def age_off_archive(
    root: Path,
    *,
    days: float,
    only_exported: bool = False,
    filed: Mapping[str, int] | None = None,
    dry_run: bool = False,
    now_ms: int | None = None,
    files: Files | None = None,
) -> AgedOff:
    """Remove old files of the archive, those of each journal from the first one on.

    What was removed cannot be rebuilt any more. So nothing is removed while there are quarantined files,
    whose rows the archive may have to bring back.

    Entries are kept for `days` after their arrival. With `only_exported`, only those files are removed of
    which everything is compacted, and every compacted and late file that has any of it is exported, as it is
    now, to every destination so far. `filed` says, by journal, up to which sequence number its entries are in
    the layout; for those not named the files alone tell. `dry_run`, `now_ms` and errors are as for
    `age_off`.
    """
    until_ms = (_now_ms() if now_ms is None else now_ms) - int(days * _DAY_MS)
    unsafe = _UnsafeRanges(root, filed or {}) if only_exported else None
    all_wait = next(list_quarantined(root), None) is not None
    due: dict[Path, FileStamp] = {}
    waiting: list[str] = []
    by_node: dict[str, list[tuple[RawName, Path]]] = defaultdict(list)
    for name, path in sorted(archived_files(root)):
        by_node[name.node].append((name, path))
    for found in by_node.values():
        old = list(itertools.takewhile(lambda one: folder_hour(one[1]).end_ms <= until_ms, found))
        # What follows a file that stays, stays: so the rest of a journal's chain has no gap.
        free = itertools.takewhile(lambda one: not (all_wait or (unsafe and unsafe.has(one[0]))), old)
        removable = [path for _, path in free]
        due |= {path: FileStamp.of(path.stat()) for path in removable}
        waiting += [relative(root, path) for _, path in old[len(removable) :]]
    return AgedOff(*_remove(root, due, files, dry_run=dry_run), tuple(waiting))


def _remove(
    root: Path, due: Mapping[Path, FileStamp], files: Files | None, *, dry_run: bool
) -> tuple[tuple[str, ...], int]:
    """Remove files, or only say so; return the paths of those that went, and their size in bytes."""
    sizes = {relative(root, path): stamp.size_bytes for path, stamp in due.items()}
    removed = tuple(sizes) if dry_run else remove(root, due, files or Files())
    return removed, sum(sizes[path] for path in removed)


class _UnsafeRanges:
    """The ranges of entries whose records are not compacted and exported to every destination."""

    def __init__(self, root: Path, filed: Mapping[str, int]) -> None:
        self._filed = filed
        self._ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        states = list(destinations(root))
        self._is_nothing_exported = not states
        for hour in raw_hours(root):
            for raw in raw_files(root, hour):
                self._ranges[raw.node].append((raw.first, raw.last))
        for covers in _covers_not_exported(root, states):
            for node, ranges in covers.ranges.items():
                self._ranges[node] += ranges

    def has(self, name: RawName) -> bool:
        """Whether any entry of an archived file is in one of them."""
        if self._is_nothing_exported or name.last > self._filed.get(name.node, name.last):
            return True
        return any(first <= name.last and name.first <= last for first, last in self._ranges[name.node])


def _covers_not_exported(root: Path, states: list[ExportState]) -> Iterator[Covers]:
    for kind in (COMPACTED, LATE):
        for (system, day), paths in files_of(root / kind).items():
            for path in paths:
                try:
                    if not is_exported(states, root, path, system, Hour(day, path.stem)):
                        yield Covers.read(parquet.open_file(path).metadata.metadata)
                except FileNotFoundError:
                    continue
                except parquet.DAMAGED as error:
                    raise OSError(parquet.unreadable(path, error)) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
