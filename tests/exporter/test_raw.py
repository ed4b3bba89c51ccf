from __future__ import annotations

from pathlib import Path

from layouts import HOUR_MS, NODE, START_MS, record

from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import Hour, RawName
from waybill.exporter.parquet import open_file
from waybill.facets.arrow import from_table


def test_a_range_is_one_file_for_each_hour_it_touches(root: Path) -> None:
    records = [record("a"), record("b", at_ms=HOUR_MS), record("c", at_ms=HOUR_MS + 1)]
    hours = RawWriter(root).write(RawName(NODE, 7, 9), records)
    assert hours == [Hour("20260101", "00"), Hour("20260101", "01")]
    raw = root / "provenance/raw/20260101"
    assert sorted(raw.rglob("*.parquet")) == [raw / f"00/{NODE}-7-9.parquet", raw / f"01/{NODE}-7-9.parquet"]
    rows = from_table(open_file(raw / f"01/{NODE}-7-9.parquet").read())
    assert [row.did for row in rows] == ["b", "c"]


def test_a_replayed_range_overwrites_its_files_with_the_same_bytes(root: Path) -> None:
    records = [record(f"did-{at}", at_ms=at * HOUR_MS // 3, system_name=f"s{at % 2}") for at in range(9)]
    writer = RawWriter(root, workers=4)
    writer.write(RawName(NODE, 1, 9), records)
    before = {path: path.read_bytes() for path in root.rglob("*.parquet")}
    writer.write(RawName(NODE, 1, 9), records)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert len(before) == 3


def test_no_records_are_no_file(root: Path) -> None:
    assert RawWriter(root).write(RawName(NODE, 1, 1), []) == []
    assert not root.exists()


def test_the_first_and_the_last_instant_allowed_have_their_hours(root: Path) -> None:
    records = [record("first", at_ms=1 - START_MS), record("last", at_ms=253_402_300_799_999 - START_MS)]
    hours = RawWriter(root).write(RawName(NODE, 1, 2), records)
    assert hours == [Hour("19700101", "00"), Hour("99991231", "23")]
