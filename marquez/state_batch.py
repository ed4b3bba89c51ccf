"""The changes of a projection's state until the next commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.transport.journal import Journal


class StateBatch:
    """Collects changes of the state and commits them with the cursor, in one transaction.

    A change that could not be committed stays for the next commit.
    """

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection
        self._cursor = journal.cursor(projection)
        self._put: dict[str, bytes] = {}
        self._seqs: dict[str, int] = {}
        self._delete: set[str] = set()

    def put(self, key: str, value: bytes, *, seq: int | None = None) -> None:
        """Write a row; one that is tied to an entry is removed when the journal prunes that entry."""
        self._put[key] = value
        self._seqs.pop(key, None)
        self._delete.discard(key)
        if seq is not None:
            self._seqs[key] = seq

    def delete(self, *keys: str) -> None:
        """Remove rows, if they exist."""
        for key in keys:
            self._put.pop(key, None)
            self._seqs.pop(key, None)
            self._delete.add(key)

    def commit(self, cursor: int) -> None:
        """Store the changes and the cursor, where anything has changed."""
        if self._put or self._delete or cursor != self._cursor:
            put, delete, seqs = self._put, self._delete, self._seqs
            self._journal.commit(
                self._projection, cursor=cursor, put=put, delete=delete, seqs=seqs, durable=False
            )
            self._cursor = cursor
            self._put, self._seqs, self._delete = {}, {}, set()
