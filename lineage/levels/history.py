"""The history of the levels: a small table of what was good, beside the journal's other state.

A slot has, of each level and tier, how many were asked of and how many of them were good: events and requests
since the slot before it, datasets and edges at its moment. So slots add up: a budget and a burn rate are sums
over a span of time, and an hour's slots become one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

OWNER: Final = "levels"
"""Under this name the journal keeps the history."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
EVERY_MS: Final = 5 * MINUTE_MS
"""How far apart slots are at least."""
_FINE_MS: Final = 3 * DAY_MS
_COARSE_MS: Final = 90 * DAY_MS
_SLOT: Final = "slot:"

Counted = tuple[float, float]
"""How many were good, and how many there were."""


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """What was counted at one moment, or in an hour.

    Attributes:
        at_ms: when, in epoch milliseconds; of an hour, its beginning.
        counts: by level and tier, as one text, how many were good, and how many there were.
        latencies: by level, how many questions took how long, by the collector's buckets.
    """

    at_ms: int
    counts: dict[str, Counted]
    latencies: dict[str, tuple[int, ...]] = {}


def read_slots(journal: Journal) -> list[Slot]:
    """The history, the oldest first."""
    return [_DECODER.decode(row) for _, row in sorted(journal.state(OWNER, _SLOT).items())]


def put_slot(journal: Journal, slots: Iterable[Slot], new: Slot, others: Mapping[str, bytes]) -> None:
    """Add a slot to the history, with other rows; make hours of slots of 3 days ago, and forget after 90."""
    fine_ms = (new.at_ms - _FINE_MS) // HOUR_MS * HOUR_MS
    hours: defaultdict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.at_ms < fine_ms:
            hours[slot.at_ms // HOUR_MS * HOUR_MS].append(slot)
    put, delete = {_key(new): _ENCODER.encode(new), **others}, list[str]()
    for begins_ms, some in hours.items():
        is_old = begins_ms < new.at_ms - _COARSE_MS
        if is_old or len(some) > 1:
            delete += map(_key, some)
        if not is_old and len(some) > 1:
            hour = add_up(begins_ms, some)
            put[_key(hour)] = _ENCODER.encode(hour)
    journal.commit(OWNER, put=put, delete=delete, durable=False)


def add_up(at_ms: int, slots: Iterable[Slot]) -> Slot:
    """Several slots as one."""
    counts: dict[str, Counted] = {}
    latencies: dict[str, tuple[int, ...]] = {}
    for slot in slots:
        for key, (good, total) in slot.counts.items():
            known_good, known_total = counts.get(key, (0.0, 0.0))
            counts[key] = (known_good + good, known_total + total)
        for key, took in slot.latencies.items():
            latencies[key] = tuple(map(sum, zip(took, latencies.get(key, (0,) * len(took)), strict=True)))
    return Slot(at_ms, counts, latencies)


def since(slots: Iterable[Slot], after_ms: int) -> Slot:
    """All slots after an instant as one."""
    return add_up(after_ms, (slot for slot in slots if slot.at_ms > after_ms))


def burn_rate(bad: float, allowed: float) -> float:
    """How many times as fast as allowed a budget is used; where nothing is allowed, how many are bad."""
    return bad / allowed if allowed > 0 else bad


def _key(slot: Slot) -> str:
    return f"{_SLOT}{slot.at_ms:015}"


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Slot)
