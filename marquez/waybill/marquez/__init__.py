"""Marquez: how events reach the backend, and what becomes of those it refuses.

`open_deliveries` gives the projections that the runner works; `probe` and `dead_letters` are for a person's
questions; `EventReader` reads run events back.
"""

from __future__ import annotations

from waybill.marquez.client import Backend, ProbeResult, probe
from waybill.marquez.delivery import Delivery
from waybill.marquez.events import EventReader, MarquezReadError
from waybill.marquez.figures import Figures, figures_of
from waybill.marquez.letters import (
    DeadLetter,
    dead_letter_body,
    dead_letters,
    drop_dead_letters,
    replay_dead_letters,
)
from waybill.marquez.reconcile import (
    MissingEvent,
    MissingJob,
    Reconciliation,
    reconcile,
    reconcile_new,
    repair,
)
from waybill.marquez.targets import open_deliveries, open_reader

__all__ = [
    "Backend",
    "DeadLetter",
    "Delivery",
    "EventReader",
    "Figures",
    "MarquezReadError",
    "MissingEvent",
    "MissingJob",
    "ProbeResult",
    "Reconciliation",
    "dead_letter_body",
    "dead_letters",
    "drop_dead_letters",
    "figures_of",
    "open_deliveries",
    "open_reader",
    "probe",
    "reconcile",
    "reconcile_new",
    "repair",
    "replay_dead_letters",
]
