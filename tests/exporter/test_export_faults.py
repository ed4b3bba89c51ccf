"""Object stores that fail, and exports that are killed, halfway."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from layouts import HOUR_MS, Layout, in_order, record
from proxy import Fault, Proxy
from stores import Store, new_bucket

from waybill.exporter import export, open_destination
from waybill.facets import merge_all

ROWS = [record(f"{at:04}", at_ms=at * 4 * HOUR_MS // 400) for at in range(400)]
"""Four hours of one day: five puts with the manifest."""
PUTS = 5
TRIES = 10
"""More than any fault needs, because a busy machine may exceed a request's time limit without one."""


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("filed"))
    layout.add(*ROWS)
    return layout


@pytest.fixture
def layout(filed: Layout, root: Path) -> Layout:
    return filed.copy(root)


def assert_whole(store: Store) -> None:
    """Check that each file there is complete."""
    for path, data in store.files().items():
        if path.endswith(".parquet"):
            assert pq.ParquetFile(pa.BufferReader(data)).read().num_rows
        else:
            json.loads(data)


def assert_complete(store: Store) -> None:
    assert in_order(store.rows()) == in_order(ROWS)
    files = store.files()
    (manifest,) = (path for path in files if path.endswith(".json"))
    listed = {path: one["sha256"] for path, one in json.loads(files.pop(manifest)).items()}
    assert listed == {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (Fault.BUSY, PUTS - 1),
        (Fault.STALL, 0),
        (Fault.CUT, PUTS - 1),
        (Fault.LOST, 0),
        (Fault.LOST, PUTS - 1),
    ],
)
def test_a_store_that_fails_in_the_middle_gets_whole_files_and_in_the_end_all(
    layout: Layout, s3: str, monkeypatch: pytest.MonkeyPatch, fault: Fault, first: int
) -> None:
    with Proxy(s3, lambda put: fault if first <= put < first + 2 else None) as proxy:
        store = new_bucket(s3, monkeypatch, through=proxy.address)
        for _ in range(TRIES):
            done = export(layout.root, store.open(timeout_s=0.5), delete_after=True)
            assert_whole(store)
            if not done.failed:
                break
        assert proxy.puts > first
    assert done.failed == {}
    assert layout.compacted() == []
    assert_complete(store)


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.CUT])
def test_a_late_row_joins_its_hour_though_the_store_fails_to_give_it(
    layout: Layout, s3: str, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    late, failing = record("late", at_ms=1), iter([fault, fault])
    with Proxy(s3) as proxy:
        store = new_bucket(s3, monkeypatch, through=proxy.address)
        assert export(layout.root, store.open(), delete_after=True).failed == {}
        layout.add(late)
        proxy.plan_gets = lambda: next(failing, None)
        for _ in range(TRIES):
            done = export(layout.root, store.open(timeout_s=0.5), delete_after=True)
            assert_whole(store)
            if not done.failed:
                break
        assert next(failing, None) is None
    assert done.failed == {}
    assert store.rows() == merge_all([*ROWS, late])


def test_a_store_that_is_down_costs_three_files_time_and_every_file_says_why(
    layout: Layout, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket(s3, monkeypatch, through="127.0.0.1:9")
    done = export(layout.root, store.open(timeout_s=0.2), delete_after=True)
    assert len(done.failed) == len(layout.compacted()) == 4
    assert all(why.endswith("export again") for why in done.failed.values())
    assert sum("not tried" in why for why in done.failed.values()) == 1


def test_a_bucket_that_does_not_exist_is_said(
    layout: Layout, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_bucket(s3, monkeypatch)
    done = export(layout.root, open_destination("s3://not-there/lineage"), delete_after=True)
    assert len(done.failed) == len(layout.compacted()) == 4
    assert sum("NoSuchBucket" in why for why in done.failed.values()) == 3
