"""`waybill export`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Kept, Run


@pytest.fixture
def root(kept: Kept, tmp_path: Path) -> Path:
    """A copy of the layout, to be changed."""
    return Path(shutil.copytree(kept.home / "provenance", tmp_path / "copy" / "provenance")).parent


def test_what_is_exported_is_listed_and_may_be_deleted_here(waybill: Run, root: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("command", [("export", "there"), ("age-off",), ("find",), ("sql", "SELECT 1")])
def test_a_missing_root_is_an_error_only_when_it_was_given(
    waybill: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert waybill(*command, "--home", tmp_path / "fresh").returncode == 0
    given = waybill(*command, "--root", tmp_path / "away")
    assert (given.returncode, given.stdout) == (2, "")
    assert f"there is no folder {tmp_path / 'away'}" in given.stderr
