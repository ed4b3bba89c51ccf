"""The daily comparison of delivered events with those that each Marquez has."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waybill.marquez import MarquezReadError, open_reader, reconcile_new
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import MARQUEZ
from waybill.transport.errors import JournalError

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

log = logging.getLogger("waybill.collector")

DAY_MS: Final = 86_400_000
LOOK_BACK_MS: Final = 2 * DAY_MS
"""Older entries are not compared, because events that a Marquez removes after its retention are not lost."""

_LAST: Final = "reconciled_ms"
_FAILED_AGAIN_MS: Final = 3_600_000


class Reconciling:
    """Compares each Marquez in the settings once a day, and has missing events sent again."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._not_before_ms: dict[str, int] = {}

    def look(self, is_ended: Callable[[], bool]) -> None:
        """Compare with those that are due, until the end."""
        names = [MARQUEZ] if self._settings.marquez_url is not None else []
        names += [one.name for one in self._settings.backends if one.backend == "marquez"]
        for name in names:
            self.compare_if_due(name, SYSTEM_CLOCK.now_ms(), is_ended)

    def compare_if_due(self, name: str, now_ms: int, is_ended: Callable[[], bool]) -> None:
        """Compare with one backend, unless that was done within a day or failed within an hour."""
        try:
            last_ms = int(self._journal.state_get(name, _LAST) or 0)
            if now_ms >= max(last_ms + DAY_MS, self._not_before_ms.get(name, 0)):
                self._compare(name, now_ms, is_ended)
        except (MarquezReadError, JournalError) as error:
            log.warning("the deliveries to %s cannot be checked now: %s", name, error)
            self._not_before_ms[name] = now_ms + _FAILED_AGAIN_MS

    def _compare(self, name: str, now_ms: int, is_ended: Callable[[], bool]) -> None:
        with contextlib.closing(open_reader(self._settings, name)) as reader:
            for found in reconcile_new(self._journal, reader, since_ms=now_ms - LOOK_BACK_MS, backend=name):
                if found.missing:
                    what = "%s lacks %d of %d delivered events; sending them again"
                    log.warning(what, name, len(found.missing), found.compared)
                if found.missing_jobs:
                    jobs = len(found.missing_jobs)
                    log.warning("%s lacks %d jobs of the graph; sending them again", name, jobs)
                if is_ended():
                    return
        self._journal.commit(name, put={_LAST: str(now_ms).encode()})
