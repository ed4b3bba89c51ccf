"""What Waybill's own processes have in common: commands, runners and the collector's workers."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

_FILES: Final = 65_536
"""How many files may be open where the system sets no limit."""


def prepare() -> None:
    """Set what libraries read as they load, unless the user has, and allow as many open files as may be."""
    _allow_files()
    # Encoding files needs many short-lived buffers. Arrow's own allocator asks the kernel for new pages for
    # each, which took a third of a compaction's CPU time and half as much memory again.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _allow_files() -> None:
    """Ask for as many open files as the system grants: many begin with 1,024, too few for a collector."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems grant less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
