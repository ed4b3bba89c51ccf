"""How each run stands at the backend: which terminal event it has, or that it has none yet.

Marquez takes the event that came last for the state of a run: a START or RUNNING that goes out after the
COMPLETE leaves a finished run RUNNING, and so does a COMPLETE that never goes out. So each terminal event
that was delivered is noted, and else that something was, one row of the projection's state for each run, for
as long as the journal holds the event.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waybill.transport.journal import Journal

ENDING_PREFIX: Final = "end:"

_OPEN: Final = b"~"
_DIGEST_BYTES: Final = 12
_SHARE_DIGITS: Final = 3
_SWEEPS: Final = "00", "40", "80", "c0"
"""One row in 64 ends like this; noting it sweeps the rows that begin as it does, one in 4096."""


class RunStates:
    """The runs that the backend was told of.

    Args:
        journal: where the events are.
        projection: whose state holds the rows.
    """

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection

    def of(self, key: str) -> int | None:
        """The terminal event of a run that was delivered last, by its place in the journal."""
        row = self._journal.state_get(self._projection, _row_key(key))
        return None if row is None or row.startswith(_OPEN) else int(row)

    def open_of(self, keys: Iterable[str]) -> frozenset[str]:
        """Of some runs those that the backend was told of, and not of their end."""
        row_keys = {_row_key(key): key for key in keys}
        rows = self._journal.state_of(self._projection, row_keys)
        return frozenset(row_keys[row_key] for row_key, row in rows.items() if row.startswith(_OPEN))

    def note_open(self, key: str, seq: int) -> tuple[dict[str, bytes], list[str]]:
        """An event of a run was delivered that has not ended; otherwise as `note`."""
        put, gone = self.note(key, seq)
        return {row_key: _OPEN + row for row_key, row in put.items()}, gone

    def note(self, key: str, seq: int) -> tuple[dict[str, bytes], list[str]]:
        """A run's terminal event was delivered.

        Returns:
            The row to write, and now and then the keys of some that are out of date.
        """
        row_key = _row_key(key)
        return {row_key: str(seq).encode()}, self._stale(row_key) if row_key.endswith(_SWEEPS) else []

    def _stale(self, row_key: str) -> list[str]:
        """The rows beside this one whose event has left the journal."""
        first = self._journal.first()
        rows = self._journal.state(self._projection, row_key[: len(ENDING_PREFIX) + _SHARE_DIGITS])
        return [
            key
            for key, row in rows.items()
            if key != row_key and first is not None and int(row.lstrip(_OPEN)) < first.seq
        ]


def _row_key(key: str) -> str:
    return ENDING_PREFIX + blake2b(key.encode(), digest_size=_DIGEST_BYTES).hexdigest()
