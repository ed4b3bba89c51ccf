"""Relations: what is published of files beside their records is exported and aged off with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waybill.exporter import age_off, export, open_destination
from waybill.exporter.query import ExportedFiles
from waybill.exporter.relations import Relation, read_relations, relation_files, write_relations
from waybill.transport.files import Files

DAY = "20260131"
PATH = f"provenance/relations/edge/{DAY}-node.parquet"
DAY_MS = 86_400_000
NOON_MS = 1_769_860_800_000
"""Of that day."""

JOINED: Relation = ("ab", "parent", "b", NOON_MS)
READ: Relation = ("ab", "input", "lake/orders", NOON_MS + 1)


def rows_of(path: Path) -> list[Relation]:
    """The rows of a published file."""
    return [
        (row["did"], row["kind"], row["value"], int(row["time"].timestamp() * 1_000))
        for row in read_relations(path).to_pylist()
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with relations of one system and day, the file changed on that day."""
    root = tmp_path / "root"
    write_relations(Files(), root / PATH, [JOINED])
    os.utime(path_in(root), (NOON_MS / 1_000, NOON_MS / 1_000))
    return root


def path_in(root: Path) -> Path:
    """The one file with relations below a root."""
    [(key, path)] = relation_files(root)
    assert key == ("edge", DAY)
    return path


OPEN: Relation = ("slow", "open", "{}", NOON_MS)


def test_what_was_told_stays_and_what_is_open_does_not(root: Path) -> None:
    write_relations(Files(), root / PATH, [READ, OPEN])
    assert rows_of(path_in(root)) == [READ, JOINED, OPEN]
    write_relations(Files(), root / PATH, [])
    assert rows_of(path_in(root)) == [READ, JOINED]


def test_a_file_that_cannot_be_read_is_written_anew(root: Path) -> None:
    path_in(root).write_bytes(b"damaged")
    write_relations(Files(), root / PATH, [READ])
    assert rows_of(path_in(root)) == [READ]


def test_an_export_has_the_relations_as_they_are_now(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "export"
    destination = open_destination(place)
    assert export(root, destination).copied == (PATH,)
    assert export(root, destination).unchanged == 1
    write_relations(Files(), root / PATH, [READ, OPEN])
    export(root, destination)
    assert rows_of(path_in(place)) == [READ, JOINED, OPEN]
    exported = ExportedFiles(place.as_uri())
    [path] = exported.relation_files()
    assert exported.read_relations(path).to_pylist() == read_relations(path_in(root)).to_pylist()


def test_what_another_copy_of_a_root_has_exported_is_merged(root: Path, tmp_path: Path) -> None:
    other, place = tmp_path / "other", tmp_path / "export"
    write_relations(Files(), other / PATH, [READ, ("ab", "parent", "b", NOON_MS - 5), OPEN])
    for one in (other, root):
        assert not export(one, open_destination(place)).failed
    assert rows_of(path_in(place)) == [READ, ("ab", "parent", "b", NOON_MS - 5)]
    assert not export(root, open_destination(place)).copied


def test_a_damaged_file_replaces_nothing_at_a_destination(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "export"
    export(root, open_destination(place))
    damaged = path_in(root).read_bytes()[:-8]
    path_in(place).write_bytes(damaged)
    other = tmp_path / "other"
    write_relations(Files(), other / PATH, [READ])
    assert list(export(other, open_destination(place)).failed) == [PATH]
    assert path_in(place).read_bytes() == damaged


def test_relations_are_aged_off_a_day_after_the_records_of_their_day(root: Path) -> None:
    end_ms = NOON_MS + DAY_MS // 2
    assert age_off(root, days=3, now_ms=end_ms + 4 * DAY_MS - 1).removed == ()
    assert age_off(root, days=3, now_ms=end_ms + 4 * DAY_MS, dry_run=True).removed == (PATH,)
    assert age_off(root, days=3, days_by_system={"edge": 9}, now_ms=end_ms + 4 * DAY_MS).removed == ()
    assert age_off(root, days=3, now_ms=end_ms + 4 * DAY_MS).removed == (PATH,)
    assert list(relation_files(root)) == []


def test_relations_that_tell_of_an_open_file_or_wait_for_an_export_stay(root: Path, tmp_path: Path) -> None:
    now_ms = NOON_MS + 9 * DAY_MS
    assert age_off(root, days=3, only_exported=True, now_ms=now_ms).waiting == (PATH,)
    export(root, open_destination(tmp_path / "export"))
    assert age_off(root, days=3, only_exported=True, dry_run=True, now_ms=now_ms).removed == (PATH,)
    for rows, removed in ([OPEN], ()), ([], (PATH,)):
        write_relations(Files(), root / PATH, rows)
        os.utime(path_in(root), (NOON_MS / 1_000, NOON_MS / 1_000))
        assert age_off(root, days=3, now_ms=now_ms).removed == removed
