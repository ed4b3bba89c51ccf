"""The export to a folder, and to a server that speaks S3's protocol."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layouts import HOUR_MS, Layout, record
from waiting import at_once

from waybill.exporter import DestinationError, export, open_destination
from waybill.exporter.compaction import Retraction
from waybill.exporter.exporting import Exported
from waybill.facets import merge_all, record_key
from waybill.transport import NotFoundError

if TYPE_CHECKING:
    from stores import Store

    from waybill.facets import ProvenanceRecord

FILE = "provenance/compacted/edge/20260101/00.parquet"
NEXT = "provenance/compacted/edge/20260101/01.parquet"
LATE = "provenance/late/edge/20260101/00.parquet"
MANIFEST = "provenance/manifest/edge/20260101.json"


def filled(layout: Layout, *records: ProvenanceRecord) -> Layout:
    layout.add(*records)
    return layout


def run(layout: Layout, store: Store, *, delete_after: bool = False) -> Exported:
    return export(layout.root, store.open(), delete_after=delete_after)


def assert_listed(store: Store) -> None:
    """Check that the manifests list exactly the files that are there."""
    listed: dict[str, dict[str, object]] = {}
    files = store.files()
    for path in [path for path in files if "/manifest/" in path]:
        listed |= json.loads(files.pop(path))
    assert {path: one["sha256"] for path, one in listed.items()} == {
        path: hashlib.sha256(data).hexdigest() for path, data in files.items()
    }
    assert {path: one["size_bytes"] for path, one in listed.items()} == {
        path: len(data) for path, data in files.items()
    }


def test_the_destination_holds_the_files_as_they_are_and_a_manifest(layout: Layout, store: Store) -> None:
    filled(layout, record("a"), record("b", at_ms=HOUR_MS), record("c", system_name="core/7 ü"))
    done = run(layout, store)
    assert done.copied == tuple(sorted(str(path.relative_to(layout.root)) for path in layout.compacted()))
    assert (done.merged, done.unchanged, done.failed) == ((), 0, {})
    there = store.files()
    assert all(there[path] == (layout.root / path).read_bytes() for path in done.copied)
    assert done.size_bytes == sum(len(there[path]) for path in done.copied)
    assert json.loads(there[MANIFEST])[FILE]["rows"] == 1
    assert_listed(store)


def test_only_what_changed_is_copied_again(layout: Layout, store: Store) -> None:
    filled(layout, record("a"), record("b", at_ms=HOUR_MS))
    run(layout, store)
    assert run(layout, store) == Exported(unchanged=2)
    filled(layout, record("c", at_ms=HOUR_MS))
    done = run(layout, store)
    assert (done.copied, done.unchanged) == ((NEXT,), 1)
    assert store.files()[NEXT] == (layout.root / NEXT).read_bytes()
    assert_listed(store)


def test_a_late_row_of_an_hour_that_has_left_joins_all_that_was_exported(
    layout: Layout, store: Store
) -> None:
    rows = [record(f"{at:03}", at_ms=at) for at in range(200)]
    filled(layout, *rows)
    assert run(layout, store, delete_after=True).removed == (FILE,)
    assert layout.compacted() == []
    late = record("late", at_ms=50, annotations={"k": "v"})
    filled(layout, late)
    assert (layout.compacted(), layout.raw()) == ([], [])
    done = run(layout, store, delete_after=True)
    assert (done.copied, done.merged, done.removed) == ((), (LATE,), (LATE,))
    assert store.rows() == merge_all([*rows, late])
    assert run(layout, store) == Exported()
    assert_listed(store)


def test_the_only_record_of_an_hour_leaves_the_destination_too(layout: Layout, store: Store) -> None:
    wrong = record("a")
    filled(layout, wrong)
    run(layout, store)
    raw = layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    assert run(layout, store).copied == (FILE,)
    assert store.rows() == []
    assert_listed(store)


def test_what_another_host_exported_is_merged_not_replaced(
    layout: Layout, store: Store, tmp_path: Path
) -> None:
    other = filled(Layout(tmp_path / "other"), record("b"), record("shared"))
    filled(layout, record("a"), record("shared", annotations={"k": "v"}))
    run(layout, store)
    assert run(other, store).merged == (FILE,)
    expected = [record("a"), record("b"), record("shared", annotations={"k": "v"})]
    assert store.rows() == expected
    filled(layout, record("c"))
    assert run(layout, store).merged == (FILE,)
    assert store.rows() == merge_all([*expected, record("c")])
    assert run(other, store).unchanged == 1
    assert_listed(store)


def test_exports_of_many_hosts_at_once_lose_nothing(store: Store, tmp_path: Path) -> None:
    layouts = [filled(Layout(tmp_path / str(at)), record(f"d{at}")) for at in range(4)]
    failed: list[dict[str, str]] = []

    def export_one(layout: Layout) -> None:
        failed.append(dict(run(layout, store).failed))

    at_once(partial(export_one, layout) for layout in layouts)
    assert failed == [{}] * 4
    assert store.rows() == [record(f"d{at}") for at in range(4)]
    assert_listed(store)


def test_without_its_notes_an_export_finds_out_what_is_there(layout: Layout, store: Store) -> None:
    filled(layout, record("a"))
    run(layout, store)
    shutil.rmtree(layout.root / "provenance/exports")
    assert run(layout, store) == Exported(unchanged=1)
    assert store.rows() == [record("a")]


def test_a_dry_run_changes_nothing_anywhere(layout: Layout, store: Store) -> None:
    filled(layout, record("a"))
    assert export(layout.root, store.open(), dry_run=True, delete_after=True) == Exported(copied=(FILE,))
    assert store.files() == {}
    assert not (layout.root / "provenance/exports").exists()
    assert len(layout.compacted()) == 1


def test_a_damaged_file_is_named_and_the_others_are_copied(layout: Layout, store: Store) -> None:
    filled(layout, record("a"), record("b", at_ms=HOUR_MS))
    layout.compacted()[0].write_bytes(b"PAR1 and nothing more PAR1")
    done = run(layout, store, delete_after=True)
    assert (done.copied, done.removed) == ((NEXT,), (NEXT,))
    assert list(done.failed) == [FILE]
    assert done.failed[FILE].endswith(f"run `waybill repair --root {layout.root}`")


@pytest.mark.parametrize("altered", [True, False])
def test_a_damaged_file_at_the_destination_is_named_there_and_never_merged(
    layout: Layout, store: Store, *, altered: bool
) -> None:
    filled(layout, record("a"))
    run(layout, store, delete_after=True)
    data = bytearray(store.files()[FILE])
    data[len(data) // 2] ^= 1
    damaged = bytes(data) if altered else b"nonsense"
    store.put(FILE, damaged)
    filled(layout, record("late"), *(record("b", at_ms=at * HOUR_MS) for at in range(1, 6)))
    done = run(layout, store, delete_after=True)
    assert list(done.failed) == [LATE]
    assert done.failed[LATE].startswith(f"{store.url}/{FILE} ")
    assert len(done.copied) == 5
    assert store.files()[FILE] == damaged


def test_a_root_is_not_exported_to_itself(layout: Layout) -> None:
    filled(layout, record())
    with pytest.raises(DestinationError, match="itself"):
        export(layout.root, open_destination(str(layout.root)), delete_after=True)
    assert len(layout.compacted()) == 1


@pytest.mark.parametrize("where", ["ftp://host/folder", "memory:///", "s3://"])
def test_what_is_no_destination_is_refused(where: str) -> None:
    with pytest.raises((DestinationError, NotFoundError), match="give s3://bucket/folder"):
        open_destination(where)
