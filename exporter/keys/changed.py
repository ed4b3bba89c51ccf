"""Comparing the folders of a root with the files that the keys know.

Whoever keeps the keys does that every few minutes, and the time of their lock says when. Where nobody keeps
them, those who ask do it, so that a file which somebody removed or replaced is found before it is counted.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.transport.clock import SYSTEM_CLOCK

from ..differing import LOCK
from ..directory import names
from ..ledger import compare_files
from ..names import COMPACTED, KEYS, LATE, Hour, hour_in
from .spans import stamp_of, version_of

if TYPE_CHECKING:
    from .opened import OpenKeys

_HOLDS_S: Final = 0.01
"""How long a comparison holds for each file that was looked at, which takes some microseconds."""


class Comparison:
    """Compares the folders of one root for those who ask, unless that was done lately here or by a keeper."""

    def __init__(self) -> None:
        self._done_s = float("-inf")

    def run(self, opened: OpenKeys) -> None:
        """Note which files are not the ledger's, and change nothing otherwise.

        Raises:
            OSError: a folder or the ledger cannot be read, or the keys have been replaced in this moment.
        """
        root, contents, now_s = opened.root, opened.contents, SYSTEM_CLOCK.monotonic_s()
        holds_s = _HOLDS_S * sum(span.live for span in contents.spans)
        if now_s - self._done_s < holds_s or _age_s(root) < holds_s:
            return
        self._done_s = now_s  # first, so that other threads do not do the same
        if changed := list_changed(opened):
            compare_files(root, changed.difference(contents.waiting))


def note_compared(root: Path) -> None:
    """Note that a keeper has compared the folders now."""
    os.utime(root / KEYS / LOCK)


def list_changed(opened: OpenKeys) -> set[Hour]:
    """The hours whose folders do not have the files that the keys have; raises `OSError`."""
    left = opened.versions()
    changed = []
    for kind in (COMPACTED, LATE):
        for system in names(opened.root / kind):
            for day in names(opened.root / kind / system):
                folder = f"{kind}/{system}/{day}"
                with (
                    contextlib.suppress(FileNotFoundError, NotADirectoryError),
                    os.scandir(opened.root / folder) as scanned,
                ):
                    for entry in scanned:
                        path = f"{folder}/{entry.name}"
                        if not path.endswith(".parquet"):
                            continue
                        if left.pop(path, None) != version_of(stamp_of(entry.stat())):
                            changed.append(path)
    return {hour for path in (*changed, *left) if (hour := hour_in(path)) is not None}


def _age_s(root: Path) -> float:
    """How long ago the folders were compared; a clock that was set back counts as a long time."""
    try:
        age_s = SYSTEM_CLOCK.now_ms() / 1_000 - (root / KEYS / LOCK).stat().st_mtime
    except OSError:
        return float("inf")
    return age_s if age_s >= 0 else float("inf")
