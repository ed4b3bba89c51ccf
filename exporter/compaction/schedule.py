"""The schedule: an hour is compacted after it has ended; until then its small raw files are squashed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from waybill.transport.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from ..names import Hour

_RAW_FILES_MAX: Final = 64
"""An hour with more new raw files than this is squashed."""
_GRACE_S: Final = 120.0
"""An hour is compacted this long after its end, because most late records have arrived by then."""
GATHER_S: Final = 60.0
"""Late rows of an ended hour wait this long for others, because each compaction rewrites the whole hour."""


class CompactionSchedule:
    """Counts new raw files by hour, and says which hours are due; `hours` already have some."""

    def __init__(
        self, hours: Iterable[Hour], *, gather_s: float = GATHER_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._gather_s = gather_s
        self._clock = clock
        self._counts = dict.fromkeys(hours, 0)
        self._since_s = dict.fromkeys(self._counts, float("-inf"))

    def wrote(self, hours: Iterable[Hour]) -> None:
        """Note a new raw file in each of these hours."""
        for hour in hours:
            self._counts[hour] = self._counts.get(hour, 0) + 1
            self._since_s.setdefault(hour, self._clock.monotonic_s())

    def to_squash(self) -> list[Hour]:
        """The hours to squash now."""
        return [hour for hour, count in self._counts.items() if count > _RAW_FILES_MAX]

    def to_compact(self) -> list[Hour]:
        """The hours to compact now."""
        ended_ms = self._clock.now_ms() - int(_GRACE_S * 1_000)
        gathered_s = self._clock.monotonic_s() - self._gather_s
        gathered = [hour for hour, since_s in self._since_s.items() if since_s <= gathered_s]
        return [hour for hour in gathered if hour.end_ms <= ended_ms]

    def squashed(self, hour: Hour) -> None:
        """Note that this hour has been squashed."""
        self._counts[hour] = 0

    def compacted(self, hours: Iterable[Hour]) -> None:
        """Note that these hours have no raw files left to compact."""
        for hour in hours:
            self._counts.pop(hour, None)
            self._since_s.pop(hour, None)

    def postpone(self, hours: Iterable[Hour]) -> None:
        """Note that these hours could not be compacted, so that they become due again later."""
        for hour in hours:
            self._counts[hour] = 0
            self._since_s[hour] = self._clock.monotonic_s()
