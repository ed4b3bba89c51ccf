"""What is named and not there is exit code 2 in every command, and no command makes it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from reference import commands

from waybill.transport import Settings, Tracker

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


def test_an_old_root_that_was_copied_without_its_marker_is_one(called: Run, kept: Kept, root: Path) -> None:
    for folder in ("provenance", "events"):
        shutil.copytree(kept.home / folder, root / folder)
    assert called("verify", root).returncode == 0, "old ones have no marker"
    assert called("find", "--root", root).stdout
    assert called("find", "--home", root).stdout, "and the default root of a home is the home"


def test_the_root_of_a_home_that_has_filed_nothing_yet_is_one(called: Run, settings: Settings) -> None:
    Tracker(settings=settings).close()
    settings.root.mkdir()
    assert called("find", "--home", settings.home, "--root", settings.root).returncode == 0
