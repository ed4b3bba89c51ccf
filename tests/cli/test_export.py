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
    done = waybill("export", there, "--create", "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["copied"] == [path]
    assert (there / path).read_bytes() == content
    aged = waybill("age-off", "--root", root, "--only-exported", "--json")
    assert json.loads(aged.stdout) == {"removed": [], "size_bytes": 0, "waiting": []}
    again = waybill("export", there, "--root", root, "--delete-after")
    assert (again.returncode, again.stdout) == (0, "")
    assert "1 unchanged, 1 deleted here" in again.stderr
    assert not (root / path).exists()


def test_it_says_how_many_files_there_were_and_when_there_was_nothing(
    called: Run, root: Path, tmp_path: Path
) -> None:
    empty, there = tmp_path / "empty" / "provenance/raw", tmp_path / "there"
    empty.mkdir(parents=True)
    there.mkdir()
    done = called("export", there, "--root", tmp_path / "empty")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"nothing to export: no files are compacted below {tmp_path / 'empty'} yet" in done.stderr
    assert "1 file copied, 0 merged, 0 unchanged" in called("export", there, "--root", root).stderr
    assert "0 files copied, 0 merged, 1 unchanged" in called("export", there, "--root", root).stderr


def test_a_folder_may_be_given_as_a_url_however_many_slashes_it_has(
    called: Run, root: Path, tmp_path: Path
) -> None:
    for number, slashes in enumerate(("file:", "file://")):
        there = tmp_path / f"there{number}"
        done = called("export", f"{slashes}{there}", "--create", "--root", root)
        assert done.returncode == 0, done.stderr
        assert list(there.rglob("*.parquet"))


def test_a_file_that_cannot_be_copied_is_exit_code_1(waybill: Run, root: Path, tmp_path: Path) -> None:
    (path,) = (root / "provenance/compacted").rglob("*.parquet")
    path.write_bytes(b"PAR1")
    done = waybill("export", tmp_path / "there", "--create", "--root", root, "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == [str(path.relative_to(root))]
    assert str(path) in done.stderr
