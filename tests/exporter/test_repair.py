"""Gaps in the archive, and the repair: entries that the journal or the archive still has are refiled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layouts import HOUR_MS, StoppedError, StoppingFiles, findings, open_findings
from sites import Site

from waybill.exporter import IncompleteError, Wanted, check, repair
from waybill.exporter.names import RawName
from waybill.exporter.repairing import RepairReport
from waybill.exporter.verification import accept_findings
from waybill.lineage import find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.transport import Settings
    from waybill.transport.files import Files

WANTED = Wanted(system_name="edge")
HOURS = ("provenance/compacted/edge/20260101/00.parquet", "provenance/compacted/edge/20260101/01.parquet")


class Archived(Site):
    """A home and its root: a file of the archive for each of three records, the second an hour later."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        for did, at_ms in (("a", 0), ("b", HOUR_MS)):
            self.accept(did, at_ms)
            self.flush("archive")
        self.keep("c")
        self.before = self.records()

    def keep(self, did: str) -> None:
        self.accept(did)
        self.flush()

    def records(self) -> list[str]:
        return sorted(row.did for row in find(self.root))

    def archived(self) -> list[Path]:
        return sorted(
            (self.root / "events").rglob("*.parquet"), key=lambda path: RawName.parse(path.name) or ()
        )

    def kinds(self) -> list[str]:
        return [kind for kind, _ in open_findings(self.root)]

    def repair(self, *, dry_run: bool = False, files: Files | None = None) -> RepairReport:
        return repair(self.root, WANTED, home=self.settings.home, dry_run=dry_run, files=files)

    def claim(self, first: int, last: int) -> None:
        """Make the archive's projection claim to have begun these ranges."""
        raw = RawName.parse(self.archived()[0].name)
        assert raw is not None
        path = self.root / "nodes" / raw.node / "archive.json"
        claimed = json.loads(path.read_bytes()) | {"first": first, "last": last}
        path.write_text(json.dumps(claimed))

    def forget_ledger(self) -> None:
        shutil.rmtree(self.root / "provenance/ledger")
        shutil.rmtree(self.root / "provenance/seals")


@pytest.fixture
def site(settings: Settings) -> Iterator[Archived]:
    made = Archived(settings)
    yield made
    made.close()


def test_a_whole_archive_has_no_gap_and_nothing_is_repaired(site: Archived) -> None:
    assert site.kinds() == []
    assert site.repair() == RepairReport()


@pytest.mark.parametrize("is_in_ledger", [True, False])
def test_a_file_that_the_archive_lacks_is_filed_again_as_it_was(
    site: Archived, *, is_in_ledger: bool
) -> None:
    lost = site.archived()[1]
    content = lost.read_bytes()
    lost.unlink()
    if not is_in_ledger:
        site.forget_ledger()
    assert set(site.kinds()) == {"chain", "removed" if is_in_ledger else "gap"}
    path = str(lost.relative_to(site.root))
    assert site.repair(dry_run=True).archived == (path,)
    assert not lost.exists()
    report = site.repair()
    assert (report.archived, report.left) == ((path,), ())
    assert lost.read_bytes() == content
    assert site.kinds() == []
    assert site.repair() == RepairReport()
    site.keep("d")
    assert site.kinds() == []


def test_records_that_neither_the_archive_nor_the_layout_has_are_brought_back(site: Archived) -> None:
    site.archived()[1].unlink()
    (site.root / HOURS[1]).unlink()
    site.forget_ledger()
    assert site.records() == ["a", "c"]
    report = site.repair()
    assert (report.hours, report.left) == (("20260101/01",), ())
    assert site.records() == site.before
    assert site.kinds() == []


def test_a_damaged_file_of_the_archive_is_replaced_while_the_journal_has_its_entries(site: Archived) -> None:
    damaged = site.archived()[1]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-9])
    assert "unreadable" in site.kinds()
    report = site.repair()
    assert (len(report.restored), report.left) == (1, ())
    assert damaged.read_bytes() == content
    assert site.kinds() == ["damaged"]
    assert site.repair() == RepairReport()
    accept_findings(site.root, findings(site.root))
    assert site.kinds() == []


