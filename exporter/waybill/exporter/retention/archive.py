"""The age-off of the archive: its oldest files go, each journal's from the first one on.

What has gone cannot be rebuilt any more, so a file stays while anything else may depend on it: always while
damaged files are set aside, whose rows it may have to bring back, and if asked for until all that its entries
came to is exported.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter import parquet
from waybill.exporter.archive import archived_files
from waybill.exporter.directory import files_of, raw_files, raw_hours
from waybill.exporter.exporting import destinations, is_exported
from waybill.exporter.ledger import recorded, relative
from waybill.exporter.names import COMPACTED, LATE, Hour, RawName
from waybill.exporter.parquet import Covers
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.retention.layout import AgedOff
from waybill.exporter.root_lock import root_lock
from waybill.transport.files import Files

if TYPE_CHECKING:
    from waybill.exporter.exporting import ExportState

_DAY_MS: Final = 86_400_000

_Ranges = dict[str, list[tuple[int, int]]]


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
    """Remove archived entries that arrived longer ago than that.

    Args:
        root: the layout's root.
        days: how long entries are kept.
        only_exported: let only those files go of which everything is compacted, and every compacted and late
            file that has any of it is exported, as it is now, to every destination so far.
        filed: by journal, up to which sequence number its entries are in the layout; for those not named the
            files alone tell.
        dry_run: only say what would go.
        now_ms: the present, in epoch milliseconds; the clock's when None.
        files: the file system.

    Raises:
        OSError: a file cannot be looked at or removed.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    until_ms = now_ms - int(days * _DAY_MS)
    blocked = _Blocked(root, filed or {}) if only_exported else None
    waits = next(list_quarantined(root), None) is not None
    going: list[Path] = []
    waiting: list[str] = []
    for found in _by_node(root).values():
        old = list(itertools.takewhile(lambda one: _hour(one[1]).end_ms <= until_ms, found))
        # What follows a file that stays, stays: so the rest of a journal's chain has no gap.
        free = itertools.takewhile(lambda one: not (waits or (blocked and blocked.has(one[0]))), old)
        gone = [path for _, path in free]
        going += gone
        waiting += [relative(root, path) for _, path in old[len(gone) :]]
    sizes = {path: path.stat().st_size for path in going}
    if going and not dry_run:
        _remove(root, going, files or Files())
    return AgedOff(tuple(relative(root, path) for path in going), sum(sizes.values()), tuple(waiting))


class _Blocked:
    """The ranges of entries that are not everywhere yet."""

    def __init__(self, root: Path, filed: Mapping[str, int]) -> None:
        self._filed = filed
        self._ranges: _Ranges = defaultdict(list)
        notes = list(destinations(root))
        self._nowhere = not notes
        for hour in raw_hours(root):
            for raw in raw_files(root, hour):
                self._ranges[raw.node].append((raw.first, raw.last))
        for path in _unsent(root, notes):
            try:
                covers = Covers.read(parquet.open_file(path).metadata.metadata)
            except FileNotFoundError:
                continue
            for node, ranges in covers.ranges.items():
                self._ranges[node] += ranges

    def has(self, name: RawName) -> bool:
        """Whether an entry of this range is one."""
        if self._nowhere or name.last > self._filed.get(name.node, name.last):
            return True
        return any(first <= name.last and name.first <= last for first, last in self._ranges[name.node])


def _unsent(root: Path, notes: list[ExportState]) -> Iterator[Path]:
    for kind in (COMPACTED, LATE):
        for (system, day), paths in files_of(root / kind).items():
            for path in paths:
                try:
                    safe = is_exported(notes, root, path, system, Hour(day, path.stem))
                except FileNotFoundError:
                    continue
                if not safe:
                    yield path


def _by_node(root: Path) -> dict[str, list[tuple[RawName, Path]]]:
    found = defaultdict(list)
    for name, path in sorted(archived_files(root)):
        found[name.node].append((name, path))
    return found


def _hour(path: Path) -> Hour:
    return Hour(path.parent.parent.name, path.parent.name)


def _remove(root: Path, paths: Iterable[Path], files: Files) -> None:
    paths = list(paths)
    with root_lock(root, files), recorded(root, files, {_hour(path) for path in paths}) as changed:
        for path in paths:
            files.remove(path)
        for folder in sorted({path.parent for path in paths}):
            files.fsync_folder(folder)
            files.remove_folder(folder)
        for folder in sorted({path.parent.parent for path in paths}):
            files.remove_folder(folder)
        changed.update(dict.fromkeys(relative(root, path) for path in paths))
