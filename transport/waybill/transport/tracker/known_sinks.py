"""The sinks that the files of a data source leave by, as far as one Tracker knows.

Marquez takes the datasets that the last run of a job named for all that the job has. So each event of a file
names the sinks of its data source, whichever of them this file leaves by in the end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SINKS_MAX: Final = 32
"""A data source with more is not a flow with so many ends: its sinks' names differ for each file."""

SOURCES_MAX: Final = 1_000
"""Of more data sources than that nothing is remembered."""


class KnownSinks:
    """What was declared, and what files left by. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._of: Final[dict[str, frozenset[str]]] = {}

    def learn(self, data_source: str, data_sinks: Iterable[str]) -> None:
        """Remember sinks of a data source."""
        new = frozenset(data_sinks)
        if new <= self._of.get(data_source, frozenset()):
            return
        with self._lock:
            known = self._of.get(data_source, frozenset())
            if data_source in self._of or len(self._of) < SOURCES_MAX:
                # One beyond the bound stays, as the sign that there are too many.
                self._of[data_source] = frozenset(sorted(known | new)[: SINKS_MAX + 1])

    def of(self, data_source: str) -> tuple[str, ...]:
        """The sinks of a data source, sorted; none where they are too many to be a flow's."""
        known = self._of.get(data_source, frozenset())
        return tuple(sorted(known)) if len(known) <= SINKS_MAX else ()
