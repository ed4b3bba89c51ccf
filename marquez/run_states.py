"""The state of each run at the backend: its terminal event, or that it has none yet, and its start.

In Marquez the last event to arrive decides the state of a run: a START or RUNNING that is sent after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that is never sent. So one row of the
projection's state per run notes what its delivered events tell, for as long as the journal holds the one that
decides. Of several ends the one that counts for a record is sent last. A second START that happened after the
end begins the run again, so no end is sent after it until another comes; if that is an inferred one, the
run's own is sent after it.

Marquez also takes the start of a run from the last event to arrive that is no end: from each RUNNING, of
which Spark's listener sends up to six. So the row notes the earliest such event, which is sent once more
before the end if others went out after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.facets import SEVERITY, Attempts, Ending, parse_instant_us
from waybill.transport.journal import StateRows

if TYPE_CHECKING:
    from waybill.facets import RunEvent
    from waybill.transport.journal import Journal

_PREFIX: Final = "end:"


class Start(NamedTuple):
    """The delivered event that says when a run began: of those that are no ends, the earliest."""

    time_us: int
    seq: int
    is_shown: bool = True
    """Whether it was the last of them to be delivered, so that Marquez shows the run's true start."""


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """The known delivered events of a run that decide what the backend shows of it.

    Attributes:
        attempts: when it began and ended.
        start: the event that says when it began.
    """

    attempts: Attempts = Attempts()
    start: Start | None = None

    @property
    def end(self) -> Ending | None:
        """The end that the backend has to show; None: the run goes on.

        Of ends that count as much, it is the last that was accepted.
        """
        of, since_us = self.attempts, self.attempts.since_us
        ending = of.ending
        if ending is None or not of.has_ended:
            return None
        is_of_last = ending.time_us >= since_us
        return max(
            (
                one
                for one in of.endings
                if one.kind == ending.kind and (one.time_us >= since_us) is is_of_last
            ),
            key=lambda one: one.seq,
        )

    def take(self, event: RunEvent, seq: int) -> RunState:
        """The state after one more event was delivered."""
        time_us, start = parse_instant_us(event.eventTime), self.start
        if event.eventType in SEVERITY:
            start = start and start._replace(is_shown=True)
        elif start is None or time_us <= start.time_us:
            start = Start(time_us, seq)
        else:
            start = start._replace(is_shown=False)
        return RunState(self.attempts.merge(Attempts.of(event, time_us, seq=seq)), start)


def run_states(journal: Journal, projection: str) -> StateRows[RunState]:
    """The runs that a backend knows, by the key of each."""
    return StateRows(journal, projection, _PREFIX, RunState)
