"""What people do with a root beside its runner: it is gone for a while, exported, rebuilt and aged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from model import Model, comparable

from waybill.exporter import Wanted, age_off, age_off_archive, check, export, open_destination, rebuild
from waybill.exporter.rebuilding import Limits
from waybill.exporter.sources import EventsSource
from waybill.lineage import find
from waybill.transport import WaybillError
from waybill.transport.root import known_root

if TYPE_CHECKING:
    from crashes import Faults

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

    def __init__(
        self, folder: Path, settings: Settings, model: Model, faults: Faults, chance: Random
    ) -> None:
        self.is_away, self.knows_exported = False, True
        self._root, self._away = settings.root, folder / "away"
        self._exported, self._shipped, self._rebuilt = (
            folder / name for name in ("exported", "shipped", "rebuilt")
        )
        self._faults, self._chance = faults, chance
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
        """Check what is made of a root whose runs have all settled, and remove all that was exported.

        Who rebuilds, exports or removes dies at any call, maybe with the power, and another does it again.
        """
        self.export()
        if self.knows_exported:
            self._compare("exported", self._exported)
        lost = self._dids() - _dids_below(self._exported)
        assert not lost, f"exported: lost {lost}"
        steps = self._rebuild, self._ship, self._forget
        hit = self._chance.choice(steps)
        for do in steps:
            if do == hit:
                self._die_in(do)
            do()
        self._compare("rebuilt", self._rebuilt)
        self._compare("shipped", self._shipped)
        assert not find(self._root), "what was exported is not removed"
        assert not list(self._root.glob("events/*/*/*")), "the archive is not removed"
        for folder in (self._root, self._rebuilt, self._shipped):
            findings = [one for checked in check(folder) for one in checked.findings if one.kind != "left"]
            assert not findings, f"what verify finds in {folder.name}: {findings}"
        assert not (self._rebuilt / ".rebuild").exists(), "a rebuild that is done has left its plan"

    def _die_in(self, do: Callable[[], object]) -> None:
        """Do something in a process that dies on the way; until then the disk has kept all that was there."""
        self._faults.write_back()
        self._faults.kill_after(int(self._chance.expovariate(1 / 60)))
        try:
            do()
        except (WaybillError, OSError):
            if not self._faults.is_dead:
                raise
        self._faults.revive(loses_power=self._chance.random() < 0.3)
        lost = self._dids() - _dids_below(self._root) - _dids_below(self._shipped)
        assert not lost, f"neither here nor where it was shipped: {lost}"

    def _dids(self) -> set[object]:
        return {record[0] for record in self._model.records()}

    def _rebuild(self) -> None:
        report = rebuild(EventsSource(self._root), self._rebuilt, self._wanted, limits=Limits(writers=1))
        assert self._faults.is_dead or report.is_whole, report

    def _ship(self) -> None:
        """Export everything to a place of its own, and maybe remove it here."""
        removes = self._chance.random() < 0.5
        done = export(self._root, open_destination(self._shipped), delete_after=removes)
        assert self._faults.is_dead or not done.failed, done.failed

    def _forget(self) -> None:
        """Remove what was exported, once the root knows that, which the power may have taken from it."""
        self.export()
        self._ship()
        age_off(self._root, days=0, only_exported=True, now_ms=LATER_MS)
        age_off_archive(self._root, days=0, only_exported=True, now_ms=LATER_MS)

    def _compare(self, what: str, root: Path) -> None:
        real, wanted = Counter(map(comparable, find(root))), self._model.records()
        assert real == wanted, f"{what}: lost {wanted - real}; invented or doubled {real - wanted}"


def _dids_below(root: Path) -> set[object]:
    """The files of the records below a root, or an exported one."""
    return {record.did for record in find(root)} if root.exists() else set()
