"""Reading events back from Marquez, and comparing them with the journal."""

from waybill.marquez.readback.event_reader import (
    EventReader as EventReader,
    MarquezReadError as MarquezReadError,
)
from waybill.marquez.readback.reconciliation import (
    MissingEvent as MissingEvent,
    MissingJob as MissingJob,
    Reconciliation as Reconciliation,
    reconcile as reconcile,
    reconcile_new as reconcile_new,
    repair as repair,
)
