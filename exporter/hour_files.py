"""The files of a root by hour, for reading while compactions are running.

Folders are by system first, so looking up each hour's files in all systems would take systems times hours.
Here the folders are listed once. A later compaction moves rows only out of raw files that were listed before.
So an hour's list is outdated only if one of these files is gone, or if the hour has a file in quarantine
whose rows may come back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from . import parquet
from .directory import compacted_file, compacted_files, compacted_folders, raw_files, raw_hours
from .parquet import Rules
from .quarantine import list_quarantined

if TYPE_CHECKING:
    from .names import Hour, RawName


class HourFiles:
    """The files of a root's hours, of one system or of all, as its folders have them.

    It is a `waybill.exporter.query.Listing`. Raises `OSError` if a folder cannot be read.
    """

    def __init__(self, root: Path, system_name: str | None = None) -> None:
        self._root = root
        self._system_name = system_name
        self._outdated: set[Hour] = set()
        # `Unread.add_known` reports an unreadable report.
        with contextlib.suppress(OSError):
            self._outdated.update(one.hour for one in list_quarantined(root) if one.restored_ms is None)
        # Raw files are listed first: rows compacted between the two listings are in the second.
        self._raws = {hour: set(raw_files(root, hour)) for hour in raw_hours(root)}
        self._folders = compacted_folders(root, system_name)

    @property
    def hours(self) -> list[Hour]:
        """See `Listing`."""
        return sorted(self._raws.keys() | self._folders.keys() | self._outdated)

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        """See `Listing`."""
        return raw_files(self._root, hour)

    def counted(self, query: object, by: object) -> tuple[None, HourFiles]:  # noqa: ARG002 - see `Listing`
        """See `Listing`."""
        return None, self

    def differing(self) -> tuple[()]:
        """See `Listing`: the folders alone do not tell."""
        return ()

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:
        """See `Listing`."""
        if hour in self._outdated or not self._raws.get(hour, frozenset()).issubset(raws):
            return compacted_files(self._root, [hour], self._system_name)[hour]
        return [compacted_file(folder, hour) for folder in self._folders.get(hour, ())]

    def rules(self, hour: Hour) -> Rules:
        """The rules that the files of an hour were written by, as far as they can be read."""
        raws, found = self.raw(hour), Rules()
        for path in (*raws.values(), *self.compacted(hour, raws)):
            with contextlib.suppress(*parquet.DAMAGED):
                found = found.uniting([Rules.read(parquet.open_file(path).metadata.metadata)])
        return found
