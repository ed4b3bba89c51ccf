"""When an hour is compacted: after it has ended. Until then, when its many small files become few."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from waybill.exporter.names import Hour

RAW_FILES_MAX: Final = 64
"""An hour that has had more new raw files than this is squashed."""
GRACE_S: Final = 120.0
"""An hour is compacted so long after its end, since most of what comes late comes by then."""
GATHER_S: Final = 60.0
"""Late rows of hours that ended wait so long for others, since each compaction writes the whole hour anew."""


class CompactionSchedule:
    """Keeps count of the hours that have raw files.

    Args:
        hours: those that have some already, from before.
    """

    def __init__(self, hours: Iterable[Hour]) -> None:
        self._counts = dict.fromkeys(hours, 0)
        self._since_s = dict.fromkeys(self._counts, float("-inf"))

    def wrote(self, hours: Iterable[Hour]) -> None:
        """Note a new raw file in each of these hours."""
        for hour in hours:
            self._counts[hour] = self._counts.get(hour, 0) + 1
            self._since_s.setdefault(hour, time.monotonic())

    def full(self) -> list[Hour]:
        """The hours to be squashed now."""
        return [hour for hour, count in self._counts.items() if count > RAW_FILES_MAX]

    def due(self) -> list[Hour]:
        """The hours to be compacted now."""
        ended_ms, gathered_s = int((time.time() - GRACE_S) * 1_000), time.monotonic() - GATHER_S
        gathered = [hour for hour, since_s in self._since_s.items() if since_s <= gathered_s]
        return [hour for hour in gathered if hour.end_ms <= ended_ms]

    def squashed(self, hour: Hour) -> None:
        """Note that the raw files of this hour are few again."""
        self._counts[hour] = 0

    def compacted(self, hours: Iterable[Hour]) -> None:
        """Note that these hours have no raw files left that a compaction could take."""
        for hour in hours:
            self._counts.pop(hour, None)
            self._since_s.pop(hour, None)

    def postpone(self, hours: Iterable[Hour]) -> None:
        """Note that these hours could not be compacted: they gather anew."""
        for hour in hours:
            self._counts[hour] = 0
            self._since_s[hour] = time.monotonic()
