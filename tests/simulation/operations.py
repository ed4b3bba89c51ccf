"""What people do with a root beside its runner: it is gone for a while, exported, rebuilt and aged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from model import Model, comparable

from waybill.exporter import Wanted, age_off, check, export, open_destination, rebuild
from waybill.exporter.sources import EventsSource
from waybill.lineage import find
from waybill.transport.root import known_root

if TYPE_CHECKING:
    from waybill.transport import Journal, Settings

LATER_MS = 10**14
"""When all that is there is old, whatever the clock of its disk says."""


class Operations:
    """Does it to the root of some settings.

    Attributes:
        is_away: whether the root is gone, as a disk that is not mounted.
        knows_exported: whether the root's notes of what was exported are as the last export left them.
            Without them, an export merges with its own earlier files, which may have records that were
            taken back since.
    """

    def __init__(self, folder: Path, settings: Settings, model: Model) -> None:
        self.is_away, self.knows_exported = False, True
        self._root, self._away = settings.root, folder / "away"
        self._exported, self._rebuilt = folder / "exported", folder / "rebuilt"
        self._wanted = Wanted(system_name=settings.system_name, rule=settings.annotation_rule)
        self._model = model

    def take_away(self, journal: Journal) -> None:
        """Take the root away, once it is known as the home's."""
        if not self.is_away and known_root(journal) is not None:
            self._root.rename(self._away)
            self.is_away = True

    def bring_back(self) -> None:
        """Put the root back; nothing may have been written where it was."""
        if self.is_away:
            assert not self._root.exists(), (
                f"something was filed into the place of a root that is gone: {self._root}"
            )
            self._away.rename(self._root)
            self.is_away = False

    def export(self) -> None:
        """Export what has not been exported yet."""
        if not self.is_away:
            knew, self.knows_exported = self.knows_exported, False
            done = export(self._root, open_destination(self._exported))
            self.knows_exported = knew and not done.failed

    def lose_power(self) -> None:
        """Note that the power was lost, and the root's latest notes maybe with it."""
        self.knows_exported = self.knows_exported and not self._exported.exists()

    def check(self) -> None:
        """Check what is made of a root whose runs have all settled, and remove all that was exported."""
        wanted = self._model.records()
        self.export()
        if self.knows_exported:
            self._compare("exported", self._exported, wanted)
        lost = {record[0] for record in wanted} - {one.did for one in find(self._exported)}
        assert not lost, f"exported: lost {lost}"
        report = rebuild(EventsSource(self._root), self._rebuilt, self._wanted)
        assert not report.failed
        self._compare("rebuilt", self._rebuilt, wanted)
        age_off(self._root, days=0, only_exported=True, now_ms=LATER_MS)
        self._compare("aged", self._root, Counter())
        findings = [one for checked in check(self._root) for one in checked.findings]
        assert not findings, f"what verify finds after an age-off: {findings}"

    @staticmethod
    def _compare(what: str, root: Path, wanted: Counter[tuple[object, ...]]) -> None:
        real = Counter(map(comparable, find(root))) if root.exists() else Counter()
        assert real == wanted, f"{what}: lost {wanted - real}; invented or doubled {real - wanted}"
