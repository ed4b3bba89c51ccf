"""What one change of a root has done so far, as its ledger will have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.exporter.names import RAW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from waybill.exporter.quarantine import Quarantined


class Changes(dict[str, str | None]):
    """By path relative to the root, the seal of each published file, and None for each removed one.

    Attributes:
        certain: False where something failed on the way, so that only the files can tell what they are.
        quarantined: for each file that was quarantined, where it was and where it is.
        reasons: for each quarantined file, by where it is, why.
        found: by path, the seal of the file that was there before, and None where there was none.
        restored: the ids of findings whose rows were filed again.
        accepted: by id of each finding that is accepted, the reason.
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
        """Note that damaged files left. What was published in their place since is for `update` to say."""
        for one in files:
            self.quarantined[one.path] = one.kept
            self.reasons[one.kept] = one.reason
            if not one.path.startswith(f"{RAW}/"):
                self[one.path] = None
