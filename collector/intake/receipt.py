"""The header of a response that names the entries that it acknowledges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from waybill.transport.journal import Receipt

RECEIPT_HEADER: Final = "waybill-receipt"


def receipt_headers(node: str, seqs: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """The header that names the last of these entries; the others come directly before it in the journal."""
    return ((RECEIPT_HEADER, str(Receipt(node, max(seqs)))),) if seqs else ()
