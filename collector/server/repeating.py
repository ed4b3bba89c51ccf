"""Work that the collector repeats in parallel with requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from waybill.transport.clock import SYSTEM_CLOCK

log = logging.getLogger("waybill.collector")

_REST: Final = 9
"""After its work, a thread rests for this many times as long as that took: requests come first."""

_END_WITHIN_S: Final = 1.0


class Repeating(threading.Thread):
    """Does some work again and again until the end; what it raises is logged.

    Args:
        what: the work, for the log.
        work: does it once; it gets a function that says whether the end has come.
        every_s: how long to rest after it.
        first_after_s: how long to rest before it is done first.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[Callable[[], bool]], object],
        every_s: float,
        first_after_s: float = 0.0,
    ) -> None:
        super().__init__(name=f"waybill-{what.replace(' ', '-')}", daemon=True)
        self._what = what
        self._work = work
        self._every_s = every_s
        self._wait_s = first_after_s
        self._ended = threading.Event()

    def run(self) -> None:
        """Work until `end`."""
        while not self._ended.wait(self._wait_s):
            begun_s = SYSTEM_CLOCK.monotonic_s()
            try:
                self._work(self._ended.is_set)
            except Exception:
                log.exception("the %s failed; trying again later", self._what)
            self._wait_s = max(self._every_s, _REST * (SYSTEM_CLOCK.monotonic_s() - begun_s))

    def end(self) -> None:
        """Stop, without waiting for work that takes long."""
        self._ended.set()
        self.join(_END_WITHIN_S)
