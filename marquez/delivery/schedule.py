"""Which event to send next, and the effect of its response. Pure: the caller supplies time and chance.

A 500 response may be an outage or the event's own fault. The results of other events tell them apart:

- An event that fails waits, with the others of its key, and is retried after a back-off; the rest continue.
- If several in a row fail, or nothing answers, the backend is taken to be down: the circuit opens, and
  events are sent as probes, one at a time and a new one first, so that no single bad event can keep it open.
- An event fails *against the odds* when, since its last try, at least one new event was delivered and at most
  one in four of the new ones failed. After `POISON_TRIES` such tries in a row over `POISON_AFTER_S` it is
  poison and parked. A try while others fail as well starts the count anew. So an event is never parked
  because of an outage, and one that a backend refuses at random (with any probability) is parked in less than
  one case in ten thousand.
"""

from __future__ import annotations

import heapq
import math
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from ..backend import Answer, Verdict
from .circuit import PROBE_EVERY_MAX_S, Circuit, full_jitter

if TYPE_CHECKING:
    from .pending import PendingEvents

POISON_TRIES: Final = 8
POISON_AFTER_S: Final = 120.0
RETRY_EVERY_MAX_S: Final = 60.0
SLOW_SHARE: Final = 4.0
"""An event that fails slowly waits at least this many times as long as its try took: others need the time."""
STUCK_TRIES: Final = 3
KEY_EVERY_S: Final = 5.0
"""How often to look for another key while the backend refuses the current one."""

_WELL_RATIO: Final = 3


class SendOutcome(Enum):
    """What happens to an event after a response."""

    DELIVERED = "delivered"
    PARKED = "parked"
    LATER = "later"


class Trouble(msgspec.Struct):
    """The history of an event that failed.

    Attributes:
        delivered: `Schedule.delivered` at its last try, as `failed` is `Schedule.failed`.
        strikes: how often in a row it failed against the odds.
    """

    since_s: float
    delivered: int
    failed: int
    answer: Answer
    tries: int = 1
    strikes: int = 0


