"""The way in: what a request brings is committed, acknowledged and found again by its receipt."""

from __future__ import annotations

from waybill.collector.intake.acceptor import Acceptor
from waybill.collector.intake.commit_queue import STALLED_S, CommitQueue
from waybill.collector.intake.receipt import RECEIPT_PATTERN, Receipt
from waybill.collector.intake.rejects import Reject, Rejects

__all__ = [
    "RECEIPT_PATTERN",
    "STALLED_S",
    "Acceptor",
    "CommitQueue",
    "Receipt",
    "Reject",
    "Rejects",
]
