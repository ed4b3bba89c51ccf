"""An index that stays open between the questions of a process that is asked often."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .reading import IndexReader

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

_TAIL_ENTRIES_MAX: Final = 200_000
"""With more in memory, a reader is closed after its question."""


class KeptIndex:
    """Gives each question a reader, of which one stays open, so that the next reads only what is new.

    Args:
        journal: the journal of the home.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._idle: IndexReader | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def open(self) -> Iterator[IndexReader]:
        """A reader that answers as of now, for one thread; raises what `IndexReader.open` does."""
        reader = self._renewed() or IndexReader.open(self._journal.home, self._journal)
        try:
            yield reader
            reader.rest()
        except BaseException:
            reader.close()
            raise
        self._keep(reader)

    def close(self) -> None:
        """Close the reader that stays open."""
        with self._lock:
            reader, self._idle = self._idle, None
        if reader is not None:
            reader.close()

    def _renewed(self) -> IndexReader | None:
        with self._lock:
            reader, self._idle = self._idle, None
        if reader is None:
            return None
        try:
            if reader.renew(self._journal):
                return reader
        except BaseException:
            reader.close()
            raise
        reader.close()
        return None

    def _keep(self, reader: IndexReader) -> None:
        with self._lock:
            if self._idle is None and reader.tail_entries <= _TAIL_ENTRIES_MAX:
                self._idle = reader
                return
        reader.close()
