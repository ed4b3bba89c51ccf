"""Damaged files are quarantined with a report that says how to restore their rows; the rest continues."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from layouts import (
    HOUR_MS,
    NODE,
    START_MS,
    Layout,
    StoppedError,
    StoppingFiles,
    findings,
    open_findings,
    record,
    temporaries,
    without_rights,
)
from stores import Store

from waybill.exporter import Compactor, Query, Wanted, export, repair
from waybill.exporter.compaction import Retraction
from waybill.exporter.names import Hour
from waybill.exporter.parquet import fill_in, to_be_sealed
from waybill.exporter.quarantine import Quarantined, list_quarantined
from waybill.exporter.query import IncompleteError, Located, locate_entry
from waybill.exporter.query.locate import Place
from waybill.exporter.verification import accept_findings
from waybill.facets import merge_all, record_key
from waybill.facets.arrow import to_table
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, flush

FIRST_HOUR = Hour("20260101", "00")
FILE = "provenance/compacted/edge/20260101/00.parquet"


def dismiss(root: Path) -> None:
    """The last step of somebody who has restored the rows."""
    accept_findings(root, findings(root))


@pytest.mark.parametrize("damage", [b"", b"PAR1 no Parquet PAR1", "cut", "flipped"])
def test_a_damaged_raw_file_is_set_aside_and_its_neighbours_are_compacted(
    layout: Layout, damage: bytes | str
) -> None:
    layout.write(*(record(f"did-{at}") for at in range(50)))
    bad = layout.raw()[0]
    layout.write(record("good"))
    layout.write(record("other hour", at_ms=HOUR_MS))
    content = bytearray(bad.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        content[4:400] = bytes(396)
    written = damage if isinstance(damage, bytes) else bytes(content)
    bad.write_bytes(written)
    report = layout.compactor().compact()
    assert (report.unreadable, report.failed) == ({}, {})
    (one,) = report.aside
    assert (layout.root / one.path, one.hour, one.size_bytes) == (bad, FIRST_HOUR, len(written))
    assert (layout.root / one.kept).read_bytes() == written
    assert [row.did for row in layout.rows()] == ["good", "other hour"]
    assert layout.raw() == []
    assert layout.compactor().compact([FIRST_HOUR]).aside == ()
    assert open_findings(layout.root) == [("damaged", one.kept)]
    dismiss(layout.root)
    assert open_findings(layout.root) == []


def test_a_good_copy_in_the_place_of_what_was_set_aside_is_compacted_then(layout: Layout) -> None:
    layout.write(record("a"))
    path = layout.raw()[0]
    content = path.read_bytes()
    path.write_bytes(b"")
    layout.add(record("b"))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert layout.compactor().compact().aside == ()
    assert [row.did for row in layout.rows()] == ["a", "b"]


@pytest.mark.parametrize("damage", ["cut", "one byte of its rows", "one byte of its footer"])
def test_a_compacted_file_that_is_not_as_it_was_sealed_is_set_aside_and_never_merged(
    layout: Layout, damage: str
) -> None:
    layout.add(record("a"), record("x", system_name="core"))
    path = layout.root / FILE
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[:-30]
    else:
        content[30 if "rows" in damage else -60] ^= 4
    path.write_bytes(content)
    layout.write(record("b"), record("y", system_name="core"))
    (one,) = layout.compactor().compact().aside
    assert one.path == FILE
    assert (layout.root / one.kept).read_bytes() == content
    assert sorted(row.did for row in layout.rows()) == ["b", "x", "y"]
    layout.write(record("c"))
    assert layout.compactor().compact().aside == ()
    assert open_findings(layout.root) == [("damaged", one.kept)]


def test_a_late_file_that_is_damaged_is_set_aside_too(layout: Layout, tmp_path: Path) -> None:
    there = Store(str(tmp_path / "there"), pyarrow.fs.LocalFileSystem(), str(tmp_path / "there"))
    layout.add(record("a"))
    export(layout.root, there.open(), delete_after=True)
    layout.add(record("b"))
    late = layout.root / FILE.replace("compacted", "late")
    late.write_bytes(b"nonsense")
    layout.write(record("c"))
    (one,) = layout.compactor().compact().aside
    assert layout.root / one.path == late
    export(layout.root, there.open())
    assert [row.did for row in there.rows()] == ["a", "c"]
    assert open_findings(layout.root) == [("damaged", one.kept)]


def test_what_cannot_be_read_now_is_left_and_tried_again(layout: Layout) -> None:
    layout.add(record("a"), record("x", system_name="core"))
    layout.write(record("b"))
    layout.write(record("c"))
    for path in (layout.root / FILE, layout.raw()[0]):
        path.rename(path.with_suffix(".kept"))
        path.symlink_to(path.name)  # reading it is an error of the system: too many levels of links
    report = layout.compactor().compact()
    assert (report.aside, list(report.unreadable)) == ((), [FIRST_HOUR])
    assert "tried again" in report.unreadable[FIRST_HOUR]
    assert len(layout.raw()) == 2
    for path in (layout.root / FILE, layout.raw()[0]):
        path.with_suffix(".kept").replace(path)
    assert layout.compactor().compact().unreadable == {}
    assert sorted(row.did for row in layout.rows()) == ["a", "b", "c", "x"]
    assert open_findings(layout.root) == []


def test_a_sealed_file_of_other_columns_is_no_damaged_one(layout: Layout) -> None:
    table = to_table([record("a")]).drop_columns("did")
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(to_be_sealed(None))
    (layout.root / FILE).parent.mkdir(parents=True)
    (layout.root / FILE).write_bytes(fill_in(sink.getvalue())[0])
    layout.write(record("b"))
    report = layout.compactor().compact()
    assert (report.aside, list(report.unreadable)) == ((), [FIRST_HOUR])
    assert len(layout.raw()) == 1


def test_a_retraction_goes_on_where_the_file_it_takes_from_is_damaged(layout: Layout) -> None:
    wrong = record("run", filename="wrong.csv")
    layout.add(record("a"), wrong)
    (layout.root / FILE).write_bytes(b"")
    raw = layout.write(record("run", filename="right.csv"))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    assert layout.rows() == [record("run", filename="right.csv")]


def test_a_repair_as_the_report_says_brings_the_rows_back(settings: Settings) -> None:
    root = settings.root
    journal = Journal(settings.home)

    def keep(*dids: str) -> None:
        for did in dids:
            fields = {"did": did, "systemName": "edge", "finalState": "COMPLETE", "created": START_MS}
            body = json.dumps([{**fields, "completed": START_MS + 5}]).encode()
            journal.append(Kind.PROVENANCE, body)
        assert flush(settings).problems == {}

    keep("a", "b")
    before = {row.did: row for row in find(root)}
    (root / FILE).write_bytes((root / FILE).read_bytes()[:-9])
    keep("c")
    entry, node = journal.read(0, limit=1)[0], journal.node
    journal.close()
    (one,) = list_quarantined(root)
    with pytest.raises(IncompleteError) as raised:
        find(root)
    assert raised.value.unread == (one.sentence,)
    assert find(root, Query(since_ms=START_MS + HOUR_MS)) == find(root, Query(system_name="other")) == []
    assert locate_entry(root, node, entry) == [Located(file=one.kept, place=Place.DAMAGED)]
    assert shlex.split(one.restore) == ["waybill", "repair", "--root", str(root)]
    assert repair(root, Wanted(system_name="edge"), home=settings.home).left == ()
    assert open_findings(root) == [("damaged", one.kept)]
    dismiss(root)
    assert {row.did: row for row in find(root) if row.did != "c"} == before
    assert open_findings(root) == []
    assert locate_entry(root, node, entry) == []


def test_what_takes_a_damaged_files_place_joins_the_full_one_at_the_destination(
    layout: Layout, store: Store
) -> None:
    full = [record(f"{at:03}", at_ms=at) for at in range(100)]
    layout.add(*full)
    export(layout.root, store.open())
    path = layout.root / FILE
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    assert "not those that were sealed" in export(layout.root, store.open()).failed[FILE]
    assert store.rows() == full
    layout.add(record("late"))
    dismiss(layout.root)
    layout.add(record("later"))
    assert export(layout.root, store.open()).merged == (FILE,)
    assert store.rows() == merge_all([*full, record("late"), record("later")])
    assert export(layout.root, store.open()).unchanged == 1


def test_a_crash_at_any_step_of_setting_aside_loses_no_file_and_no_row(tmp_path: Path) -> None:
    for at in range(1, 200, 9):
        layout = Layout(tmp_path / str(at))
        layout.add(record("a"), record("x", system_name="core"))
        (layout.root / FILE).write_bytes(b"compacted")
        layout.write(record("b"), record("y", system_name="core"))
        layout.raw()[0].write_bytes(b"raw")
        layout.write(record("c"), record("z", system_name="core"))
        try:
            Compactor(layout.root, nodes=[NODE], files=StoppingFiles(at), workers=1).compact()
        except StoppedError:
            survived = False
        else:
            survived = True
        assert {kind for kind, _ in open_findings(layout.root)} <= {"damaged", "unreadable", "left"}, at
        layout.add(record("d"))
        assert sorted(row.did for row in layout.rows()) == ["c", "d", "x", "z"]
        kept = sorted((layout.root / one.kept).read_bytes() for one in list_quarantined(layout.root))
        assert kept == [b"compacted", b"raw"]
        assert [kind for kind, _ in open_findings(layout.root)] == ["damaged", "damaged"]
        assert temporaries(layout.root) == []
        if survived:
            return
    pytest.fail("it never ran to its end")


def test_a_report_is_the_same_read_back(layout: Layout) -> None:
    layout.write(record("a"))
    layout.raw()[0].write_bytes(b"x")
    report = layout.compactor().compact()
    assert list(list_quarantined(layout.root)) == list(report.aside)
    (one,) = report.aside
    assert isinstance(one, Quarantined)
    assert "(it is not a whole Parquet file); restore its rows with `waybill repair" in one.sentence


def test_a_quarantine_that_cannot_be_read_is_not_empty(layout: Layout) -> None:
    layout.write(record("a"))
    layout.raw()[0].write_bytes(b"damaged")
    layout.compactor().compact()
    (layout.root / "provenance/damaged").chmod(0)
    with without_rights(), pytest.raises(PermissionError):
        list(list_quarantined(layout.root))
