from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from layouts import FILES, HOUR_MS, START_MS, Layout, findings, kinds, record, records_strategy

from waybill.exporter import check, compare, export, open_destination
from waybill.exporter.query import Difference
from waybill.facets import ProvenanceRecord, merge_all, record_key
from waybill.facets.arrow import to_table

FEW = settings(FILES, max_examples=5)
FILE = "provenance/compacted/edge/20260101/00.parquet"


def forge(
    root: Path, *records: ProvenanceRecord, path: str = FILE, row_group_size: int | None = None
) -> None:
    """Write a compacted file that no compactor would write."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(to_table(records), target, store_schema=False, row_group_size=row_group_size)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([record("a", at_ms=HOUR_MS)], "hour"),
        ([record("a", at_ms=-1)], "hour"),
        ([record("a", system_name="core")], "system"),
        ([record("a"), record("b", system_name="core")], "system"),
        ([record("b"), record("a")], "order"),
        ([record("a", at_ms=1), record("b")], "order"),
        ([record("a"), record("a")], "repeats"),
        ([record("a"), record("a", annotations={"k": "v"})], "repeats"),
        ([], "empty"),
    ],
)
@pytest.mark.parametrize("row_group_size", [None, 1])
def test_rows_that_the_layout_does_not_allow_are_found_in_one_row_group_and_across_several(
    layout: Layout, rows: list[ProvenanceRecord], kind: str, row_group_size: int | None
) -> None:
    forge(layout.root, *rows, row_group_size=row_group_size)
    assert kinds(layout.root) == [(FILE, kind)]


def test_two_records_that_share_a_place_are_no_repeat_and_in_order(layout: Layout) -> None:
    forge(layout.root, record("a", data_sink="x"), record("a", data_sink="y"), record("b"))
    assert findings(layout.root) == []


def test_damaged_files_and_files_of_another_schema_cannot_be_read(layout: Layout) -> None:
    layout.add(record())
    (path,) = layout.compacted()
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-20])
    other = path.with_name("01.parquet")
    pq.write_table(to_table([record(at_ms=HOUR_MS)]).drop_columns("did"), other)
    assert kinds(layout.root) == [(FILE, "unreadable"), (FILE.replace("00", "01"), "unreadable")]
    fix = f"run `waybill repair --root {layout.root}`"
    assert [finding.what for finding in findings(layout.root)] == [
        f"it is damaged (it is not a whole Parquet file); {fix}",
        f"it is damaged (its columns are not those of the provenance layout); {fix}",
    ]


def test_what_is_no_file_of_the_layout_is_found_and_unpublished_files_are_not(layout: Layout) -> None:
    layout.write(record())
    raw = layout.raw()[0]
    for name in ("notes.txt", f".{raw.name}.12ab.tmp"):
        (raw.parent / name).write_bytes(b"x")
    forge(layout.root, record(), path="provenance/compacted/edge/2026010/00.parquet")
    assert kinds(layout.root) == [
        ("provenance/raw/20260101/00/notes.txt", "stray"),
        ("provenance/compacted/edge/2026010/00.parquet", "stray"),
    ]


def test_a_raw_file_left_beside_the_compacted_file_that_covers_it_is_found(layout: Layout) -> None:
    layout.write(record("a"), record("b", system_name="core"))
    (raw,) = layout.raw()
    content = raw.read_bytes()
    layout.compactor().compact()
    raw.parent.mkdir(parents=True)
    raw.write_bytes(content)
    (raw.parent / "ffff-1-9.parquet").write_bytes(content)
    assert kinds(layout.root) == [(str(raw.relative_to(layout.root)), "left")]


def test_a_destination_is_held_against_its_manifests(layout: Layout, tmp_path: Path) -> None:
    layout.add(record("a"), record("b", at_ms=HOUR_MS), record("c", at_ms=2 * HOUR_MS))
    there = tmp_path / "there"
    export(layout.root, open_destination(str(there)))
    assert kinds(there) == []
    first, second, third = sorted((there / "provenance/compacted").rglob("*.parquet"))
    second.unlink()
    first.write_bytes(third.read_bytes())
    (third.parent / "09.parquet").write_bytes(third.read_bytes())
    told = [(path, kind) for path, kind in kinds(there) if kind == "manifest"]
    expected = [first, second, third.parent / "09.parquet"]
    assert told == [(str(path.relative_to(there)), "manifest") for path in expected]
    manifest = next((there / "provenance/manifest").rglob("*.json"))
    manifest.write_bytes(b"{")
    assert (str(manifest.relative_to(there)), "manifest") in kinds(there)


def test_an_empty_root_is_right(tmp_path: Path) -> None:
    assert list(check(tmp_path)) == []


@FEW
@given(st.lists(records_strategy(), max_size=12), st.lists(records_strategy(), max_size=12))
def test_the_comparison_is_the_difference_of_the_two_sets(
    ours: list[ProvenanceRecord], theirs: list[ProvenanceRecord]
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = Layout(Path(one)), Layout(Path(two))
        first.write(*ours)
        second.add(*theirs)
        mine = {record_key(row): row for row in merge_all(ours)}
        other = {record_key(row): row for row in merge_all(theirs)}
        expected = [
            (mine.get(key), other.get(key))
            for key in mine.keys() | other.keys()
            if mine.get(key) != other.get(key)
        ]
        found = list(compare(first.root, second.root))
        assert len(found) == len(expected)
        for mine_, other_ in expected:
            assert Difference(mine_, other_) in found


def test_one_row_of_a_full_hour_that_differs_is_the_only_one_named(layout: Layout, tmp_path: Path) -> None:
    rows = [record(f"{at:06}", at_ms=at // 3) for at in range(20_000)]
    changed = record("015000", at_ms=15_000 // 3, filename="other.csv")
    copy = Layout(tmp_path / "copy")
    layout.write(*rows)
    copy.write(*rows[:15_000], changed, *rows[15_001:])
    layout.compactor().compact()
    assert list(compare(layout.root, copy.root)) == [Difference(rows[15_000], changed)]
    assert rows[0].completed == START_MS
