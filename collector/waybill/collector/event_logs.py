"""Spark's event logs beside the collector: what follows them, and what it found as everybody can ask for it.

The follower itself comes from another room. What it did is kept in the journal, so that each process of the
collector tells the same, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from waybill.transport import Journal
    from waybill.transport.home import Home

STATE: Final = "event-logs"
"""The name under which the journal keeps what a follower has to remember."""

STATUS: Final = "status"


class EventLogStatus(msgspec.Struct, frozen=True):
    """What following has given so far.

    Attributes:
        corrected: how many failures were told that the listener did not tell.
        confirmed: of how many writes it was told that they succeeded.
        problems: what cannot be read now, by place or log.
    """

    corrected: int = 0
    confirmed: int = 0
    problems: dict[str, str] = {}

    @property
    def summary(self) -> dict[str, str]:
        """What is wrong, under the name of this work; empty where nothing is."""
        if not self.problems:
            return {}
        first, *others = self.problems.values()
        return {STATE: f"{first} (and {len(others)} more)" if others else first}

    @classmethod
    def of(cls, journal: Journal) -> EventLogStatus | None:
        """That of a home; None where nothing has ever been followed."""
        stored = journal.state_get(STATE, STATUS)
        return None if stored is None else msgspec.msgpack.decode(stored, type=cls)


class Follower(Protocol):
    """Looks at event logs again and again; one process of a collector has it do so.

    Attributes:
        every_s: how often.
    """

    every_s: float

    def look(self, home: Home, is_ended: Callable[[], bool]) -> None:
        """Correct what the home has by what the logs say, as far as it gets until the end.

        Raises:
            JournalError: the home cannot be used now.
        """
