"""When files began their transforms: the Tracker notes that in the journal, before the file's end is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from waybill.transport.journal import BegunTransforms

BEGUN_MAX: Final = 20_000
"""How many of them are remembered; beyond that the oldest is forgotten."""


class BegunTimes:
    """The times at which paths of files began their transforms, as far as they are known."""

    def __init__(self) -> None:
        self._times_ms: dict[int, int] = {}

    def note(self, begun: BegunTransforms, at_ms: int) -> None:
        """Take in a note of the journal, accepted at an instant (epoch milliseconds)."""
        if begun.count != len(begun.names):
            return
        if len(self._times_ms) >= BEGUN_MAX:
            del self._times_ms[next(iter(self._times_ms))]  # it is not empty
        self._times_ms.setdefault(hash((begun.run_id, begun.names)), at_ms)

    def of(self, run_id: str, transforms: tuple[str, ...]) -> list[int | None]:
        """When the path of a file began each of these transforms; None where that is not known."""
        return [
            self._times_ms.get(hash((run_id, transforms[:count]))) for count in range(1, len(transforms) + 1)
        ]
