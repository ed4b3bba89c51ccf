"""Delivery: the projection that sends events to one backend, and what becomes of those it refuses."""

from __future__ import annotations

from waybill.marquez.delivery.counters import Counters, counters_of
from waybill.marquez.delivery.dead_letter_box import (
    OWED_PREFIX,
    DeadLetter,
    dead_letter_body,
    dead_letters,
    drop_dead_letters,
    replay_dead_letters,
)
from waybill.marquez.delivery.delivery import CONNECTIONS, Delivery

__all__ = [
    "CONNECTIONS",
    "OWED_PREFIX",
    "Counters",
    "DeadLetter",
    "Delivery",
    "counters_of",
    "dead_letter_body",
    "dead_letters",
    "drop_dead_letters",
    "replay_dead_letters",
]
