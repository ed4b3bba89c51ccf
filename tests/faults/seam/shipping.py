"""The program that exports and ages off, and the check of root and destination after any fault.

It fills hours, exports them, adds late rows, exports again, ages everything off, including the archive, and
adds even later rows, which an export merges at the destination and deletes here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
from seam.emissions import emission
from seam.files import FaultyFiles
from seam.oracle import check_journal, check_verified, check_visible, compare
from seam.plan import Act, Plan
from seam.sqlite import FaultySqlite
from seam.system import FaultySystem

from waybill.exporter import DestinationError, age_off, age_off_archive, check, export, open_destination
from waybill.exporter.archive import Archive
from waybill.exporter.layout import Layout
from waybill.facets import ProvenanceRecord, merge_all
from waybill.facets.arrow import SCHEMA, from_table
from waybill.lineage import find
from waybill.transport import Journal, JournalError, Settings, flush
from waybill.transport.root import CLAIMS, FOLDER_MARK, MARKER

if TYPE_CHECKING:
    from seam.ledger import Ledger, Teller

    from waybill.exporter.exporting import Exported

FAR_MS: Final = 4_000_000_000_000
FRESH: Final = 800
"""The number of the first emission after the faults have ended."""


def there_of(settings: Settings) -> Path:
    """The export's destination."""
    return settings.root.parent / "there"


class Shipping:
    """One run of the program, in this disposable process.

    Args:
        settings: home and root.
        plan: the plan of failures.
        teller: gets its reports.
    """

    def __init__(self, settings: Settings, plan: Plan, teller: Teller) -> None:
        plan.on_strike = lambda call: teller.tell("struck", [call.name, call.path])
        FaultySystem(plan, settings.home).install()
        self._sqlite = FaultySqlite(plan)
        self._plan = plan
        self._teller = teller
        self._settings = settings
        self._files = FaultyFiles(plan)
        self._kept: list[int] = []
        self._journal = Journal(settings.home, vfs=self._sqlite.name)
        self._layout = Layout(self._journal, settings, files=self._files, workers=1, linger_s=0.0)

    def run(self) -> None:
        """Do everything that exports and age-offs do."""
        self._add(0, 1, 2, 3)
        self._hit(self._export)
        self._add(4, 5)
        self._hit(self._export)
        self._hit(self._age_off)
        self._add(6, 7)
        self._hit(lambda: self._export(delete_after=True))
        self._hit(self._age_off)

    def go_on(self) -> None:
        """Do what must work after the fault has ended, without a restart."""
        self._plan.ended = True
        self._add(FRESH)
        if (done := self._export()) and done.failed:
            self._teller.tell("fault", f"the export fails after the fault: {done.failed}")

    def _add(self, *numbers: int) -> None:
        for number in numbers:
            self._teller.tell("offer", number)
            with contextlib.suppress(JournalError):
                self._journal.append_many(emission(number).items)
                self._teller.tell("ack", number)
                self._kept.append(number)
        archive = Archive(self._journal, self._settings, files=self._files, gather_s=0)
        # The runner also tries again, whatever the error.
        with contextlib.suppress(Exception):
            self._journal.mark(b"flush")
            for step in (self._layout.step, archive.step):
                while step().applied:
                    pass
            if not self._layout.pending():
                self._teller.tell("shown", self._kept)

    def _hit(self, do: Callable[[], object]) -> None:
        """Do it as if run by a timer: failed work is repeated the next time."""
        start = len(self._plan.calls)
        with contextlib.suppress(OSError, DestinationError):
            do()
        if self._plan.at is None:
            self._teller.tell("span", [start, len(self._plan.calls)])

    def _export(self, *, delete_after: bool = False) -> Exported:
        there = open_destination(str(there_of(self._settings)), files=self._files)
        return export(self._settings.root, there, delete_after=delete_after, files=self._files)

    def _age_off(self) -> None:
        for forget in (age_off, age_off_archive):
            forget(self._settings.root, days=1, only_exported=True, now_ms=FAR_MS, files=self._files)


