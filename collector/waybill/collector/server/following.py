"""The look at Spark's event logs, again and again beside the requests."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from waybill.collector.event_logs import Follower
    from waybill.transport.home import Home

log = logging.getLogger("waybill.collector")

_REST: Final = 9
"""A look that takes long is followed by a rest of so many times as long, since requests come first."""

_END_WITHIN_S: Final = 1.0


class Following(threading.Thread):
    """Has a follower look, until the end."""

    def __init__(self, follower: Follower, home: Home) -> None:
        super().__init__(name="waybill-event-logs", daemon=True)
        self._follower = follower
        self._home = home
        self._ended = threading.Event()

    def run(self) -> None:
        """Work until `end`."""
        while not self._ended.is_set():
            begun_s = time.monotonic()
            try:
                self._follower.look(self._home, self._ended.is_set)
            except Exception:
                log.exception("the event logs could not be looked at; the next look follows")
            took_s = time.monotonic() - begun_s
            self._ended.wait(max(self._follower.every_s, _REST * took_s))

    def end(self) -> None:
        """Stop, without waiting for a store that takes long to answer."""
        self._ended.set()
        self.join(_END_WITHIN_S)
