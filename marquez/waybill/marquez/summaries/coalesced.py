"""Which entries of the journal were coalesced: bits in pages, a row of the projection's state for each.

They are kept for as long as the journal holds the entries, and swept without a list of them all: rows are in
`SHARES` shares, and one that is new sweeps those of its share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from waybill.marquez.acks import PAGE_ENTRIES

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

MARKS_PREFIX: Final = "coalesced:"
SHARES: Final = 256


class CoalescedEntries:
    """The coalesced entries of one backend.

    Args:
        journal: where the entries are.
        projection: whose state holds the rows.
    """

    def __init__(self, journal: Journal, projection: str) -> None:
        self._journal = journal
        self._projection = projection
        self._pages: dict[int, bytearray] = {}
        self._new: set[int] = set()
        self._touched: set[int] = set()

    def __contains__(self, seq: int) -> bool:
        """Whether an entry was coalesced."""
        number, place = divmod(seq, PAGE_ENTRIES)
        return bool(self._page(number)[place >> 3] >> (place & 7) & 1)

    def add(self, seq: int) -> None:
        """Note that an entry was coalesced."""
        number, place = divmod(seq, PAGE_ENTRIES)
        self._page(number)[place >> 3] |= 1 << (place & 7)
        self._touched.add(number)

    def take_changes(self) -> tuple[dict[str, bytes], list[str]]:
        """The rows to write and the keys to delete since the last call."""
        put = {_key(number): bytes(self._pages[number]) for number in self._touched}
        gone = [key for number in self._touched & self._new for key in self._stale(number)]
        self._new -= self._touched
        self._touched.clear()
        return put, gone

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            row = self._journal.state_get(self._projection, _key(number))
            if row is None:
                self._new.add(number)
            # Entries come in the order of the journal: only what is not stored has to stay in memory.
            self._pages = {one: self._pages[one] for one in self._touched}
            self._new &= self._touched | {number}
            page = self._pages[number] = bytearray(row or bytes(PAGE_ENTRIES // 8))
        return page

    def _stale(self, number: int) -> list[str]:
        return stale_rows(self._journal, self._projection, f"{MARKS_PREFIX}{share_of(number)}:", PAGE_ENTRIES)


def share_of(number: int) -> int:
    """The share of a row with a number."""
    return number % SHARES


def stale_rows(journal: Journal, projection: str, prefix: str, entries: int = 1) -> list[str]:
    """The rows of a share that tell only of entries which have left the journal.

    Args:
        journal: where the entries are.
        projection: whose state holds the rows.
        prefix: the share's; a row's number follows it.
        entries: of how many entries a row tells.
    """
    first = journal.first()
    rows = journal.state(projection, prefix)
    return [
        key
        for key in rows
        if first is not None and (int(key.removeprefix(prefix)) + 1) * entries <= first.seq
    ]


def _key(number: int) -> str:
    return f"{MARKS_PREFIX}{share_of(number)}:{number}"
