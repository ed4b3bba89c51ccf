"""Preparation of Waybill's own processes: commands, runners and the collector's workers."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Final

_FILES: Final = 65_536
"""How many files may be open if the system sets no limit."""

_REFUSED: Final = {"pandas"}
_ON_THE_WAY: Final = ("importlib._bootstrap", "pyarrow", "duckdb")


class _NotForUs(MetaPathFinder):
    """Refuses what pyarrow loads for our own code wherever it is installed: 0.2 s and 40 MB."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - the protocol
        if name not in _REFUSED:
            return
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who imports it
        while frame is not None and frame.f_globals.get("__name__", "").startswith(_ON_THE_WAY):
            frame = frame.f_back
        if frame is not None and frame.f_globals.get("__name__", "").startswith("waybill."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


_NOT_FOR_US: Final = _NotForUs()


def leave_numpy_out() -> None:
    """Have our own code load no numpy in this process either, which is for a command that only reads."""
    _REFUSED.add("numpy")


def prepare() -> None:
    """Set variables that libraries read on loading, unless already set, and raise the open-file limit.

    Nor does our own code load pandas from here on.
    """
    if _NOT_FOR_US not in sys.meta_path:
        sys.meta_path.insert(0, _NOT_FOR_US)
    # The usual limit of 1,024 open files is too low for a collector.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems grant less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    # Encoding files needs many short-lived buffers. Arrow's own allocator requests new pages from the kernel
    # for each, which took a third of a compaction's CPU time and 50% more memory.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
