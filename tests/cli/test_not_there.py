"""What is named and not there is exit code 2 in every command, and no command makes it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from reference import commands

from waybill.transport import Journal, Settings, Tracker
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Kept, Run

WORDS: Final = {
    "alias": ("old", "new"),
    "close-stale": ("--older-than", "1d", "--as", "ERROR"),
    "compact": (),
    "datasets": ("--orphan",),
    "dead-letters drop": ("--all", "--yes"),
    "dead-letters retry": ("--all",),
    "dead-letters show": ("1",),
    "diff": ("a", "b"),
    "explain": ("019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11",),
    "export": (".",),
    "infer": ("queries.log", "--namespace", "postgres://db:5432"),
    "keys add": ("spark", "--role", "emit"),
    "keys revoke": ("spark",),
    "poison drop": ("--all", "--yes"),
    "poison retry": ("--all",),
    "poison show": ("1",),
    "rebuild": ("--from", "journal", "--to", "again"),
    "rejects drop": ("--all", "--yes"),
    "rejects retry": ("--all",),
    "rejects show": ("1",),
    "trace": ("orders.csv",),
    "lineage": ("orders",),
    "impact": ("orders",),
    "origins": ("orders.total",),
    "search": ("orders",),
    "spark catch-up": (".",),
    "sql": ("SELECT 1",),
    "where": ("5f0c6a1b2d3e-4711",),
}
"""The arguments that a command needs."""

MAKE_A_HOME: Final = {"demo", "init", "run", "serve", "spark submit"}
WITHOUT_A_HOME: Final = {
    "analyzers",
    "fingerprint",
    "package init",
    "package list",
    "package show",
    "package validate",
    "plan",
    "schema",
    "dev up",
    "dev status",
    "dev down",
    "dev logs",
}
OF_HOMES: Final = [name for name in commands() if name not in MAKE_A_HOME | WITHOUT_A_HOME]
SOME_OF_HOMES: Final = ("find", "flush", "keys add", "lineage", "status")
"""One of each kind; that every command asks for its home in one way is shown by a home that is given."""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.parametrize("name", OF_HOMES)
def test_a_home_that_is_given_and_not_there_is_exit_code_2(called: Run, home: Path, name: str) -> None:
    done = called(*name.split(), *WORDS.get(name, ()), "--home", home)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"waybill: there is no home at {home} yet: `waybill init` creates one, or give --home\n"
    )
    assert not home.exists()


@pytest.mark.parametrize("name", SOME_OF_HOMES)
def test_a_default_home_that_is_not_there_is_exit_code_2(called: Run, tmp_path: Path, name: str) -> None:
    done = called(*name.split(), *WORDS.get(name, ()))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no home at " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"], "nothing was made"
    assert list(Path().iterdir()) == []


def test_a_home_from_elsewhere_is_told_with_its_origin(
    called: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_HOME", str(home))
    done = called("status")
    assert done.returncode == 2
    assert f"{home} yet (from environment WAYBILL_HOME): `waybill init`" in done.stderr


@pytest.mark.parametrize("name", SOME_OF_HOMES)
def test_a_folder_that_nobody_made_a_home_is_none(called: Run, tmp_path: Path, name: str) -> None:
    for files in ((), ("notes.txt",)):
        folder = tmp_path / f"with {len(files)}"
        folder.mkdir()
        for file in files:
            (folder / file).touch()
        done = called(*name.split(), *WORDS.get(name, ()), "--home", folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"waybill: the folder {folder} is not a home: correct --home, or create a home "
            "with `waybill init`\n"
        )
        assert [path.name for path in folder.iterdir()] == [*files]


def test_so_it_is_for_a_check_of_the_settings_unless_it_is_empty(called: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(exist_ok=True)
    done = called("init", "--check", "--home", tmp_path)
    assert (done.returncode, f"{tmp_path} is not a home" in done.stderr) == (2, True)
    done = called("init", "--check", "--home", tmp_path / "empty")
    assert (done.returncode, "there is no home at" in done.stdout) == (0, True)


@pytest.mark.parametrize("name", [*SOME_OF_HOMES, "init --yes", "init --check", "serve"])
def test_a_file_is_no_home_in_any_command(called: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.touch()
    for home in (file, file / "below"):
        done = called(*name.split(), *WORDS.get(name, ()), "--home", home)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"waybill: setting home = '{home}' (from the command's options): {file} is a file; "
            "give the path of a folder\n"
        )


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("dead-letters", "list"),
        ("dead-letters", "retry", "--all"),
        ("poison", "drop", "--all"),
        ("rejects", "list"),
        ("rejects", "drop", "--all"),
        ("keys", "list"),
        ("root", "show"),
        ("root", "adopt"),
        ("settings", "apply"),
        ("age-off",),
        ("compact",),
        ("verify",),
        ("flush",),
        ("drain",),
    ],
    ids=" ".join,
)
def test_a_home_whose_journal_was_moved_away_has_nothing_in_it(
    called: Run, home: Path, words: tuple[str, ...]
) -> None:
    without_journal(home)
    done = called(*words, "--home", home)
    assert (done.returncode, "waybill:" in done.stderr) == (0, False)
    assert not Journal.exists(home)


def test_an_old_root_that_was_copied_without_its_marker_is_one(called: Run, kept: Kept, root: Path) -> None:
    for folder in ("provenance", "events"):
        shutil.copytree(kept.home / folder, root / folder)
    assert called("verify", root).returncode == 0, "old ones have no marker"
    assert called("find", "--root", root).stdout
    assert called("find", "--home", root).stdout, "and the default root of a home is the home"


def without_journal(home: Path) -> None:
    """A home whose journal somebody has moved away, to begin a new one."""
    journal = Journal(home)
    agree(journal, Settings.load({"home": home}, env={}, cwd=home))
    journal.close()
    for path in home.glob("journal.*"):
        path.unlink()


ROOTS: Final = ("age-off", "explain", "export", "find", "repair", "root show", "sql", "status", "where")


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_that_is_given_and_not_there_is_exit_code_2(
    called: Run, home: Path, root: Path, name: str
) -> None:
    Journal(home).close()
    done = called(*name.split(), *WORDS.get(name, ()), "--home", home, "--root", root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"waybill: there is no folder {root}; give the path of a root with --root\n"
    assert not root.exists()


@pytest.mark.parametrize("name", [name for name in ROOTS if name != "root show"])
def test_a_folder_that_nothing_was_filed_in_is_no_root(
    called: Run, home: Path, root: Path, name: str
) -> None:
    Journal(home).close()
    root.mkdir()
    done = called(*name.split(), *WORDS.get(name, ()), "--home", home, "--root", root)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the folder {root} is not a root: nothing was ever filed there" in done.stderr


def test_the_root_of_a_home_that_has_filed_nothing_yet_is_one(called: Run, settings: Settings) -> None:
    Tracker(settings=settings).close()
    settings.root.mkdir()
    assert called("find", "--home", settings.home, "--root", settings.root).returncode == 0


@pytest.mark.parametrize("name", ["compact", "verify"])
def test_so_is_a_root_that_is_an_argument(called: Run, root: Path, name: str) -> None:
    done = called(name, root)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no folder {root}" in done.stderr
    root.mkdir()
    done = called(name, root)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the folder {root} is not a root" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("find", "--root"), ("verify",), ("compact",), ("age-off", "--root"), ("sql", "SELECT 1", "--root")],
)
def test_a_root_that_is_given_needs_no_home(called: Run, root: Path, words: tuple[str, ...]) -> None:
    (root / "provenance" / "raw").mkdir(parents=True)
    assert called(*words, root).returncode == 0


def test_a_folder_that_is_called_as_a_store_stays_one(called: Run, home: Path) -> None:
    Journal(home).close()
    Path("s3/b").mkdir(parents=True)
    assert called("export", "s3/b", "--home", home).returncode == 0
    assert called("export", "s3//b", "--home", home).returncode == 0


def test_an_export_makes_a_folder_only_when_told_to(called: Run, home: Path) -> None:
    Journal(home).close()
    assert called("export", "there", "--home", home).returncode == 2
    assert called("export", "there", "--home", home, "--create").returncode == 0
