"""The regular check of Spark's event logs, in parallel with requests."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from waybill.transport.home import Home

    from ..event_logs import Follower

log = logging.getLogger("waybill.collector")

_REST: Final = 9
"""After a check, the thread rests for this many times as long as the check took: requests come first."""

_END_WITHIN_S: Final = 1.0


class Following(threading.Thread):
    """Runs a follower until the end."""

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
                log.exception("the event logs could not be checked; trying again later")
            took_s = time.monotonic() - begun_s
            self._ended.wait(max(self._follower.every_s, _REST * took_s))

    def end(self) -> None:
        """Stop, without waiting for a store that takes long to answer."""
        self._ended.set()
        self.join(_END_WITHIN_S)
