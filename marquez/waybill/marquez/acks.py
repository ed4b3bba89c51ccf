"""Which entries of the journal are dealt with: a low-water mark, and those above it.

What it says is stored with the cursor, so that a restart repeats no event whose answer was seen. Entries
above the mark are bits in pages of `PAGE_ENTRIES`; each page that has some is one row of the projection's
state, so that an answer costs one row of half a KiB however far the marks reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE_ENTRIES: Final = 4096
ROW_PREFIX: Final = "done:"

_PAGE_BYTES: Final = PAGE_ENTRIES // 8
_FULL: Final = bytearray(b"\xff" * _PAGE_BYTES)


class Acks:
    """The entries that need no more work.

    Args:
        cursor: the low-water mark: every entry up to it is dealt with.
        rows: what `take_changes` gave, by key.
    """

    def __init__(self, cursor: int, rows: Mapping[str, bytes]) -> None:
        self.cursor = cursor
        self._pages = {int(key.removeprefix(ROW_PREFIX)): bytearray(value) for key, value in rows.items()}
        self._stored = set(self._pages)
        self._touched: set[int] = set()
        self.above = 0
        """How many entries above the cursor are dealt with."""
        self.jump(cursor)

    def __contains__(self, seq: int) -> bool:
        """Whether an entry is dealt with."""
        return seq <= self.cursor or self._is_marked(seq)

    def settle(self, seq: int) -> None:
        """Note that an entry is dealt with; the cursor moves over all that follow it without a gap."""
        if seq in self:
            return
        number, place = divmod(seq, PAGE_ENTRIES)
        self._pages.setdefault(number, bytearray(_PAGE_BYTES))[place >> 3] |= 1 << (place & 7)
        self._touched.add(number)
        self.above += 1
        self._advance()

    def jump(self, cursor: int) -> None:
        """Move the cursor: every entry up to there is dealt with, or the journal never had it."""
        self.cursor = cursor
        for number in [number for number in self._pages if number < cursor // PAGE_ENTRIES]:
            del self._pages[number]
        self.above = sum(self._bits_above_cursor(number).bit_count() for number in self._pages)
        self._advance()

    def next_open(self, seq: int) -> int:
        """The first entry from `seq` on that is not dealt with."""
        seq = max(seq, self.cursor + 1)
        while seq in self:
            is_full = seq % PAGE_ENTRIES == 0 and self._pages.get(seq // PAGE_ENTRIES) == _FULL
            seq += PAGE_ENTRIES if is_full else 1
        return seq

    def take_changes(self) -> tuple[dict[str, bytes], list[str]]:
        """The rows to write and the keys to delete since the last call."""
        needed = {number for number in self._touched & self._pages.keys() if self._bits_above_cursor(number)}
        gone = {
            number for number in self._stored if number in self._touched or number not in self._pages
        } - needed
        self._stored = (self._stored | needed) - gone
        self._touched.clear()
        put = {f"{ROW_PREFIX}{number}": bytes(self._pages[number]) for number in needed}
        return put, [f"{ROW_PREFIX}{number}" for number in gone]

    def _advance(self) -> None:
        before = self.cursor // PAGE_ENTRIES
        while self.above and self._is_marked(self.cursor + 1):
            self.cursor += 1
            self.above -= 1
        for number in range(before, self.cursor // PAGE_ENTRIES):
            self._pages.pop(number, None)

    def _is_marked(self, seq: int) -> bool:
        page = self._pages.get(seq // PAGE_ENTRIES)
        return page is not None and bool(page[seq % PAGE_ENTRIES >> 3] >> (seq & 7) & 1)

    def _bits_above_cursor(self, number: int) -> int:
        bits = int.from_bytes(self._pages[number], "little")
        return bits >> max(0, self.cursor + 1 - number * PAGE_ENTRIES)
