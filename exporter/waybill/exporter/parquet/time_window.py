"""An hour cut by `completed` into parts that fit into memory.

Repeats of a record share their `completed`, so each is in the same part as the others, and what is done part
by part is as if it were done at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from waybill.facets.record import AFTER_LAST_MS

WINDOW_ROWS: Final = 250_000
"""About how many rows of an hour are in memory at once."""


class TimeWindow(NamedTuple):
    """A stretch of time in epoch milliseconds."""

    since_ms: int
    until_ms: int
    """The first instant after it."""


class Span(NamedTuple):
    """What is known of a row group before it is read."""

    first_ms: int
    """Its earliest `completed`, in epoch milliseconds."""
    last_ms: int
    """Its latest."""
    rows: int
    """How many rows it has, or as how many of a common size it counts."""


def cut(spans: Iterable[Span], rows_max: int) -> list[TimeWindow]:
    """All of time as windows, oldest first, so that none has many more rows than wanted.

    Args:
        spans: the row groups there are.
        rows_max: how many rows are wanted at most; a row group is never cut.
    """
    edges, rows = [0], 0
    for span in sorted(spans):
        if rows + span.rows > rows_max and edges[-1] < span.first_ms:
            edges.append(span.first_ms)
            rows = 0
        rows += span.rows
    return [TimeWindow(*edge) for edge in pairwise([*edges, AFTER_LAST_MS])]