@pytest.mark.parametrize("how", ["deleted", "older", "cut"])
def test_an_hour_that_lost_its_file_gets_its_rows_back(site: Archived, how: str) -> None:
    path = site.root / HOURS[0]
    older = path.read_bytes()
    site.keep("d")
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes({"older": older, "cut": path.read_bytes()[:-20]}[how])
    rows = ["a", "b", "c", "d", "e"]
    if how == "deleted":
        site.flush()
    site.keep("e")
    with pytest.raises(IncompleteError, match="waybill repair"):
        site.records()
    report = site.repair()
    assert (report.hours, report.left) == (("20260101/00",), ())
    assert site.records() == rows
    found = findings(site.root)
    assert [one.id for one in found] == list(report.restored)
    assert all(one.restored for one in found)
    assert site.repair() == RepairReport()
    accept_findings(site.root, found)
    assert site.kinds() == []


def test_what_neither_has_is_named_and_stays_left(site: Archived) -> None:
    lost = site.archived()[1]
    raw = RawName.parse(lost.name)
    assert raw is not None
    lost.unlink()
    site.journal.prune(raw.last - 1, 2**50)
    for _ in range(2):
        report = site.repair()
        lacking = f"entries {raw.first} to {raw.last - 1} of the journal {raw.node}"
        assert report.left == (f"{lacking} are neither in the archive nor in the journal",)
    assert f"{raw.node}-{raw.last}-{raw.last}" in {path.stem for path in site.archived()}


def test_a_gap_at_either_end_is_told_by_what_the_root_remembers(site: Archived) -> None:
    first, *_, last = [RawName.parse(path.name) for path in site.archived()]
    assert first is not None
    assert last is not None
    site.claim(1, last.last)
    assert site.kinds() == []
    site.archived()[-1].unlink()
    site.archived()[0].unlink()
    site.forget_ledger()
    gaps = [path for kind, path in open_findings(site.root) if kind == "gap"]
    assert gaps == [f"events/{first}", f"events/{last}"]
    site.repair()
    assert site.kinds() == []
    assert [RawName.parse(path.name) for path in site.archived()][::2] == [first, last]


def test_a_range_that_is_being_written_is_no_gap(site: Archived) -> None:
    checking = check(site.root)
    last = RawName.parse(site.archived()[-1].name)
    assert last is not None
    site.claim(1, last.last)
    next(checking)
    site.claim(1, last.last + 10)
    assert [finding for checked in checking for finding in checked.findings] == []
    claimed = f"events/{last.node}-{last.last + 1}-{last.last + 10}.parquet"
    assert open_findings(site.root) == [("gap", claimed)]


def test_a_repair_that_is_cut_short_anywhere_is_done_by_the_next(site: Archived) -> None:
    lost = site.archived()[1]
    content = lost.read_bytes()
    lost.unlink()
    (site.root / HOURS[0]).write_bytes(b"cut")
    kept = site.root.with_name("kept")
    shutil.copytree(site.root, kept)
    for at in range(1, 300, 31):
        shutil.rmtree(site.root)
        shutil.copytree(kept, site.root)
        try:
            site.repair(files=StoppingFiles(at))
        except StoppedError:
            site.repair()
        else:
            break
        assert lost.read_bytes() == content
        assert site.records() == site.before
        assert set(site.kinds()) == {"damaged"}
    else:
        pytest.fail("it never ran to its end")


def test_what_an_earlier_node_archived_is_filed_again(site: Archived) -> None:
    lost = site.archived()[0]
    content = lost.read_bytes()
    assert site.journal.renew_node(site.journal.node, "a test")
    site.keep("d")
    lost.unlink()
    assert site.repair().left == ()
    assert lost.read_bytes() == content


def test_what_an_earlier_node_began_and_another_filed_is_no_gap(site: Archived) -> None:
    last = RawName.parse(site.archived()[-1].name)
    assert last is not None
    site.claim(1, last.last + 2)
    assert site.kinds() == ["gap"]
    site.keep("d")
    assert {path.name.partition("-")[0] for path in site.archived()} > {last.node}
    assert site.kinds() == []
