"""The receipt: an id that a sender can use later to look up its entries."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

RECEIPT_PATTERN: Final = "^([0-9a-f]+)-([1-9][0-9]{0,17})$"


class Receipt(NamedTuple):
    """Where an entry is: the journal's node, and the entry's number there."""

    node: str
    seq: int

    def __str__(self) -> str:
        return f"{self.node}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Receipt | None:
        """Parse a receipt; None if the text is not one."""
        found = re.fullmatch(RECEIPT_PATTERN, text)
        return cls(found[1], int(found[2])) if found else None
