"""What holds for the processes that are Waybill's own: its commands, its runners and their workers."""

from __future__ import annotations

import os


def prepare() -> None:
    """Settle what libraries read from the environment when they load; to be called before any of them does.

    What the user has set stands.
    """
    # Files are encoded in many buffers that grow and go. With Arrow's own allocator each begins as new pages
    # of the kernel, which took a third of a compaction's CPU time and half as much memory again.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
