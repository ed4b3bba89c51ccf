"""What became of a backend's events, counted over all its runners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

COUNTERS: Final = "figures"


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counts of one backend.

    Attributes:
        delivered: answers that took an event; one sent once more counts again.
        failed: attempts that came to nothing and were, or will be, repeated.
        refused: answers that made an event a dead letter.
        coalesced: events that summaries stand for.
        summaries: those of `delivered` that were summaries.
    """

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    coalesced: int = 0
    summaries: int = 0

    def row(self) -> bytes:
        """The counts as they are stored."""
        return msgspec.json.encode(self)


def counters_of(journal: Journal, backend: str = MARQUEZ) -> Counters | None:
    """The counts of one backend, by the name of its projection; None before anything was sent there."""
    row = journal.state_get(backend, COUNTERS)
    return None if row is None else msgspec.json.decode(row, type=Counters)
