"""Stopping a home's collector from outside."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

from waybill.collector.server.server import COLLECTOR_LEASE
from waybill.transport import locks

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S: Final = 0.05


def stop(home: Path, timeout_s: float | None = None) -> bool:
    """Ask a home's collector to end, as SIGTERM does, and wait until it has.

    Args:
        home: whose collector.
        timeout_s: how long to wait; None: as long as it takes.

    Returns:
        Whether there is none any more.
    """
    pid = locks.holder(home, COLLECTOR_LEASE)
    if pid is None:
        return not locks.is_held(home, COLLECTOR_LEASE)
    os.kill(pid, signal.SIGTERM)
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    while locks.is_held(home, COLLECTOR_LEASE):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
