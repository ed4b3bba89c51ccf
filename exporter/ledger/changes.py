"""What one change of a root has done so far, for its ledger entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import RAW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..quarantine import Quarantined


class Changes(dict[str, str | None]):
    """By path relative to the root, the seal of each published file, or None for each removed one.

    Attributes:
        certain: False if something failed on the way, so that only the files show their state.
        quarantined: for each quarantined file, its old and its new path.
        reasons: the reason for each quarantined file, by its new path.
        found: by path, the seal of the file that was there before, or None if there was none.
        restored: the ids of findings whose rows were filed again.
        accepted: the reason for each accepted finding, by its id.
    """

    certain = True

    def __init__(self) -> None:
        super().__init__()
        self.quarantined: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.found: dict[str, str | None] = {}
        self.restored: tuple[str, ...] = ()
        self.accepted: Mapping[str, str] = {}

    def add_quarantined(self, files: Iterable[Quarantined]) -> None:
        """Note that damaged files were moved away. Files published in their place come through `update`."""
        for one in files:
            self.quarantined[one.path] = one.kept
            self.reasons[one.kept] = one.reason
            if not one.path.startswith(f"{RAW}/"):
                self[one.path] = None
