"""A clock that a test sets and moves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from waybill.transport.clock import Clock

if TYPE_CHECKING:
    from threading import Event

NOW_MS = 1_800_000_000_000
_LOOKS_EVERY_S = 0.002


class ManualClock(Clock):
    """It stands still until a test moves it, and keeps which waits were asked of it, in seconds.

    Args:
        now_ms: the time of day that it begins with.
        each_reading_s: each reading of its seconds moves it by so much.
        moves_itself: each sleep and each wait with a timeout moves it by so much and ends at once; otherwise
            they end when another thread has moved it far enough, or set the event.
    """

    def __init__(
        self, now_ms: int = NOW_MS, *, each_reading_s: float = 0, moves_itself: bool = False
    ) -> None:
        self._now_ms = float(now_ms)
        self._monotonic_s = 1_000.0
        self._each_reading_s = each_reading_s
        self._moves_itself = moves_itself
        self._never = threading.Event()
        self.waits_s: list[float | None] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        self.move(self._each_reading_s)
        return self._monotonic_s

    def move(self, by_s: float) -> None:
        """Let so many seconds pass."""
        self._now_ms += by_s * 1_000
        self._monotonic_s += by_s

    def set_ms(self, now_ms: int) -> None:
        """Set the time of day alone, as an administrator does."""
        self._now_ms = float(now_ms)

    def sleep(self, pause_s: float) -> None:
        self.wait(self._never, pause_s)

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        self.waits_s.append(timeout_s)
        if timeout_s is None:
            return event.wait()
        ends_s = self._monotonic_s + timeout_s
        if self._moves_itself and not event.is_set():
            self.move(timeout_s)
        while self._monotonic_s < ends_s:
            if event.wait(_LOOKS_EVERY_S):
                return True
        return event.is_set()
