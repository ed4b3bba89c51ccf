"""Dead letters: events that the backend refuses permanently, kept with its response.

They are rows of the projection's state. The event itself is stored beside its letter, because the journal
deletes old entries. Both are bounded and the oldest are deleted first, so that a backend that refuses
everything cannot fill the journal. A deleted letter's event is still in the journal for its retention, and in
the Parquet layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from ..state_batch import StateBatch

OWED_PREFIX: Final = "owed:"
"""Rows that name the entries to send again, by sequence number, and jobs of the graph, by the key of their
row."""

LETTERS_MAX: Final = 10_000
BODIES_MAX_BYTES: Final = 256 * 2**20

_LETTER: Final = "dead:"
_BODY: Final = "body:"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One event that the backend refused permanently.

    Attributes:
        key: what it is about: ``run <id>``, ``job <namespace> <name>`` or ``dataset <namespace> <name>``.
        received_ms: when the journal accepted it, epoch milliseconds.
        set_aside_ms: when it became a dead letter, epoch milliseconds.
        status: the HTTP status of the last response; None if there was none.
        reason: the backend's message, one line of at most 1000 characters.
    """

    backend: str
    seq: int
    key: str
    received_ms: int
    set_aside_ms: int
    tries: int
    status: int | None
    reason: str
    size_bytes: int


def dead_letters(journal: Journal, backend: str = MARQUEZ) -> list[DeadLetter]:
    """The events that a backend refused permanently, in journal order."""
    rows = journal.state(backend, _LETTER).values()
    return sorted((msgspec.json.decode(row, type=DeadLetter) for row in rows), key=lambda letter: letter.seq)


def dead_letter_body(journal: Journal, seq: int, backend: str = MARQUEZ) -> bytes | None:
    """The event of one dead letter as it was accepted; None if there is no such letter."""
    return journal.state_get(backend, f"{_BODY}{seq}")


def retry_dead_letters(journal: Journal, seqs: Iterable[int], backend: str = MARQUEZ) -> None:
    """Send these events again before new ones; an event that the backend accepts is no longer a dead letter.

    The home's runner sends them when it next reads the journal, at the latest with the next flush.
    """
    known = {letter.seq for letter in dead_letters(journal, backend)}
    journal.commit(backend, put={f"{OWED_PREFIX}{seq}": b"" for seq in known.intersection(seqs)})


def drop_dead_letters(journal: Journal, seqs: Iterable[int], backend: str = MARQUEZ) -> None:
    """Forget these dead letters with their events."""
    journal.commit(backend, delete=[key for seq in seqs for key in (*_keys_of(seq), f"{OWED_PREFIX}{seq}")])


def _keys_of(seq: int) -> list[str]:
    return [f"{_LETTER}{seq}", f"{_BODY}{seq}"]


class DeadLetterBox:
    """The dead letters of one backend, within their bounds; `letters` are those already stored."""

    def __init__(
        self,
        letters: list[DeadLetter],
        *,
        letters_max: int = LETTERS_MAX,
        bodies_max_bytes: int = BODIES_MAX_BYTES,
    ) -> None:
        self._size_of = {letter.seq: letter.size_bytes for letter in letters}
        self._size_bytes = sum(self._size_of.values())
        self._letters_max = letters_max
        self._bodies_max_bytes = bodies_max_bytes

    def is_full_for(self, letter: DeadLetter) -> bool:
        """Whether others would have to be deleted for a new letter."""
        size_bytes = self._size_bytes + letter.size_bytes
        return len(self._size_of) >= self._letters_max or size_bytes > self._bodies_max_bytes

    def remove(self, seq: int, batch: StateBatch) -> None:
        """Forget a letter, if it is here."""
        self._size_bytes -= self._size_of.pop(seq, 0)
        batch.delete(*_keys_of(seq))

    def add(self, letter: DeadLetter, body: bytes, batch: StateBatch) -> None:
        """Make an event a dead letter; if the box is full, the oldest letters are deleted."""
        self.remove(letter.seq, batch)
        self._size_of[letter.seq] = letter.size_bytes
        self._size_bytes += letter.size_bytes
        while len(self._size_of) > self._letters_max or self._size_bytes > self._bodies_max_bytes:
            oldest = next(iter(self._size_of))  # the new letter is there
            if oldest == letter.seq:
                break
            self.remove(oldest, batch)
        batch.put(f"{_LETTER}{letter.seq}", msgspec.json.encode(letter))
        batch.put(f"{_BODY}{letter.seq}", body)
