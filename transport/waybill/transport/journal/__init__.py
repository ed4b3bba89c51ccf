"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from waybill.transport.journal.database import SYNC_EVERY_S as SYNC_EVERY_S
from waybill.transport.journal.journal import Entry as Entry, Journal as Journal, Kind as Kind
from waybill.transport.journal.rows import Item as Item
from waybill.transport.journal.spool import (
    Spool as Spool,
    adopt as adopt,
    waiting as waiting,
)
