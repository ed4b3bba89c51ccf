"""The journal: every accepted entry, in order, on disk before it is acknowledged."""

from waybill.transport.journal.database import SYNC_EVERY_S as SYNC_EVERY_S
from waybill.transport.journal.entry import Entry as Entry, Kind as Kind
from waybill.transport.journal.fingerprints import (
    FileContent as FileContent,
    tells_content as tells_content,
)
from waybill.transport.journal.journal import (
    NEARLY_FULL as NEARLY_FULL,
    Journal as Journal,
    Waiting as Waiting,
)
from waybill.transport.journal.nodes import Node as Node
from waybill.transport.journal.poison import Poison as Poison
from waybill.transport.journal.rescue import has_traces as has_traces
from waybill.transport.journal.rows import Item as Item
from waybill.transport.journal.spool import (
    Spool as Spool,
    adopt as adopt,
    damaged_spools as damaged_spools,
    waiting as waiting,
)
