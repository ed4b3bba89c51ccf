"""Forgetting files of the correlation index.

A file goes when its last event is older than so many days and no file in the index came from it. Then those
that it came from may go. So every file that stays keeps all its ancestors, and who came from whom among those
that stay does not change. Files that came from each other in a circle stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from . import sql

if TYPE_CHECKING:
    import apsw

DAY_MS: Final = 86_400_000
FILES_AT_ONCE: Final = 5_000

_Row = tuple[str, int | None, int]
"""A did, its number, and the day of its last event."""


class Forgetting:
    """Forgets what is old as of a day, a bounded number of files at a time; it may begin again at any time.

    Args:
        connection: the index, in a transaction at each step.
        day: the day, counted from 1970.
        retain_days: a file stays for so many days after that of its last event.
    """

    def __init__(self, connection: apsw.Connection, day: int, retain_days: float) -> None:
        self.day = day
        self._connection = connection
        self._until = day - retain_days
        self._looked_at = ""
        self._maybe: list[_Row] = []

    def step(self) -> bool:
        """Look at the next files; True if those were the last."""
        if not self._maybe:
            found = cast(
                "list[_Row]",
                self._connection.execute(sql.NEXT_FILES, (self._looked_at, FILES_AT_ONCE)).fetchall(),
            )
            if not found:
                self._connection.execute(sql.CUT_UNUSED_DETAILS)
                self._connection.execute(sql.CLEAR_AGED)
                self._connection.execute(sql.SET_AGED, (self.day,))
                return True
            self._looked_at = found[-1][0]
            self._maybe = self._old(found)
        for _ in range(min(FILES_AT_ONCE, len(self._maybe))):
            self._forget(*self._maybe.pop())
        return False

    def _old(self, files: list[_Row]) -> list[_Row]:
        return [file for file in files if file[2] < self._until]

    def _forget(self, did: str, number: int | None, _: int) -> None:
        if number is not None:
            if self._connection.execute(sql.HAS_CHILD, (number,)).get:
                return
            parents = self._connection.execute(sql.PARENT_FILES, (number,)).fetchall()
            self._maybe += self._old(cast("list[_Row]", parents))
            self._connection.execute(sql.CUT_ANCESTORS, (number,))
            self._connection.execute(sql.CUT_DEEP, (number,))
        self._connection.execute(sql.CUT_FILE, (did,))
