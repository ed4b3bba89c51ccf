"""`waybill export`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Kept, Run


@pytest.fixture
def root(kept: Kept, tmp_path: Path) -> Path:
    """A copy of the layout, to be changed."""
    return Path(shutil.copytree(kept.home / "provenance", tmp_path / "copy" / "provenance")).parent


def test_what_is_exported_is_listed_and_may_be_deleted_here(called: Run, root: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    (file,) = (root / "provenance/compacted").rglob("*.parquet")
    path, content = str(file.relative_to(root)), file.read_bytes()
    done = called("export", there, "--create", "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    (relations,) = (root / "provenance/relations").rglob("*.parquet")
    assert json.loads(done.stdout)["copied"] == [path, str(relations.relative_to(root))]
    assert (there / path).read_bytes() == content
    aged = called("age-off", "--root", root, "--only-exported", "--json")
    assert json.loads(aged.stdout) == {"removed": [], "size_bytes": 0, "waiting": []}
    again = called("export", there, "--root", root, "--delete-after")
    assert (again.returncode, again.stdout) == (0, "")
    assert "2 unchanged, 1 deleted here" in again.stderr
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
    assert "2 files copied, 0 merged, 0 unchanged" in called("export", there, "--root", root).stderr
    assert "0 files copied, 0 merged, 2 unchanged" in called("export", there, "--root", root).stderr


def test_a_folder_may_be_given_as_a_url_however_many_slashes_it_has(
    called: Run, root: Path, tmp_path: Path
) -> None:
    for number, slashes in enumerate(("file:", "file://")):
        there = tmp_path / f"there{number}"
        done = called("export", f"{slashes}{there}", "--create", "--root", root)
        assert done.returncode == 0, done.stderr
        assert list(there.rglob("*.parquet"))


def test_a_file_that_cannot_be_copied_is_exit_code_1(called: Run, root: Path, tmp_path: Path) -> None:
    (path,) = (root / "provenance/compacted").rglob("*.parquet")
    path.write_bytes(b"PAR1")
    done = called("export", tmp_path / "there", "--create", "--root", root, "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == [str(path.relative_to(root))]
    assert str(path) in done.stderr


@pytest.fixture(scope="module")
def there(kept: Kept, script: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a destination that has all of the layout."""
    folder = tmp_path_factory.mktemp("there")
    command = [str(script), "export", str(folder), "--home", str(kept.home)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder.as_uri()


@pytest.mark.parametrize(
    "question",
    ["find", "find --json --limit 2", "find --count", "find --by state,sink --csv", "trace year.csv"],
)
def test_what_was_exported_gives_the_answers_of_the_home(
    called: Run, kept: Kept, there: str, question: str
) -> None:
    here = called(*question.split(), "--home", kept.home)
    done = called(*question.split(), "--root", there)
    assert (done.returncode, done.stdout) == (0, here.stdout), done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (
            "trace year.csv --as-of now",
            "--as-of: events are not exported, only records; ask the home or the root",
        ),
        ("trace nothing.csv", "no file has the did or the name 'nothing.csv'"),
    ],
)
def test_what_an_exported_root_does_not_have_is_refused(
    called: Run, there: str, question: str, says: str
) -> None:
    done = called(*question.split(), "--root", there)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_place_that_nothing_was_exported_to_is_named(called: Run, tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    for command in (["find"], ["trace", "a"]):
        done = called(*command, "--root", url)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"waybill: nothing was exported to {url}; check the URL\n"
    done = called("find", "--root", f"{url}/nothing")
    assert (done.returncode, f"there is no folder {tmp_path}/nothing" in done.stderr) == (2, True)
    done = called("find", "--root", "ftp://host/folder")
    assert (done.returncode, "is not the URL of a supported object store" in done.stderr) == (2, True)
