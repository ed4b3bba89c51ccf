"""Marquez: sends events to the backend, and handles those that it refuses.

`open_deliveries` returns the projections that the runner runs; `probe` and `dead_letters` answer a person's
questions; `EventReader` reads run events back.
"""

from .backend import Backend, ProbeResult, probe
from .delivery import (
    Counters,
    DeadLetter,
    Delivery,
    counters_of,
    dead_letter_body,
    dead_letters,
    drop_dead_letters,
    retry_dead_letters,
)
from .readback import (
    EventReader,
    MarquezReadError,
    MissingEvent,
    MissingJob,
    Reconciliation,
    reconcile,
    reconcile_new,
    repair,
)
from .targets import open_deliveries, open_reader

__all__ = [
    "Backend",
    "Counters",
    "DeadLetter",
    "Delivery",
    "EventReader",
    "MarquezReadError",
    "MissingEvent",
    "MissingJob",
    "ProbeResult",
    "Reconciliation",
    "counters_of",
    "dead_letter_body",
    "dead_letters",
    "drop_dead_letters",
    "open_deliveries",
    "open_reader",
    "probe",
    "reconcile",
    "reconcile_new",
    "repair",
    "retry_dead_letters",
]
