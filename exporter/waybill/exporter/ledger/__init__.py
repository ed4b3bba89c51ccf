"""The ledger of a root: every change of its files, in a chain of small entries."""

from __future__ import annotations

from waybill.exporter.ledger.ledger import (
    Changes,
    LedgerState,
    is_archived,
    is_of,
    read_ledger,
    recorded,
    relative,
)

__all__ = [
    "Changes",
    "LedgerState",
    "is_archived",
    "is_of",
    "read_ledger",
    "recorded",
    "relative",
]
