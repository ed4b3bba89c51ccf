"""The state of each run at the backend: its terminal event, or that it has none yet, and its start.

In Marquez the last event to arrive decides the state of a run: a START or RUNNING that is sent after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that is never sent. So one row of the
projection's state per run notes its delivered terminal event, or that some other event was delivered, for as
long as the journal holds the event. Of several ends the one that decides the record is sent last, because
Spark's listener may send COMPLETE after FAIL. An inferred terminal event is noted as such: the run's own
replaces it, whichever of them came first. A second START that happened after the end begins the run again, so
no end is sent after it until another comes; if that is an inferred one, the run's own is sent after it.

Marquez also takes the start of a run from the last event to arrive that is no end: from each RUNNING, of
which Spark's listener sends up to six. So the row notes the earliest such event, which is sent once more
before the end if others went out after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import SEVERITY

from ..subject import Subject

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from ..state_batch import StateBatch

_PREFIX: Final = "end:"
_OPEN: Final = b"~"
_INFERRED: Final = b"?"
_STARTED: Final = b"@"
_MOVED: Final = b"!"
_DIGEST_BYTES: Final = 12
_LEAST: Final = max(SEVERITY.values())


class End(NamedTuple):
    """A terminal event that was delivered; of two of them the greater one counts.

    As for a record, a failure counts for more than a success, whichever of them came first.
    """

    is_own: bool
    """Whether it is the run's own; otherwise Waybill inferred it."""
    weight: int
    """0 for COMPLETE, more for an end that takes precedence."""
    seq: int
    time_us: int

    @classmethod
    def of(cls, subject: Subject, seq: int, time_us: int) -> End | None:
        """The end that an event is; None if it is none."""
        if subject.severity is None:
            return None
        return cls(not subject.inferred, _LEAST - subject.severity, seq, time_us)

    def subject(self, run: str) -> Subject:
        """What it is about."""
        return Subject(run, is_run=True, severity=_LEAST - self.weight, inferred=not self.is_own)


class Start(NamedTuple):
    """The delivered event that says when a run began: of those that are no ends, the earliest."""

    time_us: int
    seq: int
    is_shown: bool = True
    """Whether it was the last of them to be delivered, so that Marquez shows the run's true start."""


class RunState(NamedTuple):
    """The known delivered events of a run that decide what the backend shows of it.

    Attributes:
        end: its end; if it was begun again, that of an earlier attempt.
        start: the event that says when it began.
        first_us: its first START, in epoch microseconds; 0: none was delivered.
        is_open: whether it has not ended, or was begun again.
    """

    end: End | None = None
    start: Start | None = None
    first_us: int = 0
    is_open: bool = True


class RunStates:
    """The runs that the backend knows."""

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection

    def of(self, run: str) -> RunState:
        """What was delivered of a run."""
        row = self._journal.state_get(self._projection, _row_key(run))
        if row is None:
            return RunState()
        ended, _, started = row.partition(_STARTED)
        start, first_us = None, 0
        if started:
            seq, time_us, first = started.removesuffix(_MOVED).split(b":")
            start, first_us = Start(int(time_us), int(seq), is_shown=not started.endswith(_MOVED)), int(first)
        is_open, ended = ended.startswith(_OPEN), ended.removeprefix(_OPEN)
        if not ended:
            return RunState(None, start, first_us)
        seq, weight, time_us = ended.removeprefix(_INFERRED).split(b":")
        end = End(not ended.startswith(_INFERRED), int(weight), int(seq), int(time_us))
        return RunState(end, start, first_us, is_open)

    def open_of(self, runs: Iterable[str]) -> frozenset[str]:
        """The given runs that the backend knows, but without an end of their own."""
        run_of = {_row_key(run): run for run in runs}
        rows = self._journal.state_of(self._projection, run_of)
        return frozenset(run_of[key] for key, row in rows.items() if row.startswith((_OPEN, _INFERRED)))


def note_run(batch: StateBatch, run: str, state: RunState, seq: int) -> None:
    """Note what was delivered of a run, lastly an entry; the row goes with the end, or with that entry."""
    end, start, first_us, is_open = state
    row = _OPEN if is_open else b""
    if end is not None:
        text = b"%d:%d:%d" % (end.seq, end.weight, end.time_us)
        row += text if end.is_own else _INFERRED + text
    if start is not None:
        row += (
            _STARTED
            + b"%d:%d:%d" % (start.seq, start.time_us, first_us)
            + (b"" if start.is_shown else _MOVED)
        )
    batch.put(_row_key(run), row, seq=end.seq if end is not None else seq)


def _row_key(run: str) -> str:
    return _PREFIX + blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
