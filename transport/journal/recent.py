"""Entries that were read lately: the projections that follow a journal share them, decoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .entry import Entry


def size_of(entries: Iterable[Entry]) -> int:
    """The size of the bodies of entries together, in bytes."""
    return sum([len(entry.body) for entry in entries])


class RecentEntries:
    """The entries that were added last, up to a total size of their bodies; any number of threads may use it.

    What is decoded of an entry takes several times as much memory as its body.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries that are as they were accepted; damaged ones are left out."""
        with self._lock:
            for entry in entries:
                if entry.damage is None and entry.seq not in self._entries:
                    self._entries[entry.seq] = entry
                    self._size_bytes += len(entry.body)
            while self._size_bytes > self._max_bytes:
                self._size_bytes -= len(self._entries.popitem(last=False)[1].body)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._entries.clear()
            self._size_bytes = 0

    def get(self, seq: int) -> Entry | None:
        """One entry, if it is still here."""
        return self._entries.get(seq)

    def after(self, seq: int, limit: int, max_bytes: int) -> list[Entry]:
        """The entries that follow an entry without a gap, as many as the limits allow."""
        entries: list[Entry] = []
        size_bytes = 0
        while len(entries) < limit and (entry := self._entries.get(seq + 1)) is not None:
            size_bytes += len(entry.body)
            if entries and size_bytes > max_bytes:
                break
            entries.append(entry)
            seq += 1
        return entries
