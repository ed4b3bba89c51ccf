"""The ledger of a root: every change of its files, in a chain of small entries."""

from waybill.exporter.ledger.ledger import (
    Changes as Changes,
    LedgerState as LedgerState,
    is_archived as is_archived,
    is_of as is_of,
    read_ledger as read_ledger,
    recorded as recorded,
    relative as relative,
    root_lock as root_lock,
)
