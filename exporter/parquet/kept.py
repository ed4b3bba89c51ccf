"""The rows of files, decoded and kept in memory between questions.

A file of the layout is replaced and never changed. So what was read from it holds for as long as the file at
its path is the same. No file stays open: one that is deleted gives back its space.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from waybill.facets.arrow import SCHEMA

from ..directory import FileStamp
from .decoded import row_bytes
from .picking import Group, can_have, decode
from .selection import open_selectable

if TYPE_CHECKING:
    from pathlib import Path

    from .picking import Key

_FILE_SHARE: Final = 4
"""A file that takes more than this part of the memory is not kept."""


class _Kept(NamedTuple):
    stamp: FileStamp
    groups: tuple[Group, ...]
    size_bytes: int


class KeptFiles:
    """Decodes files for questions from any thread, and keeps those that were asked for last.

    Args:
        max_bytes: how much memory their rows may take; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._files: OrderedDict[Path, _Kept] = OrderedDict()
        self._size_bytes = 0

    def decoded(self, path: Path, key: Key | None = None) -> tuple[Group, ...] | None:
        """The row groups of a file; none if no row of the file can have the key.

        Returns:
            None if they are not to be kept.

        Raises:
            DAMAGED: the file is not there, or cannot be read.
        """
        if not self._max_bytes:
            return None
        # If the file is replaced after this, the next question reads the new one.
        stamp = FileStamp.of(path.stat())
        with self._lock:
            kept = self._files.get(path)
            if kept is not None and kept.stamp == stamp:
                self._files.move_to_end(path)
                return kept.groups
        file = open_selectable(path)
        places = range(file.metadata.num_row_groups)
        if key is not None and not any(can_have(file, at, key) for at in places):
            return ()
        groups, left_bytes = [], self._max_bytes // _FILE_SHARE
        for at in places:
            coded = file.group(at, SCHEMA.names)
            sizes = row_bytes(coded)
            left_bytes -= pc.sum(sizes).as_py() or 0
            if left_bytes < 0:
                return None
            groups.append(decode(coded, sizes))
        self._keep(path, _Kept(stamp, tuple(groups), sum(group.rows.nbytes for group in groups)))
        return tuple(groups)

    def _keep(self, path: Path, kept: _Kept) -> None:
        with self._lock:
            self._drop(path)
            self._files[path] = kept
            self._size_bytes += kept.size_bytes
            while self._size_bytes > self._max_bytes:
                self._drop(next(iter(self._files)))

    def _drop(self, path: Path) -> None:
        kept = self._files.pop(path, None)
        if kept is not None:
            self._size_bytes -= kept.size_bytes
