"""The compaction of one hour: its raw files become one file per system, merged with what is already there.

The steps, any of which may be the last before a crash:

1. Every raw file is read. One that is damaged is set aside; one that cannot be read now is reported, left
   where it is, and tried again. Neither is covered by anything.
2. For each system the rows that its compacted file does not cover yet are merged with it and published. A
   compacted file that is damaged, or whose bytes are not those that were sealed, is set aside first.
3. When every system's file is durable, the raw files that were read go.

What comes for an hour whose compacted file was aged off goes into a late file instead, until an export merges
it into the file that left: a compacted file with a few late rows would replace the full one elsewhere.

Repeating them is harmless: what a compacted file covers is left out, and the merge itself knows no repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.aside import SetAside, set_aside
from waybill.exporter.covers import Covers
from waybill.exporter.gone import is_gone
from waybill.exporter.layout import Hour, RawName, compacted_path, late_path, raw_folder, safe_name
from waybill.exporter.listing import raw_files
from waybill.exporter.litter import sweep
from waybill.exporter.merge import merge, without
from waybill.exporter.seal import encode_sealed, is_intact, seal_in, seal_of
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    from waybill.exporter.retraction import Retraction

_Part = tuple[RawName, pa.Table]
_Known = tuple[pa.Table, Covers, str | None]
"""What a compacted file holds: its rows, what it covers, its seal."""
_NOTHING: Final[_Known] = (parquet.CODED_SCHEMA.empty_table(), Covers(), None)


class HourCompaction:
    """One hour's compaction, and what it came to so far.

    Args:
        root: the layout's root.
        hour: which.
        files: the file system.
        node: whose unpublished raw files may be removed, since nobody else writes them.

    Attributes:
        published: by path relative to the root, the seal of the file.
        removed: paths relative to the root of files that went, since no record was left.
        aside: the damaged files that were set aside.
        unreadable: a sentence for each file that cannot be read now.
    """

    def __init__(self, root: Path, hour: Hour, files: Files, node: str | None) -> None:
        self.published: dict[str, str] = {}
        self.removed: list[str] = []
        self.aside: list[SetAside] = []
        self._emptied: list[PurePosixPath] = []
        self.unreadable: list[str] = []
        self._root = root
        self._hour = hour
        self._files = files
        self._node = node
        self._folder = root / raw_folder(hour)
        self._tables: dict[RawName, pa.Table] = {}
        self._complete = True

    def run(self, retraction: Retraction | None) -> None:
        """Compact the hour.

        Raises:
            OSError: a step failed; doing it again takes up where it was.
        """
        if self._node is not None:
            sweep(self._files, self._folder, f"{self._node}-")
        paths = raw_files(self._root, self._hour)
        self._tables = {
            raw: table for raw, path in paths.items() if (table := self._read_raw(path)) is not None
        }
        parts = _by_system(self._tables)
        retracted = retraction.of(self._hour) if retraction else {}
        for system in sorted(parts.keys() | retracted.keys()):
            self._compact(system, parts.get(system, []), retraction if system in retracted else None)
        if self._complete:
            self._remove([paths[raw] for raw in self._tables])

    def _compact(self, system: str, parts: Sequence[_Part], retraction: Retraction | None) -> None:
        path = self._path_of(system)
        known = self._read_compacted(self._root / path)
        if known is None:
            self._complete = False
            return
        base, covers, seal = known
        tables = [base, *(table for raw, table in parts if not covers.has(raw))]
        # A range that is covered has had its retraction, so what it says itself must not be taken back.
        if retraction is not None and not covers.has(retraction.raw):
            keys = retraction.of(self._hour)[system]
            tables = [without(base, keys)]
            for raw, table in parts:
                if not covers.has(raw):
                    tables.append(without(table, keys) if retraction.takes_from(raw) else table)
        elif len(tables) == 1:
            return
        merged = merge(parquet.join(tables))
        if merged.num_rows:
            self._publish(path, merged, covers.adding(self._tables), seal)
        else:
            self._emptied.append(path)

    def _path_of(self, system: str) -> PurePosixPath:
        path = compacted_path(system, self._hour)
        if not (self._root / path).exists() and is_gone(self._root, safe_name(system), self._hour):
            return late_path(system, self._hour)
        return path

    def _publish(self, path: PurePosixPath, table: pa.Table, covers: Covers, before: str | None) -> None:
        target = self._root / path
        self._files.make_folder(target.parent)
        sweep(self._files, target.parent, f"{target.name}.")
        data, seal = encode_sealed(table, covers.metadata(), before)
        publish(self._files, target, data)
        self.published[str(path)] = seal

    def _remove(self, raws: Sequence[Path]) -> None:
        for path in raws:
            self._files.remove(path)
        if self._emptied:
            # The file that goes here was all that said that these raw files are done with: they must not come
            # back.
            if self._folder.is_dir():
                self._files.fsync_folder(self._folder)
            for emptied in self._emptied:
                self._files.remove(self._root / emptied)
                self.removed.append(str(emptied))
        if raws:
            self._files.remove_folder(self._folder)

    def _read_raw(self, path: Path) -> pa.Table | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.unreadable.append(parquet.unreachable(path, error))
            return None
        try:
            return parquet.read(parquet.open_bytes(data))
        except parquet.DAMAGED as error:
            self._judge(path, data, error)
            return None

    def _read_compacted(self, path: Path) -> _Known | None:
        """What a compacted file holds, nothing where there is none; None if that cannot be told now."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return _NOTHING
        except OSError as error:
            self.unreadable.append(parquet.unreachable(path, error))
            return None
        try:
            file = parquet.open_bytes(data)
            metadata = file.metadata.metadata
            seal = seal_in(metadata)
            if seal is not None and not is_intact(data, seal):
                raise pa.ArrowInvalid("its bytes are not those that were sealed")
            return parquet.read(file), Covers.read(metadata), seal
        except parquet.DAMAGED as error:
            return _NOTHING if self._judge(path, data, error) else None

    def _judge(self, path: Path, data: bytes, error: Exception) -> bool:
        """Set a file aside whose bytes are to blame that it cannot be read; whether they are."""
        seal = seal_of(data)
        if isinstance(error, MemoryError) or (seal is not None and is_intact(data, seal)):
            # There was no room for it, or another version of Waybill wrote it.
            self.unreadable.append(parquet.unreadable(path, error))
            return False
        relative = PurePosixPath(path.relative_to(self._root))
        self.aside.append(
            set_aside(self._root, relative, self._hour, data, reason=str(error), files=self._files)
        )
        return True


def _by_system(tables: Mapping[RawName, pa.Table]) -> dict[str, list[_Part]]:
    """Cut raw tables by system; the rows of one are together in a file that `RawWriter` wrote."""
    parts: dict[str, list[_Part]] = defaultdict(list)
    for raw, table in tables.items():
        names = table["system_name"].combine_chunks()
        runs = pc.run_end_encode(names.indices)
        start = 0
        for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            parts[names.dictionary[code].as_py()].append((raw, table.slice(start, end - start)))
            start = end
    return parts
