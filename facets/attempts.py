"""When a run began and ended, and whether it goes on: one rule for all who ask which runs are open."""

from __future__ import annotations

from typing import NamedTuple

from .event import SEVERITY, EventType


class Attempts(NamedTuple):
    """The times that the events of a run tell, in epoch microseconds; 0: no such event was seen.

    One START and one end are those of a run that has ended, whichever of them came first, and whatever their
    clocks say: two threads may have timed them. A run is begun again by another START after its last end.

    These times say whether a run is open, but not which of its ends counts: an inferred end closes a run that
    was begun again, and replaces no end that the run has stated, of whichever attempt. So two STARTs of two
    threads, with the end between them, cost no stated end; see `RunState.ending`.
    """

    first_us: int = 0
    """Its first START; the next one is the last."""
    last_us: int = 0
    ended_us: int = 0
    """Its last end."""

    @property
    def since_us(self) -> int:
        """Since when an end is one of its last attempt; 0: it has had only one."""
        return self.last_us if 0 < self.first_us < self.last_us else 0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and was not begun again."""
        return self.ended_us > 0 and self.ended_us >= self.since_us

    def take(self, kind: EventType, at_us: int) -> Attempts:
        """Take one more event."""
        begun_us, ended_us = at_us * (kind is EventType.START), at_us * (kind in SEVERITY)
        return self.merge(Attempts(begun_us, begun_us, ended_us))

    def merge(self, other: Attempts) -> Attempts:
        """What both tell."""
        first_us = min(self.first_us or other.first_us, other.first_us or self.first_us)
        return Attempts(first_us, max(self.last_us, other.last_us), max(self.ended_us, other.ended_us))
