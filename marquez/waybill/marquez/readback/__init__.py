"""Reading back from Marquez, and holding it against the journal."""

from __future__ import annotations

from waybill.marquez.readback.event_reader import EventReader, MarquezReadError
from waybill.marquez.readback.reconciliation import (
    MissingEvent,
    MissingJob,
    Reconciliation,
    reconcile,
    reconcile_new,
    repair,
)

__all__ = [
    "EventReader",
    "MarquezReadError",
    "MissingEvent",
    "MissingJob",
    "Reconciliation",
    "reconcile",
    "reconcile_new",
    "repair",
]
