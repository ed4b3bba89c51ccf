"""Raw files that vanish before they are compacted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from layouts import event

from waybill.exporter import Compactor, Wanted, age_off, check, repair
from waybill.exporter.compaction import squash_hour
from waybill.exporter.directory import raw_hours
from waybill.exporter.layout import Layout
from waybill.exporter.names import RawName
from waybill.exporter.verification import Finding, accept_findings
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.home import Home

if TYPE_CHECKING:
    from waybill.transport.files import Files


class Site:
    """A home and its layout, run by hand, with a raw file for each record."""

    def __init__(self, settings: Settings, files: Files | None = None) -> None:
        self.settings = settings
        self.root = settings.root
        self.journal: Journal = Home.open(settings).journal
        self.restart(files)

    def restart(self, files: Files | None = None) -> None:
        self.layout = Layout(self.journal, self.settings, files=files, workers=1, linger_s=0.0)

    def keep(self, *dids: str) -> None:
        for did in dids:
            facet = {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", "did": did}}
            self.journal.append(
                Kind.OPENLINEAGE, event(f"run-{did}", "COMPLETE", 0, facets=facet), self.settings.system_name
            )
            self.work()

    def work(self) -> None:
        while (step := self.layout.step()).applied:
            pass
        assert step.problem is None

    def flush(self) -> None:
        self.journal.mark(b"flush")
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

    def findings(self) -> list[Finding]:
        found = [finding for checked in check(self.root) for finding in checked.findings]
        return [one for one in found if one.accepted is None]

    def kinds(self) -> list[tuple[str, str]]:
        return [(one.kind, one.path) for one in self.findings()]

    def dids(self) -> list[str]:
        return sorted(row.did for row in find(self.root))


@pytest.fixture
def site(settings: Settings) -> Site:
    return Site(settings)


@pytest.mark.parametrize("then", ["nothing", "squashed", "compacted", "another one", "restarted"])
def test_a_raw_file_that_is_deleted_is_a_finding_until_its_rows_are_back_and_it_is_accepted(
    site: Site, then: str
) -> None:
    site.keep("a", "b", "c")
    assert site.kinds() == []
    lost = site.lose(1)
    if then == "squashed":
        site.squash()
    elif then == "compacted":
        site.flush()
        site.flush()
    elif then == "another one":
        site.keep("d")
    elif then == "restarted":
        site.restart()
        site.keep("d")
    assert site.kinds() == [("removed", lost)]
    site.flush()
    assert site.kinds() == [("removed", lost)]
    assert "b" not in site.dids()
    assert flush(site.settings).problems == {}  # the archive catches up
    report = repair(site.root, Wanted(system_name="tests"), home=site.settings.home)
    assert (len(report.restored), report.left) == (1, ())
    assert {"a", "b", "c"} <= set(site.dids())
    (again,) = site.findings()
    assert again.restored
    accept_findings(site.root, [again])
    assert site.findings() == []
    site.keep("e")
    site.flush()
    assert site.findings() == []


def test_files_that_are_deleted_together_are_one_finding_each_hour(site: Site) -> None:
    site.keep("a", "b", "c", "d")
    site.lose(2)
    site.lose(1)
    node = site.journal.node
    assert site.kinds() == [("removed", f"provenance/raw/20260101/00/{node}-2-3.parquet")]


def test_whatever_moves_or_takes_raw_files_by_right_is_no_finding(site: Site, tmp_path: Path) -> None:
    other = Site(msgspec.structs.replace(site.settings, home=tmp_path / "other"))
    site.keep("a", "b", "c")
    other.keep("x", "y")
    site.squash()
    assert site.kinds() == []
    site.keep("d", "e")
    Compactor(site.root, workers=1).compact()  # by another program, which leaves the notes
    assert (site.raws(), site.kinds()) == ([], [])
    other.keep("z")
    site.keep("f")
    site.journal.append(Kind.OPENLINEAGE, event("derived", "COMPLETE", 5), "tests")
    site.flush()
    site.journal.append(Kind.OPENLINEAGE, event("derived", "FAIL", 9), "tests")  # takes back a record
    site.flush()
    assert site.kinds() == []
    assert age_off(site.root, days=0.0, now_ms=2**42).removed
    assert (site.dids(), site.kinds()) == ([], [])
    site.keep("late")
    site.flush()
    assert site.kinds() == []
    for each in (site, other):
        each.journal.close()


def test_notes_are_gone_once_their_files_are_compacted(site: Site) -> None:
    site.keep("a", "b")
    assert len(list((site.root / "provenance/filed").rglob("*.json"))) == 1
    site.flush()
    assert list((site.root / "provenance/filed").iterdir()) == []


def test_a_note_that_is_torn_says_nothing(site: Site) -> None:
    site.keep("a", "b")
    (note,) = (site.root / "provenance/filed").rglob("*.json")
    note.write_bytes(note.read_bytes()[:5])
    assert site.kinds() == []
    site.keep("c")
    lost = site.lose(2)
    assert site.kinds() == [("removed", lost)]


def test_a_quarantined_raw_file_is_one_finding(site: Site) -> None:
    site.keep("a", "b", "c")
    damaged = site.raws()[1]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    site.flush()
    assert [kind for kind, _ in site.kinds()] == ["damaged"]


def test_a_check_beside_a_busy_layout_finds_nothing(site: Site) -> None:
    done = threading.Event()
    found: list[tuple[str, str]] = []

    def look() -> None:
        while not done.is_set():
            found.extend(site.kinds())

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
