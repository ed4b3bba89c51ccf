"""How each run stands at the backend: which terminal event it has, or that it has none yet.

Marquez takes the event that came last for the state of a run: a START or RUNNING that goes out after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that never goes out. So each terminal event
that was delivered is noted, and otherwise that something was, in one row of the projection's state for each
run, for as long as the journal holds the event. A terminal event that Waybill inferred is noted as such: the
run's own takes its place, whichever of them came first.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waybill.marquez.state_batch import StateBatch
    from waybill.transport.journal import Journal

_PREFIX: Final = "end:"
_OPEN: Final = b"~"
_INFERRED: Final = b"?"
_DIGEST_BYTES: Final = 12


class End(NamedTuple):
    """A terminal event that was delivered; of two of them the greater one counts."""

    is_own: bool
    """Whether the run itself said it; else Waybill inferred it."""
    seq: int


class RunStates:
    """The runs that the backend was told of."""

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection

    def end_of(self, run: str) -> End | None:
        """The terminal event of a run that the backend is to have last."""
        row = self._journal.state_get(self._projection, _row_key(run))
        if row is None or row.startswith(_OPEN):
            return None
        return End(not row.startswith(_INFERRED), int(row.removeprefix(_INFERRED)))

    def open_of(self, runs: Iterable[str]) -> frozenset[str]:
        """Those runs of the given ones that the backend was told of, but not of an end of their own."""
        run_of = {_row_key(run): run for run in runs}
        rows = self._journal.state_of(self._projection, run_of)
        return frozenset(run_of[key] for key, row in rows.items() if row.startswith((_OPEN, _INFERRED)))


def note_open(batch: StateBatch, run: str, seq: int) -> None:
    """Note that an event of a run was delivered that is not its end."""
    batch.put(_row_key(run), _OPEN + str(seq).encode(), seq=seq)


def note_end(batch: StateBatch, run: str, end: End) -> None:
    """Note that a terminal event of a run was delivered."""
    batch.put(_row_key(run), (b"" if end.is_own else _INFERRED) + str(end.seq).encode(), seq=end.seq)


def _row_key(run: str) -> str:
    return _PREFIX + blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
