"""Compacting raw files in an object store gives the same rows as on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from layouts import HOUR_MS, Layout, record
from proxy import Fault, Proxy
from stores import Store, new_bucket
from waiting import at_once

from waybill.exporter.compaction import CompactionReport, compact_remote
from waybill.facets import merge_all

if TYPE_CHECKING:
    import pytest

    from waybill.facets import ProvenanceRecord

ROWS = [record(f"{at:03}", at_ms=at * HOUR_MS // 20, system_name="ab"[at % 2]) for at in range(40)]
"""Two hours of two systems."""


def put_raw(store: Store, folder: Path, *records: ProvenanceRecord, node: str = "aa") -> list[str]:
    """Upload the raw files of some records, in one range."""
    layout = Layout(folder / node)
    layout.write(*records, node=node)
    paths = [str(path.relative_to(layout.root)) for path in layout.raw()]
    for path in paths:
        store.put(path, (layout.root / path).read_bytes())
    return paths


def raws(store: Store) -> list[str]:
    return [path for path in store.files() if path.startswith("provenance/raw/")]


def test_raw_files_of_many_hosts_become_one_file_for_each_system_and_hour(
    bucket: Store, tmp_path: Path
) -> None:
    put_raw(bucket, tmp_path, *ROWS[:30])
    put_raw(bucket, tmp_path, *ROWS[10:], node="bb")
    local = Layout(tmp_path / "local")
    local.add(*ROWS)
    report = compact_remote(bucket.url)
    assert report.published == tuple(str(path.relative_to(local.root)) for path in local.compacted())
    assert (report.aside, report.failed, report.unreadable) == ((), {}, {})
    assert merge_all(bucket.rows()) == merge_all(local.rows()) == merge_all(ROWS)
    assert raws(bucket) == []
    assert compact_remote(bucket.url) == CompactionReport()


def test_what_comes_late_is_merged_with_the_hour_that_is_there(bucket: Store, tmp_path: Path) -> None:
    put_raw(bucket, tmp_path, *ROWS[:4])
    compact_remote(bucket.url)
    late = record("late", at_ms=1, system_name="a")
    put_raw(bucket, tmp_path, late, ROWS[0], node="bb")
    assert compact_remote(bucket.url).published == ("provenance/compacted/a/20260101/00.parquet",)
    assert merge_all(bucket.rows()) == merge_all([*ROWS[:4], late])
    assert len(bucket.rows()) == 5


def test_a_damaged_raw_file_is_set_aside_there_with_a_report(bucket: Store, tmp_path: Path) -> None:
    put_raw(bucket, tmp_path, *ROWS[:4])
    damaged, *_ = put_raw(bucket, tmp_path, record("lost"), node="bb")
    bucket.put(damaged, b"nonsense")
    (one,) = compact_remote(bucket.url).aside
    assert one.path == damaged
    files = bucket.files()
    assert files[one.kept] == b"nonsense"
    assert json.loads(files[one.kept.replace(".damaged", ".json")])["path"] == damaged
    assert bucket.url in one.restore
    assert raws(bucket) == []
    assert sorted(row.did for row in bucket.rows()) == sorted(row.did for row in ROWS[:4])


def test_what_does_not_arrive_keeps_its_raw_files_and_is_done_the_next_time(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.exporter.object_stores._RETRIES", 0)
    with Proxy(s3, lambda put: Fault.BUSY if put % 2 else None) as proxy:
        store = new_bucket(s3, monkeypatch, through=proxy.address)
        put_raw(store, tmp_path, *ROWS)
        before = raws(store)
        failed = compact_remote(store.url).failed
        assert failed
        assert {f"provenance/raw/{hour.day}/{hour.hour}/aa-1-10.parquet" for hour in failed} == set(
            raws(store)
        )
        assert set(raws(store)) <= set(before)
        proxy.plan = lambda _: None
        assert compact_remote(store.url).failed == {}
    assert raws(store) == []
    assert merge_all(store.rows()) == merge_all(ROWS)
    assert len(store.rows()) == len(ROWS)


def test_two_compactors_at_once_lose_nothing_and_leave_nothing_twice(bucket: Store, tmp_path: Path) -> None:
    for at in range(2):
        put_raw(bucket, tmp_path, *ROWS[at::3], node=f"a{at}")
    put_raw(bucket, tmp_path, *ROWS, node="bb")
    reports: list[CompactionReport] = []
    at_once(lambda: reports.append(compact_remote(bucket.url)) for _ in range(2))
    assert [report.failed for report in reports] == [{}, {}]
    assert raws(bucket) == []
    assert merge_all(bucket.rows()) == merge_all(ROWS)
    assert len(bucket.rows()) == len(ROWS)
