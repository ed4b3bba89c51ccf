"""Who came directly from whom, of everything that a home has accepted, in the index yet or not."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from waybill.transport.journal import Journal

from .index import CorrelationIndex, place_in_journal
from .sightings import sightings_in

if TYPE_CHECKING:
    from types import TracebackType

    from .sightings import Sighting

_READ_AT_ONCE: Final = 5_000

_Edges = defaultdict[str, set[str]]


def sightings_after(journal: Journal, node: str, seq: int) -> Iterator[Sighting]:
    """What a journal has accepted since the place of an index.

    Raises:
        JournalError: the journal cannot be read.
    """
    after = place_in_journal(journal, node, seq)
    while entries := journal.read(after, limit=_READ_AT_ONCE):
        after = entries[-1].seq
        yield from sightings_in(entries, system_name="")


class Relations:
    """The parents and children of files; made by `open`, and to be closed."""

    def __init__(self, index: CorrelationIndex, above: _Edges, below: _Edges) -> None:
        self._index = index
        self._above = above
        self._below = below

    @classmethod
    def open(cls, home: Path) -> Self | None:
        """Open the index of a home, with what the journal has accepted since; None if there is no index.

        Raises:
            JournalError: the journal cannot be read.
        """
        index = CorrelationIndex.open(home)
        if index is None or not Journal.exists(home):
            return None
        above: _Edges = defaultdict(set)
        below: _Edges = defaultdict(set)
        with contextlib.closing(Journal(home)) as journal:
            for seen in sightings_after(journal, *index.place):
                for parent in seen.parents:
                    above[seen.did].add(parent)
                    below[parent].add(seen.did)
        return cls(index, above, below)

    def close(self) -> None:
        """Release the index."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def parents_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that each file came from directly, sorted; without files that came from none."""
        return _with(self._index.parents_of, self._above, list(dids))

    def children_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that came directly from each file, sorted; without files that none came from."""
        return _with(self._index.children_of, self._below, list(dids))


def _with(
    ask: Callable[[Iterable[str]], dict[str, tuple[str, ...]]], newer: _Edges, dids: list[str]
) -> dict[str, tuple[str, ...]]:
    found = ask(dids)
    for did in dids:
        if newer.get(did):
            found[did] = tuple(sorted(newer[did].union(found.get(did, ()))))
    return found
