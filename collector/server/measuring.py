"""The service levels, measured for their history and for the alerts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from waybill.lineage.levels import Served, measure, read_plan
from waybill.transport.errors import WaybillError

from ..alerting import tell_alerts

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

    from ..endpoints import Readings

log = logging.getLogger("waybill.collector")


def record_levels(readings: Readings, journal: Journal, settings: Settings, served: Served) -> None:
    """Measure and record the levels once, and tell which are missed; what keeps it from that is logged.

    Args:
        readings: begins the answers about the graph.
        journal: the home's, which keeps the history.
        settings: the home's agreed ones; the file of objectives is read each time.
        served: what the whole collector has counted so far.
    """
    try:
        answers, plan = readings.of_graph(), read_plan(settings)
        levels = measure(answers, journal, plan, served=served, history=journal)
        tell_alerts(journal, answers, plan, levels)
    except WaybillError as error:
        log.warning("the service levels cannot be measured now: %s", error)
