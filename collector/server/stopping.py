"""Ending a home's collector from another process, without the packages that the server needs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from waybill.transport import locks
from waybill.transport.clock import SYSTEM_CLOCK

_POLL_S: Final = 0.05


def stop(home: Path, timeout_s: float | None = None) -> bool:
    """End a home's collector with SIGTERM; False if it has not ended in time (None: without limit)."""
    pid = locks.holder(home, locks.COLLECTOR)
    if pid is None:
        return not locks.is_held(home, locks.COLLECTOR)
    os.kill(pid, signal.SIGTERM)
    deadline_s = float("inf") if timeout_s is None else SYSTEM_CLOCK.monotonic_s() + timeout_s
    while locks.is_held(home, locks.COLLECTOR):
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            return False
        SYSTEM_CLOCK.sleep(_POLL_S)
    return True