class Schedule:
    """Decides which of the pending events goes next; `rng` draws the jitter."""

    def __init__(self, pending: PendingEvents, rng: Random) -> None:
        self._pending = pending
        self._rng = rng
        self.circuit = Circuit(rng)
        self._key_due_s = 0.0
        self._handed_out_s = -math.inf
        self._troubles: dict[int, Trouble] = {}
        self._retries: list[tuple[float, int]] = []
        self._stuck: dict[int, Answer] = {}
        self._retry_next = False
        self.delivered = 0
        """How many events were delivered at their first try."""
        self.failed = 0
        """How many events failed at their first try."""

    def next(self, now_s: float) -> int | None:
        """The event to send now, if any may go; for each, call `answered`, `give_back` or `settle` later."""
        seq = self._choose(now_s)
        if seq is not None:
            self._handed_out_s = now_s
        return seq

    def _choose(self, now_s: float) -> int | None:
        if self.circuit.due_s is not None:
            if now_s < self.circuit.due_s:
                return None
            if self._pending.any_ready:
                return self._pending.take()
            return heapq.heappop(self._retries)[1] if self._retries else None
        is_retry_due = bool(self._retries) and self._retries[0][0] <= now_s
        # New events and repeated ones take turns, so that neither starves the other.
        if is_retry_due and (self._retry_next or not self._pending.any_ready):
            self._retry_next = False
            return heapq.heappop(self._retries)[1]
        if self._pending.any_ready:
            self._retry_next = True
            return self._pending.take()
        return None

    def probes(self, now_s: float) -> bool:
        """Whether the backend is taken to be down, so that one event at a time is tried.

        A probe that gets no answer is not waited for until it times out: it may hang long after the backend
        has recovered.
        """
        return self.circuit.due_s is not None and now_s < self._handed_out_s + PROBE_EVERY_MAX_S

    def wait_s(self, now_s: float) -> float | None:
        """In how many seconds `next` may have an event; None: not before another one is pending."""
        if self.circuit.due_s is not None:
            at_most_s = KEY_EVERY_S if self.circuit.denied else math.inf
            wait_s = min(max(0.0, self.circuit.due_s - now_s), at_most_s)
            return wait_s if self._pending.held else None
        if self._pending.any_ready:
            return 0.0
        return max(0.0, self._retries[0][0] - now_s) if self._retries else None

    def wants_key(self, now_s: float) -> bool:
        """Whether the backend refuses the key and it is time to look for another."""
        if not self.circuit.denied or now_s < self._key_due_s:
            return False
        self._key_due_s = now_s + KEY_EVERY_S
        return True

    @property
    def outage(self) -> Answer | None:
        """The answer that says that the whole backend is down; None while it is not."""
        return self.circuit.problem if self._pending.held else None

    @property
    def stuck(self) -> Answer | None:
        """The last answer to the event that has been failing longest; None when none fails for long."""
        return next(iter(self._stuck.values()), None)

    def tries(self, seq: int) -> int:
        """How often a waiting event has failed."""
        return self._troubles[seq].tries if seq in self._troubles else 0

    def give_back(self, seq: int, now_s: float) -> None:
        """Send an event from `next` again, whatever happened to it."""
        if seq in self._troubles:
            heapq.heappush(self._retries, (now_s, seq))
        else:
            self._pending.put_back(seq)

    def settle(self, seq: int) -> None:
        """Note that an event from `next` is done, for example because the journal deleted it."""
        self._troubles.pop(seq, None)
        self._stuck.pop(seq, None)
        self._pending.settle(seq)

    def answered(self, seq: int, answer: Answer, now_s: float) -> SendOutcome:
        """Process the backend's response to an event from `next`."""
        if answer.verdict is Verdict.AWAY:
            self.circuit.failed(answer, now_s)
            self.give_back(seq, now_s)
            return SendOutcome.LATER
        if answer.verdict in {Verdict.DELIVERED, Verdict.REFUSED}:
            self.delivered += answer.verdict is Verdict.DELIVERED and seq not in self._troubles
            self.settle(seq)
            if self.circuit.passed():
                self._pardon(now_s)
            return SendOutcome.DELIVERED if answer.verdict is Verdict.DELIVERED else SendOutcome.PARKED
        trouble = self._note_failure(seq, answer, now_s)
        if trouble.strikes >= POISON_TRIES and now_s - trouble.since_s >= POISON_AFTER_S:
            self.settle(seq)
            return SendOutcome.PARKED
        # The failure of an event that fails while others pass says nothing about the backend.
        if not trouble.strikes or self.circuit.due_s is not None:
            self.circuit.failed(answer, now_s)
        delay_s = max(full_jitter(self._rng, trouble.tries, RETRY_EVERY_MAX_S), SLOW_SHARE * answer.elapsed_s)
        heapq.heappush(self._retries, (now_s + delay_s, seq))
        return SendOutcome.LATER

    def _note_failure(self, seq: int, answer: Answer, now_s: float) -> Trouble:
        trouble = self._troubles.get(seq)
        if trouble is None:
            self.failed += 1
            self._pending.block(seq)
            trouble = Trouble(since_s=now_s, delivered=self.delivered, failed=self.failed, answer=answer)
            self._troubles[seq] = trouble
            return trouble
        delivered, failed = self.delivered - trouble.delivered, self.failed - trouble.failed
        if delivered and delivered >= _WELL_RATIO * failed:
            trouble.strikes += 1
        elif failed:
            trouble.strikes = 0
        trouble.tries += 1
        trouble.answer, trouble.delivered, trouble.failed = answer, self.delivered, self.failed
        if trouble.tries >= STUCK_TRIES:
            self._stuck[seq] = answer
        return trouble

    def _pardon(self, now_s: float) -> None:
        """After an outage, retry at once what failed in it, except failures against the odds before."""
        self._retries = [
            (due_s if self._troubles[seq].strikes else now_s, seq) for due_s, seq in self._retries
        ]
        heapq.heapify(self._retries)
