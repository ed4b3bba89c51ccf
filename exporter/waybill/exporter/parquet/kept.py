"""Files that stay open between questions, with the rows of their row groups decoded.

A file of the layout is replaced and never changed. So what was read from it holds for as long as the file at
its path is the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from waybill.exporter.parquet.decoded import row_bytes
from waybill.exporter.parquet.selection import Selectable, open_selectable
from waybill.facets.arrow import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

_FILES_MAX: Final = 256
"""So many files are open at most."""

_GROUP_SHARE: Final = 4
"""A row group that takes more than this part of the memory is not kept."""


class KeptFiles:
    """Opens files for questions, from any thread, and keeps those that were asked for last.

    Args:
        max_bytes: how much memory their decoded rows may take; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._files: OrderedDict[Path, _KeptFile] = OrderedDict()
        self._size_bytes = 0

    def open(self, path: Path) -> Selectable:
        """Open a file, unless the same one is open already; raises what `open_selectable` does."""
        if not self.max_bytes:
            return open_selectable(path)
        # If the file is replaced after this, the next question opens the new one.
        status = path.stat()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self._lock:
            kept = self._files.get(path)
            if kept is not None and kept.stamp == stamp:
                self._files.move_to_end(path)
                return kept
        opened = _KeptFile(path, stamp, self)
        with self._lock:
            self._drop(path)
            self._files[path] = opened
            self._make_room()
        return opened

    def note(self, path: Path, file: Selectable, size_bytes: int) -> None:
        """Count what a file has come to take in memory."""
        with self._lock:
            if self._files.get(path) is file:
                self._size_bytes += size_bytes
                self._make_room()

    def _make_room(self) -> None:
        while self._size_bytes > self.max_bytes or len(self._files) > _FILES_MAX:
            self._drop(next(iter(self._files)))

    def _drop(self, path: Path) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self._size_bytes -= file.size_bytes


class _KeptFile(Selectable):
    """An open file that keeps its row groups."""

    def __init__(self, path: Path, stamp: tuple[int, int, int], files: KeptFiles) -> None:
        super().__init__(pa.OSFile(str(path)))
        self.stamp = stamp
        self.size_bytes = 0
        self._path = path
        self._files = files
        self._lock = threading.Lock()
        self._groups: dict[int, pa.Table | None] = {}

    def is_decoded(self, at: int) -> bool:
        return self._groups.get(at) is not None

    def decoded(self, at: int) -> pa.Table | None:
        with self._lock:
            if at not in self._groups:
                self._groups[at] = self._decode(at)
            return self._groups[at]

    def _decode(self, at: int) -> pa.Table | None:
        coded = self.group(at, SCHEMA.names)
        if sum(row_bytes(coded).to_pylist()) * _GROUP_SHARE > self._files.max_bytes:
            return None
        table = coded.cast(SCHEMA).combine_chunks()
        self.size_bytes += table.nbytes
        self._files.note(self._path, self, table.nbytes)
        return table
