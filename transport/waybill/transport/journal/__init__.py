"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from __future__ import annotations

from waybill.transport.journal.database import SYNC_EVERY_S
from waybill.transport.journal.journal import Entry, Journal, Kind
from waybill.transport.journal.spool import Spool, adopt, waiting

__all__ = [
    "SYNC_EVERY_S",
    "Entry",
    "Journal",
    "Kind",
    "Spool",
    "adopt",
    "waiting",
]
