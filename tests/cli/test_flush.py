"""`waybill flush`."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from waybill.transport import Journal, Settings, Tracker
from waybill.transport.files import Files

if TYPE_CHECKING:
    from conftest import Run


def track(settings: Settings, filename: str = "orders.csv") -> None:
    with Tracker(settings=settings) as tracker, tracker.file(filename, data_source="sftp-in") as file:
        file.egress("warehouse")


def test_the_files_it_made_are_listed_and_can_be_read_at_once(
    called: Run, settings: Settings, root: Path
) -> None:
    track(settings)
    done = called("flush", "--home", settings.home)
    assert (done.returncode, done.stderr) == (0, "")
    files = [Path(line) for line in done.stdout.splitlines()]
    (compacted,) = [
        file for file in files if file.is_relative_to(root / "provenance" / "compacted" / "tests")
    ]
    rows = duckdb.read_parquet(str(compacted)).project("filename, data_sink, final_state").fetchall()
    assert rows == [("orders.csv", "warehouse", "COMPLETE")]


def test_a_second_flush_has_nothing_to_make(called: Run, settings: Settings) -> None:
    track(settings)
    assert called("flush", "--home", settings.home).returncode == 0
    done = called("flush", "--home", settings.home, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"files": [], "left": {}, "problems": {}, "poison": {}}


def test_a_backend_that_is_down_is_exit_code_1_and_holds_no_file_back(
    called: Run, settings: Settings
) -> None:
    track(settings)
    done = called("flush", "--home", settings.home, "--marquez-url", "http://127.0.0.1:1", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert list(report["left"]) == ["marquez"]
    assert report["files"]
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("waybill: marquez has ")
    assert "127.0.0.1:1" in sentence


@pytest.mark.parametrize("command", ["flush", "drain"])
def test_with_nothing_to_do_it_says_so(called: Run, settings: Settings, command: str) -> None:
    track(settings)
    assert called(command, "--home", settings.home).stdout
    done = called(command, "--home", settings.home)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "nothing to flush, and no new files\n"


def test_a_full_disk_is_told_with_its_folder_and_that_nothing_is_lost(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    track(settings)

    def refuse(_: Files, path: Path, __: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Files, "write", refuse)
    done = called("flush", "--home", settings.home)
    assert done.returncode == 1
    (line, *_) = [one for one in done.stderr.splitlines() if "layout" in one]
    assert f"the layout below {settings.root} cannot be written (the disk is full); free space there" in line
    assert line.endswith("nothing that was acknowledged is lost")
    assert "Errno" not in done.stderr


def test_what_says_that_the_layout_is_off_has_the_command_that_turns_it_on(
    called: Run, settings: Settings
) -> None:
    track(settings)
    assert called("settings", "apply", "--home", settings.home, "--no-provenance-enabled").returncode == 0
    done = called("flush", "--home", settings.home)
    assert (done.returncode, done.stdout) == (0, "")
    (command,) = re.findall("provenance_enabled is off, .*: `waybill (.*)`", done.stderr)
    assert f"`waybill {command}`" in called("status", "--home", settings.home).stdout
    assert called(*shlex.split(command)).returncode == 0
    assert called("flush", "--home", settings.home).stdout, "turned on, it has its files"


def test_verbose_shows_the_runner_s_log_and_changes_no_result(called: Run, settings: Settings) -> None:
    track(settings)
    done = called("flush", "--home", settings.home, "--verbose", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["files"]


@pytest.mark.parametrize("command", ["flush", "status"])
def test_a_home_whose_journal_is_missing_is_an_error(called: Run, home: Path, command: str) -> None:
    Journal(home).close()
    for path in home.glob("journal.db*"):
        path.unlink()
    done = called(command, "--home", home)
    assert done.returncode == 1
    assert "is missing from a home that had one" in done.stderr
    assert not (home / "journal.db").exists()


def test_a_projection_that_only_lacks_its_files_has_no_entries_left(
    called: Run, settings: Settings, root: Path
) -> None:
    track(settings)
    assert called("flush", "--home", settings.home).returncode == 0
    root.rename(root.with_name("away"))
    done = called("flush", "--home", settings.home)
    assert (done.returncode, " 0 entries" in done.stderr) == (1, False)
    assert "waybill: archive has not written its files: " in done.stderr
