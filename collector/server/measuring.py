"""The service levels, recorded every 5 minutes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waybill.lineage.levels import EVERY_MS, Served, measure, read_plan
from waybill.transport.errors import WaybillError

from ..alerting import tell_alerts

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

    from ..endpoints import Readings

log = logging.getLogger("waybill.collector")

_FIRST_AFTER_S: Final = 10.0
_END_WITHIN_S: Final = 1.0


class Measuring(threading.Thread):
    """Measures the service levels every 5 minutes, records them, and tells which are missed.

    Args:
        readings: begins the answers about the graph.
        journal: the home's, which keeps the history.
        settings: the home's agreed ones; the file of objectives is read each time.
        served: what the whole collector has counted so far.
    """

    def __init__(
        self, readings: Readings, journal: Journal, settings: Settings, served: Callable[[], Served]
    ) -> None:
        super().__init__(name="waybill-levels", daemon=True)
        self._readings = readings
        self._journal = journal
        self._settings = settings
        self._served = served
        self._ended = threading.Event()

    def run(self) -> None:
        """Work until `end`."""
        wait_s = _FIRST_AFTER_S
        while not self._ended.wait(wait_s):
            wait_s = EVERY_MS / 1_000
            self.record()

    def record(self) -> None:
        """Measure and record the levels once, and tell what is missed; what is wrong is logged."""
        try:
            answers = self._readings.of_graph()
            plan, served = read_plan(self._settings), self._served()
            levels = measure(answers, self._journal, plan, served=served, history=self._journal)
            tell_alerts(self._journal, answers, plan, levels)
        except WaybillError as error:
            log.warning("the service levels cannot be measured now: %s", error)
        except Exception:
            log.exception("the service levels could not be measured; trying again later")

    def end(self) -> None:
        """Stop, without waiting for a measurement that takes long."""
        self._ended.set()
        self.join(_END_WITHIN_S)
