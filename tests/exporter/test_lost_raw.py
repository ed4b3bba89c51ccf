"""Raw files that vanish before they are compacted."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from layouts import event, facet, findings, open_findings
from sites import Site

from waybill.exporter import Compactor, Wanted, age_off, repair
from waybill.exporter.compaction import squash_hour
from waybill.exporter.directory import raw_hours
from waybill.exporter.names import RawName
from waybill.exporter.verification import accept_findings
from waybill.lineage import find
from waybill.transport import Settings, flush


class Raws(Site):
    """A home with a raw file for each record."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, names=("layout",))

    def keep(self, *dids: str) -> None:
        for did in dids:
            self.emit(event(f"run-{did}", "COMPLETE", 0, facets=facet(did=did)))
            self.work()

    def squash(self) -> None:
        for hour in raw_hours(self.root):
            squash_hour(self.root, hour, node=self.journal.node)

    def raws(self) -> list[Path]:
        return sorted(
            (self.root / "provenance/raw").rglob("*.parquet"), key=lambda path: RawName.parse(path.name) or ()
        )

    def lose(self, at: int) -> str:
        lost = self.raws()[at]
        lost.unlink()
        return str(lost.relative_to(self.root))

    def dids(self) -> list[str]:
        return sorted(row.did for row in find(self.root))


@pytest.fixture
def site(settings: Settings) -> Raws:
    return Raws(settings)


@pytest.mark.parametrize("then", ["nothing", "squashed", "compacted", "restarted"])
def test_a_raw_file_that_is_deleted_is_a_finding_until_its_rows_are_back_and_it_is_accepted(
    site: Raws, then: str
) -> None:
    site.keep("a", "b", "c")
    assert open_findings(site.root) == []
    lost = site.lose(1)
    if then == "squashed":
        site.squash()
    elif then == "compacted":
        site.flush()
        site.flush()
    elif then == "restarted":
        site.restart()
        site.keep("d")
    assert open_findings(site.root) == [("removed", lost)]
    site.flush()
    assert open_findings(site.root) == [("removed", lost)]
    assert "b" not in site.dids()
    assert flush(site.settings).problems == {}  # the archive catches up
    report = repair(site.root, Wanted(system_name="tests"), home=site.settings.home)
    assert (len(report.restored), report.left) == (1, ())
    assert {"a", "b", "c"} <= set(site.dids())
    (again,) = findings(site.root)
    assert again.restored
    accept_findings(site.root, [again])
    assert open_findings(site.root) == []
    site.keep("e")
    site.flush()
    assert open_findings(site.root) == []


def test_files_that_are_deleted_together_are_one_finding_each_hour(site: Raws) -> None:
    site.keep("a", "b", "c", "d")
    site.lose(2)
    site.lose(1)
    node = site.journal.node
    assert open_findings(site.root) == [("removed", f"provenance/raw/20260101/00/{node}-2-3.parquet")]


def test_whatever_moves_or_takes_raw_files_by_right_is_no_finding(site: Raws, tmp_path: Path) -> None:
    other = Raws(msgspec.structs.replace(site.settings, home=tmp_path / "other"))
    site.keep("a", "b", "c")
    other.keep("x", "y")
    site.squash()
    assert open_findings(site.root) == []
    site.keep("d", "e")
    Compactor(site.root, workers=1).compact()  # by another program, which leaves the notes
    assert (site.raws(), open_findings(site.root)) == ([], [])
    other.keep("z")
    site.keep("f")
    site.tell(event("derived", "COMPLETE", 5))
    site.tell(event("derived", "FAIL", 9))  # takes back a record
    assert open_findings(site.root) == []
    assert age_off(site.root, days=0.0, now_ms=2**42).removed
    assert (site.dids(), open_findings(site.root)) == ([], [])
    site.keep("late")
    site.flush()
    assert open_findings(site.root) == []
    for each in (site, other):
        each.journal.close()


def test_notes_are_gone_once_their_files_are_compacted(site: Raws) -> None:
    site.keep("a", "b")
    assert len(list((site.root / "provenance/filed").rglob("*.json"))) == 1
    site.flush()
    assert list((site.root / "provenance/filed").iterdir()) == []


def test_a_note_that_is_torn_says_nothing(site: Raws) -> None:
    site.keep("a", "b")
    (note,) = (site.root / "provenance/filed").rglob("*.json")
    note.write_bytes(note.read_bytes()[:5])
    assert open_findings(site.root) == []
    site.keep("c")
    lost = site.lose(2)
    assert open_findings(site.root) == [("removed", lost)]


def test_a_quarantined_raw_file_is_one_finding(site: Raws) -> None:
    site.keep("a", "b", "c")
    damaged = site.raws()[1]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    site.flush()
    assert [kind for kind, _ in open_findings(site.root)] == ["damaged"]


def test_a_check_beside_a_busy_layout_finds_nothing(site: Raws) -> None:
    done = threading.Event()
    found: list[tuple[str, str]] = []

    def look() -> None:
        while not done.is_set():
            found.extend(open_findings(site.root))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for at in range(30):
            site.keep(f"{at}")
            if at % 5 == 4:
                site.squash()
            if at % 10 == 9:
                site.flush()
    finally:
        done.set()
        looking.join()
    assert found == []
