"""The state of each run at the backend: its terminal event, or that it has none yet.

In Marquez the last event to arrive decides the state of a run: a START or RUNNING that is sent after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that is never sent. So one row of the
projection's state per run notes its delivered terminal event, or that some other event was delivered, for as
long as the journal holds the event. Of several ends the one that decides the record is sent last, because
Spark's listener may send COMPLETE after FAIL. An inferred terminal event is noted as such: the run's own
replaces it, whichever of them came first.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.facets import SEVERITY

from ..subject import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waybill.transport.journal import Journal

    from ..state_batch import StateBatch

_PREFIX: Final = "end:"
_OPEN: Final = b"~"
_INFERRED: Final = b"?"
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

    @classmethod
    def of(cls, subject: Subject, seq: int) -> End | None:
        """The end that an event is; None if it is none."""
        if subject.severity is None:
            return None
        return cls(not subject.inferred, _LEAST - subject.severity, seq)

    def subject(self, run: str) -> Subject:
        """What it is about."""
        return Subject(run, is_run=True, severity=_LEAST - self.weight, inferred=not self.is_own)


class RunStates:
    """The runs that the backend knows."""

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection

    def end_of(self, run: str) -> End | None:
        """The terminal event of a run that must reach the backend last."""
        row = self._journal.state_get(self._projection, _row_key(run))
        if row is None or row.startswith(_OPEN):
            return None
        seq, _, weight = row.removeprefix(_INFERRED).partition(b":")
        return End(not row.startswith(_INFERRED), int(weight or 0), int(seq))

    def open_of(self, runs: Iterable[str]) -> frozenset[str]:
        """The given runs that the backend knows, but without an end of their own."""
        run_of = {_row_key(run): run for run in runs}
        rows = self._journal.state_of(self._projection, run_of)
        return frozenset(run_of[key] for key, row in rows.items() if row.startswith((_OPEN, _INFERRED)))


def note_open(batch: StateBatch, run: str, seq: int) -> None:
    """Note the delivery of an event of a run that is not its end."""
    batch.put(_row_key(run), _OPEN + str(seq).encode(), seq=seq)


def note_end(batch: StateBatch, run: str, end: End) -> None:
    """Note the delivery of a terminal event of a run."""
    text = f"{end.seq}:{end.weight}" if end.weight else f"{end.seq}"
    batch.put(_row_key(run), (b"" if end.is_own else _INFERRED) + text.encode(), seq=end.seq)


def _row_key(run: str) -> str:
    return _PREFIX + blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
