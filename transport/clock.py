"""The clock: the one module of Waybill that reads the time or sleeps; ruff bans that elsewhere.

A journal is handed its clock, and what is handed a journal goes by the same clock: a test can move it.
The rest uses `SYSTEM_CLOCK`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import Event


class Clock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """The time of day, epoch milliseconds; it may jump, also backwards."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from a start of its own; it never goes back."""
        return time.monotonic()

    def sleep(self, pause_s: float) -> None:
        """Come back after so many seconds."""
        time.sleep(pause_s)

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        """Come back when an event is set, or after so many seconds; returns whether it is set."""
        return event.wait(timeout_s)


SYSTEM_CLOCK: Final = Clock()
