"""Memory: a large block goes back to the system when it is let go of."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 4 * 2**20


def give_back_large_blocks() -> None:
    """Have glibc take each block of 4 MiB or more from the system by itself (`mallopt(3)`).

    Else it makes such blocks part of its heap once it has seen one go, and the small blocks behind them then
    keep their memory: 150 MB after a few large bodies. Other C libraries have no such rule.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
