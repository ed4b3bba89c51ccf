"""The daily comparison of what was delivered with what each Marquez has."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from waybill.marquez import MarquezReadError, open_reader, reconcile_new
from waybill.transport.config import MARQUEZ
from waybill.transport.errors import JournalError

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

log = logging.getLogger("waybill.collector")

DAY_MS: Final = 86_400_000
LOOK_BACK_MS: Final = 2 * DAY_MS
"""What was accepted earlier is not compared: what a Marquez forgets after its retention is not lost."""

_LAST: Final = "reconciled_ms"
_LOOK_EVERY_S: Final = 60.0
_FAILED_AGAIN_MS: Final = 3_600_000
_END_WITHIN_S: Final = 1.0


class Reconciling(threading.Thread):
    """Compares once a day, and lets what is missing be sent again; on a thread of its own.

    Args:
        journal: the home's journal.
        settings: the backends.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        super().__init__(name="waybill-reconciling", daemon=True)
        self._journal = journal
        self._settings = settings
        self._ended = threading.Event()
        self._not_before_ms: dict[str, int] = {}

    def run(self) -> None:
        """Work until `end`."""
        while not self._ended.is_set():
            for name in self._marquez_names():
                self.look(name, time.time_ns() // 1_000_000)
            self._ended.wait(_LOOK_EVERY_S)

    def end(self) -> None:
        """Stop; a Marquez that lets one wait for an answer is not waited for."""
        self._ended.set()
        self.join(_END_WITHIN_S)

    def look(self, name: str, now_ms: int) -> None:
        """Compare with one backend, if that is due."""
        try:
            last_ms = int(self._journal.state_get(name, _LAST) or 0)
            if now_ms >= max(last_ms + DAY_MS, self._not_before_ms.get(name, 0)):
                self._compare(name, now_ms)
        except (MarquezReadError, JournalError) as error:
            log.warning("the deliveries to %s cannot be compared now: %s", name, error)
            self._not_before_ms[name] = now_ms + _FAILED_AGAIN_MS

    def _compare(self, name: str, now_ms: int) -> None:
        reader = open_reader(self._settings, name)
        try:
            for found in reconcile_new(self._journal, reader, since_ms=now_ms - LOOK_BACK_MS, backend=name):
                if found.missing:
                    log.warning(
                        "%s lacks %d of %d events that were delivered; they are sent again",
                        name,
                        len(found.missing),
                        found.compared,
                    )
                if found.missing_jobs:
                    jobs = len(found.missing_jobs)
                    log.warning("%s lacks %d jobs of the graph; it is told of them again", name, jobs)
                if self._ended.is_set():
                    return
        finally:
            reader.close()
        self._journal.commit(name, put={_LAST: str(now_ms).encode()})

    def _marquez_names(self) -> list[str]:
        names = [MARQUEZ] if self._settings.marquez_url is not None else []
        return names + [one.name for one in self._settings.backends if one.backend == "marquez"]
