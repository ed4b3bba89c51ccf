"""The age-off: removes files that are old enough, from the layout and from the archive."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files

from . import parquet
from .archive import archived_files, folder_hour
from .directory import FileStamp, files_of, raw_files, raw_hours
from .exporting import destinations, is_exported
from .names import COMPACTED, LATE, Hour, RawName, relative, safe_name
from .parquet import Covers
from .quarantine import list_quarantined
from .relations import relation_files, tells_of_open_file
from .removal import remove

if TYPE_CHECKING:
    from .exporting import ExportState

_DAY_MS: Final = 86_400_000


class AgedOff(msgspec.Struct, frozen=True):
    """The result of an age-off; paths are relative to the root.

    Attributes:
        removed: the files that were removed, or would be in a dry run.
        size_bytes: the total size of these files.
        waiting: files that are old enough, but whose current form is not exported to every destination.
    """

    removed: tuple[str, ...] = ()
    size_bytes: int = 0
    waiting: tuple[str, ...] = ()


def age_off(
    root: Path | str,
    *,
    days: float,
    days_by_system: Mapping[str, float] | None = None,
    only_exported: bool = False,
    dry_run: bool = False,
    now_ms: int | None = None,
    files: Files | None = None,
) -> AgedOff:
    """Remove old compacted files, and exported late files.

    A compacted file is old when both the end of its hour and its last change are old. So a late record ages
    from its arrival: a row that joins a file makes the whole file as young as itself. A late file is removed
    only after it is exported. Raw files are left alone: they are compacted first. A file with relations goes
    a day after a compacted file of its day would, since what is told of a file is told before it ends, and
    stays as long as it names a file that has not ended.

    Records are kept for `days`, or for `days_by_system` for some systems, by name. With `only_exported`, only
    files whose current form is exported to every destination so far are removed; if there is no destination,
    none are. With `dry_run`, the report says what would be removed. `now_ms` is the current time, in epoch
    milliseconds; None: read the clock. Raises `OSError` if a file cannot be checked or removed.
    """
    root = Path(root)
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
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
    for (system, day), path in relation_files(root):
        stamp, last = FileStamp.of(path.stat()), Hour(day, "23")
        old_ms = max(last.end_ms + _DAY_MS, stamp.mtime_ns // 1_000_000)
        if old_ms > now_ms - int(by_name.get(system, days) * _DAY_MS) or tells_of_open_file(path):
            continue
        if only_exported and not is_exported(states, root, path, system, last):
            waiting.append(relative(root, path))
            continue
        removed.append(_remove_relations(root, path, files, dry_run=dry_run))
        size_bytes += stamp.size_bytes
    return AgedOff(tuple(removed), size_bytes, tuple(waiting))


def age_off_archive(
    root: Path | str,
    *,
    days: float,
    only_exported: bool = False,
    filed: Mapping[str, int] | None = None,
    dry_run: bool = False,
    now_ms: int | None = None,
    files: Files | None = None,
) -> AgedOff:
    """Remove old files of the archive, for each journal from its first file on.

    Removed entries can no longer be rebuilt. So nothing is removed while there are quarantined files, because
    the archive may be needed to restore their rows.

    Entries are kept for `days` after their arrival. With `only_exported`, a file is removed only if all its
    records are compacted, and the current form of every compacted and late file with any of them is exported
    to every destination so far. `filed` gives, by journal, the sequence number up to which its entries are in
    the layout; for other journals only the files are checked. `dry_run`, `now_ms` and errors are as for
    `age_off`.
    """
    root = Path(root)
    until_ms = (SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms) - int(days * _DAY_MS)
    unsafe = _UnsafeRanges(root, filed or {}) if only_exported else None
    all_wait = next(list_quarantined(root), None) is not None
    due: dict[Path, FileStamp] = {}
    waiting: list[str] = []
    by_node: dict[str, list[tuple[RawName, Path]]] = defaultdict(list)
    for name, path in sorted(archived_files(root)):
        by_node[name.node].append((name, path))
    for found in by_node.values():
        old = list(itertools.takewhile(lambda one: folder_hour(one[1]).end_ms <= until_ms, found))
        # Files after one that stays also stay, so the rest of a journal's chain has no gap.
        free = itertools.takewhile(lambda one: not (all_wait or (unsafe and unsafe.has(one[0]))), old)
        removable = [path for _, path in free]
        due |= {path: FileStamp.of(path.stat()) for path in removable}
        waiting += [relative(root, path) for _, path in old[len(removable) :]]
    return AgedOff(*_remove(root, due, files, dry_run=dry_run), tuple(waiting))


def _remove_relations(root: Path, path: Path, files: Files | None, *, dry_run: bool) -> str:
    if not dry_run:
        (files or Files()).remove(path)
    return relative(root, path)


def _remove(
    root: Path, due: Mapping[Path, FileStamp], files: Files | None, *, dry_run: bool
) -> tuple[tuple[str, ...], int]:
    """Remove files, or only list them; return the paths of the removed ones, and their size in bytes."""
    sizes = {relative(root, path): stamp.size_bytes for path, stamp in due.items()}
    removed = tuple(sizes) if dry_run else remove(root, due, files or Files())
    return removed, sum(sizes[path] for path in removed)


class _UnsafeRanges:
    """The ranges of entries whose records are not yet compacted and exported to every destination."""

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
        """Whether any entry of an archived file is in one of these ranges."""
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
                    raise OSError(parquet.unreadable(path, error, root=root)) from None
