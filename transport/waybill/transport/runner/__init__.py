"""The runner: the one process of a home that works its projections, and who starts it."""

from __future__ import annotations

from waybill.transport.runner.flushing import FlushReport, flush
from waybill.transport.runner.projection import Projection, Step
from waybill.transport.runner.runner import Runner, lag_s, statuses
from waybill.transport.runner.supervisor import Supervisor

__all__ = [
    "FlushReport",
    "Projection",
    "Runner",
    "Step",
    "Supervisor",
    "flush",
    "lag_s",
    "statuses",
]
