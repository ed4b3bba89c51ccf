"""How each run stands at the backend: which terminal event it has, or that it has none yet.

Marquez takes the event that came last for the state of a run: a START or RUNNING that goes out after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that never goes out. So each terminal event
that was delivered is noted, and otherwise that something was, in one row of the projection's state for each
run, for as long as the journal holds the event.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waybill.marquez.state_batch import StateBatch
    from waybill.transport.journal import Journal

_PREFIX: Final = "end:"
_OPEN: Final = b"~"
_DIGEST_BYTES: Final = 12


class RunStates:
    """The runs that the backend was told of."""

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection

    def end_of(self, run: str) -> int | None:
        """The terminal event of a run that was delivered last, by its sequence number."""
        row = self._journal.state_get(self._projection, _row_key(run))
        return None if row is None or row.startswith(_OPEN) else int(row)

    def open_of(self, runs: Iterable[str]) -> frozenset[str]:
        """Those runs of the given ones that the backend was told of, but not of their end."""
        run_of = {_row_key(run): run for run in runs}
        rows = self._journal.state_of(self._projection, run_of)
        return frozenset(run_of[key] for key, row in rows.items() if row.startswith(_OPEN))


def note_run(batch: StateBatch, run: str, seq: int, *, has_ended: bool) -> None:
    """Note that an event of a run was delivered: its terminal event, or one before that."""
    batch.put(_row_key(run), (b"" if has_ended else _OPEN) + str(seq).encode(), seq=seq)


def _row_key(run: str) -> str:
    return _PREFIX + blake2b(run.encode(), digest_size=_DIGEST_BYTES).hexdigest()
