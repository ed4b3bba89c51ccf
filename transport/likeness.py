"""Which of the names that there are may be meant by one that is not."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Final

_CHARS_MAX: Final = 96
"""Of longer names so much is compared, half of it from either end: the time grows with the square."""
_NAMES_MAX: Final = 10_000
"""So many names are compared."""


def most_alike(name: str, known: Iterable[str], count: int, *, likeness_min: float) -> list[str]:
    """The names most like one, at most `count`, the most alike first; in bounded time, however long they are.

    Args:
        name: the name.
        known: the names to choose from.
        count: how many are wanted.
        likeness_min: how like they must be, from 0 to 1.
    """
    by_ends: defaultdict[str, list[str]] = defaultdict(list)
    for one in islice(known, _NAMES_MAX):
        by_ends[_ends_of(one)].append(one)
    alike = difflib.get_close_matches(_ends_of(name), by_ends, count, likeness_min)
    return [one for ends in alike for one in by_ends[ends]][:count]


def _ends_of(name: str) -> str:
    half = _CHARS_MAX // 2
    return name if len(name) <= _CHARS_MAX else name[:half] + name[-half:]
