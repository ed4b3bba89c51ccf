"""What Waybill's own processes have in common: commands, runners and the collector's workers."""

from __future__ import annotations

import os


def prepare() -> None:
    """Set environment variables that libraries read as they load, unless the user has set them."""
    # Encoding files needs many short-lived buffers. Arrow's own allocator asks the kernel for new pages for
    # each, which took a third of a compaction's CPU time and half as much memory again.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
