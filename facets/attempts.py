"""When a run began and ended, whether it goes on, and which end counts: one rule for all who ask.

Of the ends of an attempt the run's own count before those that Waybill inferred, then a failure before an
abort before a success, whichever came first: Spark's listener sends COMPLETE after FAIL. Of equal ones the
first counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from .event import SEVERITY, EventType

if TYPE_CHECKING:
    from .event import RunEvent

REASON_CHARS_MAX: Final = 200

_Kinded = TypeVar("_Kinded", bound="Kinded")


class Kinded(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Something that a run's events tell, of which the first and the last of each kind are kept."""

    @property
    def kind(self) -> object:
        """Its kind."""
        raise NotImplementedError  # each subclass says its own


class Ending(Kinded, frozen=True, order=True, array_like=True, gc=False):
    """A terminal event; the least of an attempt's endings of its own, or else of all, is its deciding event.

    Attributes:
        severity: as `SEVERITY` has it.
        name: that of its job, for those who make a record; else empty.
        inferred: why Waybill inferred it; empty: it is the run's own.
        seq: its number, for those who send it again; else 0.
    """

    severity: int
    time_us: int
    name: str = ""
    inferred: str = ""
    seq: int = 0

    @property
    def kind(self) -> tuple[bool, int]:
        """How much it counts: of two the lesser counts for more."""
        return bool(self.inferred), self.severity


class Attempts(msgspec.Struct, frozen=True, array_like=True):
    """When a run began and ended, as any set of its events tells it, in epoch microseconds; 0: not seen.

    One START and one end are those of a run that has ended, whichever of them came first, and whatever their
    clocks say: two threads may have timed them. A run is begun again by another START after its last end.

    An inferred end closes a run that was begun again, and replaces no end that the run has stated, of
    whichever attempt. So two STARTs of two threads, with the end between them, cost no stated end.

    Attributes:
        first_us: its first START; the next one is the last.
        endings: of each kind of terminal event the first and the last, sorted.
    """

    first_us: int = 0
    last_us: int = 0
    endings: tuple[Ending, ...] = ()

    @classmethod
    def of(cls, event: RunEvent, at_us: int, *, name: str = "", seq: int = 0) -> Attempts:
        """What one event of this time tells; its end has the name and the number."""
        begun_us = at_us if event.eventType is EventType.START else 0
        severity = SEVERITY.get(event.eventType)
        if severity is None:
            return cls(begun_us, begun_us)
        return cls(0, 0, (Ending(severity, at_us, name, inferred_reason(event), seq),))

    @property
    def since_us(self) -> int:
        """Since when an end is one of its last attempt; 0: it has had only one."""
        return self.last_us if 0 < self.first_us < self.last_us else 0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and was not begun again."""
        return any(ending.time_us >= self.since_us for ending in self.endings)

    @property
    def ending(self) -> Ending | None:
        """The terminal event that decides its record: of its last attempt that has ended.

        Those that it has stated count, whichever attempt they are of; only without any, the inferred ones.
        """
        endings = [ending for ending in self.endings if not ending.inferred] or self.endings
        if since := [ending for ending in endings if ending.time_us >= self.since_us]:
            return min(since)
        return max(endings, key=lambda ending: (ending.time_us, ending), default=None)

    def merge(self, other: Attempts) -> Attempts:
        """What both tell: commutative, associative and idempotent."""
        first_us = min(self.first_us or other.first_us, other.first_us or self.first_us)
        endings = outermost([self.endings, other.endings])
        return Attempts(first_us, max(self.last_us, other.last_us), endings)


def inferred_reason(event: RunEvent) -> str:
    """Return why Waybill inferred the event; empty if it is the run's own."""
    facets = event.run.facets
    if facets is None or facets.inferred is None:
        return ""
    return facets.inferred.reason[:REASON_CHARS_MAX] or "no reason is given"


def outermost(many: Sequence[tuple[_Kinded, ...]]) -> tuple[_Kinded, ...]:
    """Of each kind, the first and the last."""
    filled = [one for one in many if one]
    if not filled or all(one == filled[0] for one in filled):
        return filled[0] if filled else ()
    by_kind: defaultdict[object, list[_Kinded]] = defaultdict(list)
    for seen in chain.from_iterable(filled):
        by_kind[seen.kind].append(seen)
    return tuple(sorted({pick(kind) for kind in by_kind.values() for pick in (min, max)}))
