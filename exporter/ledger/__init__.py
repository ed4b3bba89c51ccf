"""The ledger of a root: records every change of its files, in a chain of small entries."""

from waybill.exporter.ledger.changes import Changes as Changes
from waybill.exporter.ledger.following import (
    Followed as Followed,
    Position as Position,
    follow_ledger as follow_ledger,
)
from waybill.exporter.ledger.holding import (
    hold_against_ledger as hold_against_ledger,
    seal_there as seal_there,
)
from waybill.exporter.ledger.ledger import recorded as recorded, root_lock as root_lock
from waybill.exporter.ledger.state import (
    Doubt as Doubt,
    LedgerState as LedgerState,
    finding_id as finding_id,
    is_archived as is_archived,
    read_ledger as read_ledger,
)
