"""Memory that a program holds and does not use."""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only the C library of GNU has it, and only it keeps so much."""


def give_back() -> None:
    """Give back to the system the free memory that the allocators of Arrow and C keep for later.

    After entries with long names these are several hundred megabytes, and the memory of the next large work
    comes on top of them. It takes some milliseconds, so it is done between pieces of work only.
    """
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)
