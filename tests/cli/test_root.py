"""`waybill root`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from events import RUN_EVENT, event

from waybill.transport import Journal, Settings, SettingsConflictError, Tracker, flush
from waybill.transport.config import agreed, change
from waybill.transport.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Run


def emit(settings: Settings, number: int) -> None:
    home = Home.open(settings)
    home.emit(event(f"01890000-0000-7000-8000-{number:012}", schemaURL=RUN_EVENT))
    home.close()


def test_a_live_runner_makes_way_for_the_adoption(called: Run, settings: Settings) -> None:
    emit(settings, 1)
    assert flush(settings).problems == {}
    settings.root.rename(settings.root.with_name("away"))
    emit(settings.with_values({"runner": "child"}, "tests"), 2)
    done = called("root", "adopt", "--home", settings.home)
    assert done.returncode == 0
    assert done.stdout.count("continues after entry 0") == 2
    assert "filed again into" in done.stderr
    assert flush(settings).problems == {}
    assert len(list(settings.root.glob("provenance/compacted/*/*/*.parquet"))) == 1


@pytest.fixture
def filed(settings: Settings) -> Settings:
    """The settings of a home that has filed an event into its root."""
    emit(settings, 1)
    assert flush(settings).problems == {}
    return settings


def test_a_program_with_a_root_that_is_not_the_homes_loses_no_event_and_changes_no_root(
    filed: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"home": filed.home, "root": tmp_path / "typo", "runner": "none"}
    settings = Settings.load(given, env={})
    with Tracker(settings=settings) as tracker, tracker.file("kept.csv", data_source="orders"):
        pass
    command = f"waybill settings apply --home {filed.home} --root {tmp_path / 'typo'}"
    assert f"to change the agreed settings: {command}" in caplog.text
    journal = Journal(filed.home)
    assert agreed(journal)["root"] == str(filed.root)
    assert b"kept.csv" in journal.read(journal.last_seq() - 1)[-1].body
    with pytest.raises(SettingsConflictError, match=f"files into {filed.root}; .*settings apply"):
        Tracker(settings=settings.with_values({"strict": True}, "tests"))


def test_beside_a_live_runner_it_is_refused_too_and_files_are_named_by_the_real_root(
    called: Run, filed: Settings, tmp_path: Path, end_runner: Callable[[Path], None]
) -> None:
    opened = Home.open(filed.with_values({"runner": "child", "provenance_enabled": True}, "tests"))
    opened.close()
    linked = tmp_path / "linked"
    linked.symlink_to(filed.root)
    done = called("flush", "--home", filed.home, "--root", linked)
    assert done.returncode == 0, done.stderr
    assert {Path(line).is_relative_to(filed.root) for line in done.stdout.splitlines()} <= {True}
    assert called("flush", "--home", filed.home, "--root", tmp_path / "typo").returncode == 2
    end_runner(filed.home)


def test_a_home_that_has_agreed_on_a_wrong_root_is_told_the_way_back(
    called: Run, filed: Settings, tmp_path: Path
) -> None:
    change(Journal(filed.home), filed.with_values({"root": tmp_path / "typo"}, "tests"))
    back = f"waybill settings apply --home {filed.home} --root {filed.root}"
    for command, code in (("find", 1), ("status", 1), ("init --check", 1), ("flush", 1)):
        done = called(*command.split(), "--home", filed.home)
        assert (done.returncode, back in done.stdout + done.stderr) == (code, True), command
    assert called(*back.split()[1:]).returncode == 0
    assert called("status", "--home", filed.home).returncode == 0
