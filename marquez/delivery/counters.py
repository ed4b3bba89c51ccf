"""The outcomes of the events of one backend, as the journal keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

COUNTERS: Final = "figures"
"""The key of their row."""


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcomes of one backend's events, counted over all runners.

    Attributes:
        delivered: responses that accepted an event; an event that is sent again counts again.
        failed: failed attempts that were, or will be, retried.
        refused: responses that made an event a dead letter.
        coalesced: events that summaries stand for.
        summaries: those of `delivered` that were summaries.
    """

    delivered: int = 0
    failed: int = 0
    refused: int = 0
    coalesced: int = 0
    summaries: int = 0


def counters_of(journal: Journal, backend: str = MARQUEZ) -> Counters | None:
    """The counts of one backend, by the name of its projection; None before anything was sent there."""
    row = journal.state_get(backend, COUNTERS)
    return None if row is None else msgspec.json.decode(row, type=Counters)
