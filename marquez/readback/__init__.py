"""Reading events back from Marquez, and comparing them with the journal."""

from .event_reader import EventReader, MarquezReadError
from .reconciliation import MissingEvent, MissingJob, Reconciliation, reconcile, reconcile_new, repair
