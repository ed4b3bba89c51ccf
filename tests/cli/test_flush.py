"""`waybill flush`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from waybill.transport import Journal, Settings, Tracker

if TYPE_CHECKING:
    from conftest import Run


def track(settings: Settings, filename: str = "orders.csv") -> None:
    with Tracker(settings=settings) as tracker, tracker.file(filename, data_source="sftp-in") as file:
        file.egress("warehouse")


def test_the_files_it_made_are_listed_and_can_be_read_at_once(
    waybill: Run, settings: Settings, root: Path
) -> None:
    track(settings)
    done = waybill("flush", "--home", settings.home)
    assert (done.returncode, done.stderr) == (0, "")
    files = [Path(line) for line in done.stdout.splitlines()]
    (compacted,) = [
        file for file in files if file.is_relative_to(root / "provenance" / "compacted" / "tests")
    ]
    rows = duckdb.read_parquet(str(compacted)).project("filename, data_sink, final_state").fetchall()
    assert rows == [("orders.csv", "warehouse", "COMPLETE")]


def test_a_second_flush_has_nothing_to_make(waybill: Run, settings: Settings) -> None:
    track(settings)
    assert waybill("flush", "--home", settings.home).returncode == 0
    done = waybill("flush", "--home", settings.home, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"files": [], "left": {}, "problems": {}, "poison": {}}


def test_a_backend_that_is_down_is_exit_code_1_and_holds_no_file_back(
    waybill: Run, settings: Settings
) -> None:
    track(settings)
    done = waybill("flush", "--home", settings.home, "--marquez-url", "http://127.0.0.1:1", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert list(report["left"]) == ["marquez"]
    assert report["files"]
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("waybill: marquez has ")
    assert "127.0.0.1:1" in sentence


def test_a_home_without_a_journal_stays_as_it_is(waybill: Run, home: Path) -> None:
    done = waybill("flush", "--home", home)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no journal" in done.stderr
    assert not home.exists()


def test_a_flush_says_that_the_layout_is_off(waybill: Run, settings: Settings) -> None:
    track(settings)
    done = waybill("flush", "--home", settings.home, "--no-provenance-enabled")
    assert (done.returncode, done.stdout) == (0, "")
    assert "provenance_enabled is off" in done.stderr
    assert waybill("flush", "--home", settings.home, "--provenance-enabled").stdout, (
        "turned on, it has its files"
    )


def test_verbose_shows_the_runner_s_log_and_changes_no_result(waybill: Run, settings: Settings) -> None:
    track(settings)
    done = waybill("flush", "--home", settings.home, "--verbose", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["files"]


@pytest.mark.parametrize("command", ["flush", "status"])
def test_a_home_whose_journal_is_missing_is_an_error(waybill: Run, home: Path, command: str) -> None:
    Journal(home).close()
    for path in home.glob("journal.db*"):
        path.unlink()
    done = waybill(command, "--home", home)
    assert done.returncode == 1
    assert "is missing from a home that had one" in done.stderr
    assert not (home / "journal.db").exists()
