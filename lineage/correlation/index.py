"""The correlation index of a home, to read: who came from whom."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

import apsw

from waybill.transport.known_contents import open_index

from . import sql

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

CORRELATION: Final = "correlation"
"""The name of the projection that keeps the index, in the journal."""

Kin = tuple[str, int]
"""A did, and how many generations away it is, by the shortest way; 0: the file itself."""


def place_in(connection: apsw.Connection) -> tuple[str, int]:
    """The node of the last entry that an index has, and its number; empty and 0 before the first."""
    return cast("tuple[str, int]", connection.execute(sql.PLACE).fetchone() or ("", 0))


def place_in_journal(journal: Journal, node: str, seq: int) -> int:
    """The last entry of a journal that an index with this place has.

    The journal may be an earlier copy of the one that the index is of, or another one.
    """
    nodes = journal.nodes()
    ends = [later.after for later in nodes[1:]] + [journal.last_seq()]
    return next((min(seq, end) for one, end in zip(nodes, ends, strict=True) if one.name == node), 0)


class CorrelationIndex:
    """Answers who came from whom; made by `open`. Every answer is as of the entries up to `place`.

    Each method raises `apsw.Error` if the database is damaged or cannot be read.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, home: Path) -> Self | None:
        """Open the index of a home; None if it has none of this format."""
        try:
            connection = open_index(home)
            if connection is None:
                return None
            number = connection.pragma("user_version")
        except (apsw.CantOpenError, apsw.NotADBError, apsw.CorruptError):
            return None
        if number != sql.FORMAT:
            connection.close()
            return None
        return cls(connection)

    def close(self) -> None:
        """Release the database."""
        self._connection.close()

    @property
    def place(self) -> tuple[str, int]:
        """See `place_in`."""
        return place_in(self._connection)

    def ancestors(self, did: str) -> list[Kin]:
        """All files that a file came from, the farthest first, and last itself; empty if it is not known."""
        with self._connection:
            number = self._number_of(did)
            if number is None:
                found: Iterable[Kin] = ()
            elif self._is_deep(number):
                found = list(self._follow(number, sql.EDGES_UP))[::-1]
            else:
                found = self._kin(sql.ANCESTORS, number)
        return [] if number is None else [*found, (did, 0)]

    def descendants(self, did: str) -> list[Kin]:
        """A file itself, and all files that came from it, the nearest first; empty if it is not known."""
        with self._connection:
            number = self._number_of(did)
            if number is None:
                found: Iterable[Kin] = ()
            elif self._has_deep():
                found = list(self._follow(number, sql.EDGES_DOWN))
            else:
                found = self._kin(sql.DESCENDANTS, number)
        return [] if number is None else [(did, 0), *found]

    def parents_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that each file came from directly, sorted; without files that came from none."""
        return self._grouped(sql.PARENTS, dids)

    def children_of(self, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The files that came directly from each file, sorted; without files that none came from."""
        return self._grouped(sql.CHILDREN, dids)

    def with_input(self, name: str, *, first_day: int, count: int) -> set[str]:
        """At most so many files of which an event names this input; see `Details.has_input`.

        Only those with an event on this day or later, counted from 1970.
        """
        return self._named(sql.WITH_INPUT, name, first_day, count)

    def with_producer(self, uri: str, *, first_day: int, count: int) -> set[str]:
        """At most so many files of which an event has this producer, as `with_input` does it."""
        return self._named(sql.WITH_PRODUCER, uri, first_day, count)

    def _named(self, query: str, name: str, first_day: int, count: int) -> set[str]:
        found = self._connection.execute(query, {"name": name, "first_day": first_day, "count": count})
        return {cast("str", did) for (did,) in found}

    def conflicts(self) -> list[str]:
        """The files of which events say different names, sources or sets of parents, sorted by did.

        Two of their records may be a collision: see `find_collisions`.
        """
        return [cast("str", did) for (did,) in self._connection.execute(sql.CONFLICTS)]

    def _number_of(self, did: str) -> int | None:
        """The number of a file; 0 if nothing is related to it, None if it is not known."""
        found = cast("tuple[int | None] | None", self._connection.execute(sql.NUMBER, (did,)).fetchone())
        return None if found is None else found[0] or 0

    def _is_deep(self, number: int) -> bool:
        return self._connection.execute(sql.IS_DEEP, (number,)).get is not None

    def _has_deep(self) -> bool:
        return bool(self._connection.execute(sql.ANY_DEEP).get)

    def _kin(self, query: str, number: int) -> list[Kin]:
        return cast("list[Kin]", self._connection.execute(query, (number,)).fetchall())

    def _grouped(self, query: str, dids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for did, other in self._connection.executemany(query, sql.bindings_of(dids)):
            found[cast("str", did)].append(cast("str", other))
        return {did: tuple(sorted(others)) for did, others in found.items()}

    def _follow(self, start: int, query: str) -> Iterator[Kin]:
        """All files that edges lead to from one, the nearest first."""
        edges: defaultdict[int, list[int]] = defaultdict(list)
        for near, far in cast("Iterable[tuple[int, int]]", self._connection.execute(query, (start,))):
            edges[near].append(far)
        depths, waiting = {start: 0}, deque([start])
        while waiting:
            near = waiting.popleft()
            for far in edges[near]:
                if far not in depths:
                    depths[far] = depths[near] + 1
                    waiting.append(far)
        del depths[start]
        found = self._connection.executemany(sql.DIDS, sql.bindings_of(depths))
        dids = dict(cast("Iterable[tuple[int, str]]", found))
        for number, depth in depths.items():
            yield dids[number], depth
