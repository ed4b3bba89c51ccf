"""What the journal says of its entries: how late they came, and how many of them failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import UNREADABLE, parse_instant_us
from waybill.marquez import counters_of, dead_letters
from waybill.transport.journal import Kind
from waybill.transport.rejects import Rejects
from waybill.transport.runner import statuses

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

EVENTS_MAX: Final = 1_000
"""So many of the last events are looked at."""

_BYTES_MAX: Final = 32 * 2**20
_BODY_MAX_BYTES: Final = 2**20
"""Larger entries say no more of lags, and would take memory beside requests."""


class _Timed(msgspec.Struct):
    eventTime: str  # noqa: N815 - OpenLineage's own name


class Failures(NamedTuple):
    """What failed of the entries since an instant.

    Attributes:
        failed: how many were refused, set aside as poison, or became dead letters.
        entries: how many were sent, the refused ones among them.
        retried: how many attempts of deliveries failed and were, or will be, repeated, since the home began.
    """

    failed: int
    entries: int
    retried: int


def lags_since(journal: Journal, *instants_ms: int) -> list[list[float]]:
    """How long after its time each of the last events was kept, in seconds, the shortest first.

    Args:
        journal: the journal.
        instants_ms: for each, only events count that were received after it, in epoch milliseconds.
    """
    after = max(_seq_before(journal, min(instants_ms)), journal.last_seq() - EVENTS_MAX)
    found = []
    events = journal.read(after, limit=EVENTS_MAX, max_bytes=_BYTES_MAX, body_max_bytes=_BODY_MAX_BYTES)
    for entry in events:
        if entry.kind is Kind.OPENLINEAGE and entry.body:
            try:
                at_us = parse_instant_us(_TIMED.decode(entry.body).eventTime)
            except (msgspec.MsgspecError, *UNREADABLE):
                continue  # the layout sets it aside
            found.append((max(entry.received_ms / 1_000 - at_us / 1e6, 0.0), entry.received_ms))
    found.sort()
    return [[lag_s for lag_s, at_ms in found if at_ms > since_ms] for since_ms in instants_ms]


def failures_since(journal: Journal, *instants_ms: int) -> list[Failures]:
    """How many entries failed since each instant, in epoch milliseconds."""
    refused_ms = [one.set_aside_ms for one in Rejects(journal).all()]
    failed = [(one.seq, one.set_aside_ms) for one in journal.poison.all()]
    retried = 0
    for name in statuses(journal):
        if (counters := counters_of(journal, name)) is not None:
            retried += counters.failed
            failed += ((one.seq, one.set_aside_ms) for one in dead_letters(journal, name))
    found = []
    for since_ms in instants_ms:
        kept = journal.waiting(_seq_before(journal, since_ms)).entries
        refused = sum(at_ms > since_ms for at_ms in refused_ms)
        seqs = {seq for seq, at_ms in failed if at_ms > since_ms}
        found.append(Failures(len(seqs) + refused, kept + refused, retried))
    return found


def _seq_before(journal: Journal, since_ms: int) -> int:
    """The last entry that was received by an instant; their times never decrease."""
    low, high = 0, journal.last_seq()
    while low < high:
        middle = (low + high) // 2
        next_ms = journal.waiting(middle).oldest_ms
        if next_ms is not None and next_ms <= since_ms:
            low = middle + 1
        else:
            high = middle
    return low


_TIMED: Final = msgspec.json.Decoder(_Timed)
