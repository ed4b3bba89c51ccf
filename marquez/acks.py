"""The journal entries that a backend has answered: all up to a cursor, and some beyond it.

Both are stored together, so that a restart repeats no event whose answer was seen. Entries beyond the cursor
are bits in pages of `PAGE_ENTRIES`; each page with any set is one row of the projection's state, so that an
answer costs one row of half a KiB however far beyond the cursor it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .state_batch import StateBatch

PAGE_ENTRIES: Final = 4096
ROW_PREFIX: Final = "done:"

_PAGE_BYTES: Final = PAGE_ENTRIES // 8
_FULL: Final = bytearray(b"\xff" * _PAGE_BYTES)


class Acks:
    """The processed entries: all up to `cursor`, and those in the `rows` that `save` stored."""

    def __init__(self, cursor: int, rows: Mapping[str, bytes]) -> None:
        self.cursor = cursor
        self._pages = {int(key.removeprefix(ROW_PREFIX)): bytearray(value) for key, value in rows.items()}
        self._stored = set(self._pages)
        self._changed: set[int] = set()
        self.above = 0
        """How many entries beyond the cursor are processed."""
        self.jump(cursor)

    def __contains__(self, seq: int) -> bool:
        return seq <= self.cursor or self._is_set(seq)

    def settle(self, seq: int) -> None:
        """Note that an entry is processed; the cursor moves over all that follow it without a gap."""
        if seq in self:
            return
        number, place = divmod(seq, PAGE_ENTRIES)
        self._pages.setdefault(number, bytearray(_PAGE_BYTES))[place >> 3] |= 1 << (place & 7)
        self._changed.add(number)
        self.above += 1
        self._advance()

    def jump(self, cursor: int) -> None:
        """Move the cursor over entries that are processed or that the journal does not have."""
        self.cursor = cursor
        for number in [number for number in self._pages if number < cursor // PAGE_ENTRIES]:
            del self._pages[number]
        self.above = sum(self._bits_above_cursor(number).bit_count() for number in self._pages)
        self._advance()

    def next_open(self, seq: int) -> int:
        """The first entry from `seq` on that is not processed."""
        seq = max(seq, self.cursor + 1)
        while seq in self:
            is_full = seq % PAGE_ENTRIES == 0 and self._pages.get(seq // PAGE_ENTRIES) == _FULL
            seq += PAGE_ENTRIES if is_full else 1
        return seq

    def save(self, batch: StateBatch) -> None:
        """Add the changes since the last call to a batch."""
        needed = set(self._pages)
        if (first := self.cursor // PAGE_ENTRIES) in needed and not self._bits_above_cursor(first):
            needed.remove(first)
        for number in needed & self._changed:
            batch.put(f"{ROW_PREFIX}{number}", bytes(self._pages[number]))
        batch.delete(*(f"{ROW_PREFIX}{number}" for number in self._stored - needed))
        self._stored = needed
        self._changed.clear()

    def _advance(self) -> None:
        before = self.cursor // PAGE_ENTRIES
        while self.above and self._is_set(self.cursor + 1):
            self.cursor += 1
            self.above -= 1
        for number in range(before, self.cursor // PAGE_ENTRIES):
            self._pages.pop(number, None)

    def _is_set(self, seq: int) -> bool:
        page = self._pages.get(seq // PAGE_ENTRIES)
        return page is not None and bool(page[seq % PAGE_ENTRIES >> 3] >> (seq & 7) & 1)

    def _bits_above_cursor(self, number: int) -> int:
        bits = int.from_bytes(self._pages[number], "little")
        return bits >> max(0, self.cursor + 1 - number * PAGE_ENTRIES)
