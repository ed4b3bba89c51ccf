"""The closure: of each file all ancestors, each with the length of the shortest way to it.

Adding an edge joins the ancestors of the parent, one step farther, to those of the child and of each of its
descendants. So the closure follows from the set of edges alone: neither their order nor repeats matter, and
circles end. A file with more than so many ancestors is *deep*: of it only the edges are kept. All descendants
of a deep file are deep, since they have at least as many ancestors, and which files are deep follows from the
set of edges, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

Depths = dict[int, int]
"""The depths of ancestors by their numbers; 1: a parent."""


class Closure:
    """The part of the closure that a batch of edges changes, in memory.

    Args:
        ancestors: of each parent and each child of the batch, and of each descendant of a child; without
            those that have none. Of a deep file only its parents.
        deep: those of these files that are deep.
        descendants: of each child of the batch, empty for one that has none. They are changed.
        ancestors_max: a file with more of them is deep.
    """

    def __init__(
        self,
        ancestors: Mapping[int, Depths],
        deep: Iterable[int],
        descendants: dict[int, set[int]],
        ancestors_max: int,
    ) -> None:
        self._stored = ancestors
        self._now: dict[int, Depths] = {}
        self._was_deep = frozenset(deep)
        self._deep = set(self._was_deep)
        self._below = descendants
        self._ancestors_max = ancestors_max

    def add(self, parent: int, child: int) -> None:
        """Add an edge; one from a file to itself says nothing."""
        if parent == child or self._of(child).get(parent) == 1:
            return
        if parent in self._deep:
            for one in [child, *self._below[child]]:
                self._deepen(one)
        if child in self._deep:
            self._change(child)[parent] = 1
            return
        above = {one: depth + 1 for one, depth in self._of(parent).items()}
        above[parent] = 1
        if not self._below[child] and not self._of(child):  # most are new
            self._now[child] = above
            self._note(child, above)
            return
        for below in [child, *self._below[child]]:
            if below not in self._deep:
                farther = 0 if below == child else self._of(below)[child]
                self._join(below, above, farther)

    def _join(self, below: int, above: Depths, farther: int) -> None:
        """Give a file ancestors that are so many steps farther from it."""
        mine = self._change(below)
        for one, depth in above.items():
            if one != below and depth + farther < mine.get(one, depth + farther + 1):
                mine[one] = depth + farther
        self._note(below, mine)

    def _note(self, below: int, mine: Depths) -> None:
        """Note what follows from the ancestors of a file."""
        for one in mine.keys() & self._below.keys():
            self._below[one].add(below)
        if len(mine) > self._ancestors_max:
            self._deepen(below)

    def _deepen(self, number: int) -> None:
        if number not in self._deep:
            self._deep.add(number)
            self._now[number] = {one: depth for one, depth in self._of(number).items() if depth == 1}

    def _of(self, number: int) -> Depths:
        found = self._now.get(number)
        return self._stored.get(number, {}) if found is None else found

    def _change(self, number: int) -> Depths:
        if number not in self._now:
            self._now[number] = dict(self._stored.get(number, ()))
        return self._now[number]

    def cut(self) -> Iterator[tuple[int, int, int]]:
        """The stored rows that are no longer true, each a child, a depth and a parent."""
        for child, now in self._now.items():
            for parent, depth in self._stored.get(child, {}).items():
                if now.get(parent) != depth:
                    yield child, depth, parent

    def grown(self) -> Iterator[tuple[int, int, int]]:
        """The new rows, each a child, a depth and a parent."""
        for child, now in self._now.items():
            stored = self._stored.get(child)
            for parent, depth in now.items():
                if stored is None or stored.get(parent) != depth:
                    yield child, depth, parent

    def deepened(self) -> set[int]:
        """The files that have become deep."""
        return self._deep - self._was_deep
