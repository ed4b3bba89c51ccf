"""The pending events in view: which may go next, and which have to wait behind others.

Millions of events may wait in the journal. Only some of them are in memory, and of each only its sequence
number and its subject. Rules:

- Of the events with one key, only the oldest is given out. The next one is given out only when the result of
  the previous one is durable.
- At most `HELD_MAX` events are held. Reading continues past a key whose oldest event cannot be delivered now;
  of such a key at most `BLOCKED_KEY_MAX` later events are held. Further ones are read again when the key has
  been processed. So about `HELD_MAX / BLOCKED_KEY_MAX` keys with many events each, or `HELD_MAX` keys with
  one, can be blocked before the others have to wait too.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..acks import Acks
    from ..subject import Subject

HELD_MAX: Final = 16_384
READ_MAX: Final = 256
READ_AHEAD_MAX: Final = 1_024
BLOCKED_KEY_MAX: Final = 64


class PendingEvents:
    """The order of the pending events. Pure: it reads no journal and knows no time."""

    def __init__(
        self,
        acks: Acks,
        *,
        held_max: int = HELD_MAX,
        read_max: int = READ_MAX,
        blocked_key_max: int = BLOCKED_KEY_MAX,
    ) -> None:
        self._acks = acks
        self._held_max = held_max
        self._read_max = read_max
        self._blocked_key_max = blocked_key_max
        self._looked_at = acks.cursor
        self._subjects: dict[int, Subject] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._blocked: set[str] = set()
        self._first_beyond: dict[str, int] = {}
        self._ready: list[int] = []
        self._unstored: set[str] = set()
        self._held_back: set[int] = set()

    @property
    def held(self) -> int:
        """How many events are in memory, including those in flight."""
        return len(self._subjects)

    @property
    def any_ready(self) -> bool:
        """Whether a first-time event may go now."""
        return bool(self._ready)

    def room(self, *, ahead: bool = False) -> int:
        """How many entries to read now; `ahead`: even while there are events to send."""
        if ahead:
            return min(READ_AHEAD_MAX, self._held_max - self.held)
        return 0 if self._ready else min(self._read_max, self._held_max - self.held)

    def read_after(self) -> int:
        """The entry after which to continue reading."""
        after = self._acks.next_open(self._looked_at + 1) - 1
        while after + 1 in self._subjects or after + 1 in self._held_back:
            after = self._acks.next_open(after + 2) - 1
        self._looked_at = after
        return after

    def look_at(self, seq: int, subject: Subject | None) -> None:
        """Take the next entry into view; without a subject it is not for the backend, and settled."""
        self._settle_gap(seq)
        self._looked_at = seq
        if subject is None:
            self._acks.settle(seq)
        elif self._is_new(seq) and subject.key not in self._first_beyond:
            if subject.key in self._blocked and len(self._waiting[subject.key]) >= self._blocked_key_max:
                self._first_beyond[subject.key] = seq
            else:
                self._queue(seq, subject)

    def may_pass(self, seq: int, key: str) -> bool:
        """Whether an entry that comes into view may be processed at once, because no other has its key."""
        return self._is_new(seq) and key not in self._waiting and key not in self._first_beyond

    def hold_back(self, seq: int) -> None:
        """Take the next entry into view; it is not given out before it is admitted."""
        self._settle_gap(seq)
        self._looked_at = seq
        self._held_back.add(seq)

    def admit(self, seq: int, subject: Subject) -> None:
        """Queue an event behind those of its key: one that was held back, or one to be sent again."""
        self._held_back.discard(seq)
        if seq not in self._subjects:
            self._queue(seq, subject)

    def subject_of(self, seq: int) -> Subject:
        """The subject of a held event."""
        return self._subjects[seq]

    def take(self) -> int:
        """Give out the oldest event that may go, until one of the next three is called for it."""
        return heapq.heappop(self._ready)

    def put_back(self, seq: int) -> None:
        """Let the event be taken again."""
        heapq.heappush(self._ready, seq)

    def block(self, seq: int) -> None:
        """Leave it to the caller to send the event again; others with its key wait until it is settled."""
        self._blocked.add(self._subjects[seq].key)

    def settle(self, seq: int) -> None:
        """Note that the event is done; the next one of its key may go after `stored`."""
        self._acks.settle(seq)
        key = self._subjects.pop(seq).key
        self._unstored.add(key)
        self._blocked.discard(key)
        waiting = self._waiting[key]
        waiting.popleft()
        if waiting:
            return
        del self._waiting[key]
        if key in self._first_beyond:
            self._looked_at = min(self._looked_at, self._first_beyond.pop(key) - 1)

    def stored(self) -> None:
        """Note that all that was settled is durable."""
        for key in self._unstored & self._waiting.keys():
            heapq.heappush(self._ready, self._waiting[key][0])
        self._unstored.clear()

    def _is_new(self, seq: int) -> bool:
        return seq not in self._acks and seq not in self._subjects and seq not in self._held_back

    def _settle_gap(self, seq: int) -> None:
        """Settle the numbers before an entry that the journal does not have, or no longer has."""
        if self._looked_at <= self._acks.cursor < seq - 1:
            self._acks.jump(seq - 1)
        for missing in range(max(self._looked_at, self._acks.cursor) + 1, seq):
            self._acks.settle(missing)

    def _queue(self, seq: int, subject: Subject) -> None:
        waiting = self._waiting.setdefault(subject.key, deque())
        if not waiting and subject.key not in self._unstored:
            heapq.heappush(self._ready, seq)
        waiting.append(seq)
        self._subjects[seq] = subject
