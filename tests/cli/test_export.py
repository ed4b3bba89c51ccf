"""`waybill export` and `waybill age-off`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.exporter import Compactor
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from conftest import Kept, Run


@pytest.fixture
def root(kept: Kept, tmp_path: Path) -> Path:
    """A copy of the layout, to be changed."""
    return Path(shutil.copytree(kept.home / "provenance", tmp_path / "copy" / "provenance")).parent


def test_what_is_exported_is_listed_and_may_go_here(waybill: Run, root: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (file,) = (root / "provenance/compacted").rglob("*.parquet")
    path, content = str(file.relative_to(root)), file.read_bytes()
    done = waybill("export", there, "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["copied"] == [path]
    assert (there / path).read_bytes() == content
    aged = waybill("age-off", "--root", root, "--only-exported", "--json")
    assert json.loads(aged.stdout) == {"removed": [], "size_bytes": 0, "waiting": []}
    again = waybill("export", there, "--root", root, "--delete-after")
    assert (again.returncode, again.stdout) == (0, "")
    assert "1 unchanged, 1 deleted here" in again.stderr
    assert not (root / path).exists()


def test_a_file_that_cannot_be_copied_is_exit_code_1(waybill: Run, root: Path, tmp_path: Path) -> None:
    (path,) = (root / "provenance/compacted").rglob("*.parquet")
    path.write_bytes(b"PAR1")
    done = waybill("export", tmp_path / "there", "--root", root, "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == [str(path.relative_to(root))]
    assert str(path) in done.stderr


def test_what_goes_is_said_first_by_system_and_waits_for_its_export(waybill: Run, tmp_path: Path) -> None:
    root = tmp_path / "old"
    records = [
        ProvenanceRecord(
            did=name,
            system_name=name,
            data_source="in",
            filename="a.csv",
            transforms=(),
            final_state=FinalState.COMPLETE,
            created=1_767_225_600_000,
            completed=1_767_225_600_000,
        )
        for name in ("core", "edge")
    ]
    RawWriter(root).write(RawName("a1", 1, 2), records)
    Compactor(root).compact()
    files = {path.parts[-3]: path for path in (root / "provenance/compacted").rglob("*.parquet")}
    for path in files.values():
        os.utime(path, (1_767_232_800, 1_767_232_800))
    edge = str(files["edge"].relative_to(root))
    options = ("--root", root, "--system-days", "core=1000000", "--only-exported", "--json")
    waiting = json.loads(waybill("age-off", *options, "--dry-run").stdout)
    assert (waiting["removed"], waiting["waiting"]) == ([], [edge])
    assert waybill("export", tmp_path / "there", "--root", root).returncode == 0
    assert json.loads(waybill("age-off", *options, "--dry-run").stdout)["removed"] == [edge]
    assert files["edge"].exists()
    assert json.loads(waybill("age-off", *options).stdout)["removed"] == [edge]
    assert [name for name, path in files.items() if path.exists()] == ["core"]


def test_archived_entries_go_only_when_that_is_asked_for(waybill: Run, tmp_path: Path) -> None:
    old = tmp_path / "events/20260101/00/a1-1-2.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"entries")
    options = ("--root", tmp_path, "--home", tmp_path / "home", "--json")
    assert json.loads(waybill("age-off", *options).stdout)["removed"] == []
    asked = (*options, "--archive-days", "30")
    assert json.loads(waybill("age-off", *asked, "--only-exported").stdout)["waiting"] != []
    assert json.loads(waybill("age-off", *asked, "--dry-run").stdout)["removed"] != []
    assert old.exists()
    done = json.loads(waybill("age-off", *asked).stdout)
    assert (done["removed"], done["size_bytes"]) == ([str(old.relative_to(tmp_path))], 7)
    assert not old.exists()


@pytest.mark.parametrize("command", [("export", "there"), ("age-off",), ("find",), ("sql", "SELECT 1")])
def test_a_root_that_is_not_there_is_no_empty_one(
    waybill: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert waybill(*command, "--home", tmp_path / "fresh").returncode == 0
    given = waybill(*command, "--root", tmp_path / "away")
    assert (given.returncode, given.stdout) == (2, "")
    assert f"there is no folder {tmp_path / 'away'}" in given.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--system-days", "edge"),
        ("--system-days", "=3"),
        ("--system-days", "edge=inf"),
        ("--system-days", "edge=many"),
        ("--archive-days", "0"),
        ("--archive-days", "nan"),
        ("--archive-days", "inf"),
    ],
)
def test_days_that_cannot_be_are_exit_code_2_and_say_what_to_give(
    waybill: Run, root: Path, options: tuple[str, str]
) -> None:
    done = waybill("age-off", *options, "--root", root)
    assert (done.returncode, done.stdout) == (2, "")
    assert "give " in done.stderr
    assert "Traceback" not in done.stderr
