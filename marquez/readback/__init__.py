"""Reading events back from Marquez, and comparing them with the journal."""

from .event_reader import EventReader as EventReader, MarquezReadError as MarquezReadError
from .reconciliation import (
    MissingEvent as MissingEvent,
    MissingJob as MissingJob,
    Reconciliation as Reconciliation,
    reconcile as reconcile,
    reconcile_new as reconcile_new,
    repair as repair,
)
