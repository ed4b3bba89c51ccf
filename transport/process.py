"""Preparation of Waybill's own processes: commands, runners and the collector's workers."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

_FILES: Final = 65_536
"""How many files may be open if the system sets no limit."""


def prepare() -> None:
    """Set variables that libraries read on loading, unless already set, and raise the open-file limit."""
    # The usual limit of 1,024 open files is too low for a collector.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems grant less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    # Encoding files needs many short-lived buffers. Arrow's own allocator requests new pages from the kernel
    # for each, which took a third of a compaction's CPU time and 50% more memory.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
