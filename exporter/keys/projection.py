"""The keys as a projection: whoever files the records of a home keeps up the keys of its root.

It reads no entries. Its cursor follows the layout's, so that a flush waits until the keys have what the flush
compacted. The cursor also moves on when the keys cannot be written, since no entry has to be kept for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from waybill.transport.errors import RootError, reason_of
from waybill.transport.root import check_root
from waybill.transport.runner import Projection, Step, statuses

from ..names import LAYOUT

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from ..ledger import Position

PROJECTION: Final = "keys"
"""The name of the projection."""

_LOOKS_EVERY_S: Final = 30.0
"""How often it looks for changes that come with no new entry: a compaction that was due, or an age-off."""
_TRIES_AGAIN_EVERY_S: Final = 300.0
"""How often it tries unreadable files again, and compares the folders: of 43,000 files that takes 0.3 s."""
_RETRY_S: Final = 5.0


def open_keys(journal: Journal, settings: Settings) -> KeysKeeper | None:
    """What keeps up the keys of a root; None if `provenance_enabled` is off."""
    return KeysKeeper(journal, settings) if settings.provenance_enabled else None


class KeysKeeper(Projection):
    """Keeps up the keys of the root that a home files into."""

    name = PROJECTION
    stores = False

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._root = settings.root
        self._position: Position | None = None
        self._tries_again_s = 0.0

    def step(self) -> Step:
        """Follow the root's ledger, and read some of the files that have changed."""
        filed = self._filed()
        problem, applied = None, False
        try:
            applied = self._keep()
        except RootError:
            self._position = None  # The layout reports it.
        except OSError as error:
            problem = (
                f"the keys below {self._root} cannot be written ({reason_of(error)}); free space there or "
                "fix the disk, and it continues: until then, answers take longer"
            )
        if not applied and self._journal.cursor(PROJECTION) < filed:
            self._journal.commit(PROJECTION, cursor=filed, durable=False)
        if problem is not None:
            self._position = None
            return Step(retry_s=_RETRY_S, problem=problem)
        return Step(applied=int(applied), retry_s=_LOOKS_EVERY_S, gathers=True, follows=LAYOUT)

    def pending(self) -> int:
        """The entries of which the keys do not know what became of them."""
        return self._journal.last_seq() - self._journal.cursor(PROJECTION)

    def _filed(self) -> int:
        """The last entry that is filed, or that the layout cannot file, so that nobody waits for it here."""
        layout = statuses(self._journal).get(LAYOUT)
        is_held_up = layout is not None and layout.problem is not None
        return self._journal.last_seq() if is_held_up else self._journal.cursor(LAYOUT)

    def _keep(self) -> bool:
        """Do one step; return whether there are more."""
        # These load pyarrow and DuckDB, which a command that only names the projection does not need.
        from ..ledger import follow_ledger
        from .making import keep_step

        if self._position is not None:
            followed = follow_ledger(self._root, self._position)
            is_same = followed is not None and followed.position == self._position and not followed.hours
            if is_same and self._journal.clock.monotonic_s() < self._tries_again_s:
                return False
        check_root(self._journal, self._root)
        again = self._journal.clock.monotonic_s() >= self._tries_again_s
        contents = keep_step(self._root, again=again)
        if again:
            self._tries_again_s = self._journal.clock.monotonic_s() + _TRIES_AGAIN_EVERY_S
        if contents is None or contents.waiting:
            self._position = None
            return contents is not None
        self._position = contents.position
        return False
