"""Spark's event logs and the collector: the interface of a follower, and its results.

The follower itself comes from another room. Its results are stored in the journal, so that each process of
the collector reports the same, even after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from waybill.exporter.health import Problem, ProblemKind, problem_of

if TYPE_CHECKING:
    from waybill.transport import Journal
    from waybill.transport.home import Home

STATE: Final = "event-logs"
"""The name under which the journal stores the follower's state."""

STATUS: Final = "status"


class EventLogStatus(msgspec.Struct, frozen=True):
    """The results of following so far.

    Attributes:
        corrected: the number of failures that the logs showed and the listener did not report.
        confirmed: the number of writes that the logs confirmed.
        problems: the reasons why locations or logs cannot be read now.
    """

    corrected: int = 0
    confirmed: int = 0
    problems: dict[str, str] = {}

    @property
    def troubles(self) -> list[Problem]:
        """All problems as one problem of the home; empty if there are none."""
        if not self.problems:
            return []
        first, *others = self.problems.values()
        one = problem_of(ProblemKind.EVENT_LOGS, STATE, first)
        more = f" (and {len(others)} more)" if others else ""
        return [msgspec.structs.replace(one, says=f"{one.says}{more}")]

    @classmethod
    def of(cls, journal: Journal) -> EventLogStatus | None:
        """The results for a home; None if no log was ever followed."""
        stored = journal.state_get(STATE, STATUS)
        return None if stored is None else msgspec.msgpack.decode(stored, type=cls)


class Follower(Protocol):
    """Checks event logs regularly; one process of a collector runs it.

    Attributes:
        every_s: the interval.
    """

    every_s: float

    def look(self, home: Home, is_ended: Callable[[], bool]) -> None:
        """Correct the home's records from the logs, as far as possible until the end.

        Raises:
            JournalError: the home cannot be used now.
        """