def run_shipping(settings: Settings, plan: Plan, teller: Teller) -> None:
    """Run it from start to end, and continue after a fault that it survives."""
    # One day after the other, so that the calls come in the same order each time.
    import waybill.exporter.exporting.exporting as module

    module.WORKERS = 1  # type: ignore[misc]
    shipping = Shipping(settings, plan, teller)
    shipping.run()
    if plan.at is not None:
        shipping.go_on()
    if plan.act is Act.POWER:
        plan.lose_power()
    if plan.at is None:
        for call in plan.calls:
            teller.tell("call", [call.name, call.path])


def ship_and_check(settings: Settings, ledger: Ledger, *, fresh_number: int = FRESH + 50) -> None:
    """Check the state after a fault, then run everything again and check once more.

    Args:
        settings: those of the home under test.
        ledger: the report of its process; emissions made here are added.
        fresh_number: the number of the emission that must arrive now.
    """
    assert not ledger.faults, "\n".join(ledger.faults)
    root, there = settings.root, there_of(settings)
    check_visible(root)
    check_visible(there)
    check_verified(root, "left")
    # Its manifest comes last, so that an export that was cut short is told.
    check_verified(there, "left", "manifest")
    lost, invented = compare(merge_all([*find(root), *rows_of(there)]), ledger, ledger.shown)
    assert not lost, f"shown before, and now neither here nor there: {lost}"
    assert not invented, f"nobody emitted {invented}"
    journal = Journal(settings.home)
    fresh = emission(fresh_number)
    journal.append_many(fresh.items)
    check_journal(journal)
    assert not flush(settings).problems
    journal.close()
    ledger.offered.append(fresh.number)
    ledger.acknowledged.add(fresh.number)
    done = export(root, open_destination(str(there)))
    assert not done.failed, done.failed
    for forget in (age_off, age_off_archive):
        assert not forget(root, days=1, only_exported=True, now_ms=FAR_MS).waiting
    check_there(there, ledger)
    assert find(root) == []
    assert not list(root.glob("events/*/*/*"))
    assert [finding for checked in check(root) for finding in checked.findings] == []
    for folder in (root, there):
        files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        strays = [path for path in files if not _belongs(path)]
        assert not strays, f"no files of the layout in {folder}: {strays}"


def check_there(there: Path, ledger: Ledger) -> None:
    """Check that the destination contains each acknowledged record once, and that its manifests agree."""
    lost, invented = compare(rows_of(there), ledger, ledger.acknowledged)
    assert not lost, f"acknowledged and not at the destination: {lost}"
    assert not invented, f"nobody emitted {invented}"
    listed: dict[str, str] = {}
    for path in there.glob("provenance/manifest/*/*.json"):
        listed |= {name: one["sha256"] for name, one in json.loads(path.read_bytes()).items()}
    compacted = (there / "provenance/compacted").rglob("*.parquet")
    files = {str(path.relative_to(there)): path.read_bytes() for path in compacted}
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def rows_of(there: Path) -> list[ProvenanceRecord]:
    """Every row of every file of a destination."""
    paths = sorted(there.glob("provenance/compacted/*/*/*.parquet"))
    return [
        record for path in paths for record in from_table(pq.read_table(path, partitioning=None).cast(SCHEMA))
    ]


def _belongs(path: Path) -> bool:
    if path.name.startswith("."):
        return path.name in {".compact.lock", ".waybill-export.lock", ".lock"}
    kinds = {"aged": (4,), "ledger": (4,), "exports": (4, 5), "manifest": (4,), "compacted": (5,)}
    kinds |= {"seals": (4,), "filed": (5,), "keys": (3,), "relations": (4,)}
    if path == Path(MARKER) or path.parts[0] == CLAIMS or path.name == FOLDER_MARK:
        return True
    return path.parts[0] == "events" or len(path.parts) in kinds.get(path.parts[1], ())
