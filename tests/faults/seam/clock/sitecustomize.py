"""Shifts a process's clock by the seconds in the file `STORM_CLOCK`; Python imports this as it starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = Path(os.environ["STORM_CLOCK"])
_LOOK_EVERY_S = 0.1
_time, _time_ns = time.time, time.time_ns
_looked_s, _shift_s = float("-inf"), 0


def _shift() -> int:
    global _looked_s, _shift_s  # noqa: PLW0603 - one clock for the process
    if time.monotonic() - _looked_s > _LOOK_EVERY_S:
        _looked_s = time.monotonic()
        try:
            _shift_s = int(_FILE.read_text() or 0)
        except (OSError, ValueError):
            _shift_s = 0
    return _shift_s


time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + _shift() * 1_000_000_000
