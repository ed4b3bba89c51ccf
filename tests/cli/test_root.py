"""`waybill root`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from events import RUN_EVENT, event

from waybill.lineage import find
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


@pytest.fixture
def unmounted(settings: Settings) -> Path:
    """A root that is away: an empty folder is at its path."""
    emit(settings, 1)
    assert flush(settings).problems == {}
    settings.root.rename(settings.root.with_name("away"))
    settings.root.mkdir()
    emit(settings, 2)
    return settings.root


def test_a_root_that_is_away_is_told_everywhere_and_adopted_only_on_request(
    called: Run, settings: Settings, unmounted: Path
) -> None:
    way_out = "mount it, or run `waybill root adopt`"
    flushed = called("flush", "--home", settings.home)
    assert flushed.returncode == 1
    assert flushed.stderr.count(way_out) == 2
    for command in ("find", "verify", "explain 01890000-0000-7000-8000-000000000001"):
        looked = called(*command.split(), "--home", settings.home)
        assert (looked.returncode, looked.stdout, way_out in looked.stderr) == (1, "", True)
    status = json.loads(called("status", "--home", settings.home, "--json").stdout)
    assert way_out in status["projections"]["layout"]["problem"]
    shown = called("root", "show", "--home", settings.home, "--json")
    found = json.loads(shown.stdout)
    assert (shown.returncode, found["marker"]) == (1, None)
    assert found["problem"].endswith(way_out)
    assert list(unmounted.iterdir()) == []

    plan = json.loads(called("root", "adopt", "--home", settings.home, "--dry-run", "--json").stdout)
    assert list(unmounted.iterdir()) == []
    done = called("root", "adopt", "--home", settings.home, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, plan)
    assert plan["cursors"] == {"archive": 0, "layout": 0}
    assert called("root", "show", "--home", settings.home).returncode == 0
    status = called("status", "--home", settings.home)
    assert (status.returncode, "root adopt" in status.stdout) == (0, False), status.stdout
    assert flush(settings).problems == {}
    assert len(find(settings.root)) == 2
    notes = json.loads(called("status", "--home", settings.home, "--json").stdout)["notes"]
    assert "its root was adopted" in notes[0]


def test_a_live_runner_makes_way_for_the_adoption(called: Run, settings: Settings, unmounted: Path) -> None:
    shutil.rmtree(unmounted)
    emit(settings.with_values({"runner": "child"}, "tests"), 3)
    done = called("root", "adopt", "--home", settings.home)
    assert done.returncode == 0
    assert done.stdout.count("continues after entry 0") == 2
    assert "filed again into" in done.stderr
    assert flush(settings).problems == {}
    assert len(list(settings.root.glob("provenance/compacted/*/*/*.parquet"))) == 1


def test_a_home_that_has_filed_nothing_makes_no_marker_by_being_looked_at(
    called: Run, settings: Settings
) -> None:
    Journal(settings.home).close()
    settings.root.mkdir()
    home = ("--home", settings.home, "--root", settings.root)
    assert called("root", "show", *home).returncode == 0
    assert called("doctor", "--home", settings.home, "--json").stdout.count('"root"') == 1
    assert list(settings.root.iterdir()) == []


@pytest.fixture
def filed(settings: Settings) -> Settings:
    """The settings of a home that has filed an event into its root."""
    emit(settings, 1)
    assert flush(settings).problems == {}
    return settings


@pytest.mark.parametrize("is_there", [False, True], ids=["away", "another folder"])
@pytest.mark.parametrize("command", ["flush", "drain", "serve", "root adopt"])
def test_a_root_that_is_not_the_homes_is_exit_code_2_and_nothing_changes(
    called: Run, filed: Settings, tmp_path: Path, command: str, *, is_there: bool
) -> None:
    typo = tmp_path / "typo"
    if is_there:
        typo.mkdir()
    done = called(*command.split(), "--home", filed.home, "--root", typo)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{filed.home} files into {filed.root}" in done.stderr
    assert f"`waybill settings apply --home {filed.home} --root {typo}`" in done.stderr
    assert agreed(Journal(filed.home))["root"] == str(filed.root)
    assert typo.exists() is is_there
    assert called("verify", "--home", filed.home).returncode == 0


@pytest.mark.parametrize("command", ["find", "status", "verify"])
def test_so_is_one_from_the_environment_with_its_origin(
    called: Run, filed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WAYBILL_ROOT", str(tmp_path / "typo"))
    done = called(command, "--home", filed.home)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / 'typo'}' (from environment WAYBILL_ROOT): is not there" in done.stderr


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


def test_the_root_may_be_mounted_elsewhere(called: Run, filed: Settings, tmp_path: Path) -> None:
    filed.root.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    done = called("flush", "--home", filed.home, "--root", moved)
    assert done.returncode == 0, done.stderr
    assert agreed(Journal(filed.home))["root"] == str(filed.root), "an option holds for its command"
    assert called("settings", "apply", "--home", filed.home, "--root", moved).returncode == 0
    assert called("flush", "--home", filed.home).returncode == 0
    assert agreed(Journal(filed.home))["root"] == str(moved)


def test_a_root_that_was_agreed_on_and_is_not_there_yet_is_kept(
    called: Run, home: Path, root: Path, tmp_path: Path
) -> None:
    Tracker(home=home, root=root, runner="none").close()
    assert called("flush", "--home", home, "--root", tmp_path / "typo").returncode == 2
    assert called("flush", "--home", home, "--root", root).returncode == 0
    assert called("settings", "apply", "--home", home, "--root", tmp_path / "new").returncode == 0
    assert called("flush", "--home", home).returncode == 0
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("command", ["flush", "drain"])
def test_a_home_that_has_filed_nothing_gets_another_root_by_its_settings_alone(
    called: Run, home: Path, root: Path, command: str
) -> None:
    Tracker(home=home, runner="none").close()
    done = called(command, "--home", home, "--root", root)
    apply = f"waybill settings apply --home {home} --root {root}"
    assert (done.returncode, "leave the option out" in done.stderr, apply in done.stderr) == (2, True, True)
    assert (agreed(Journal(home))["root"], root.exists()) == (str(home), False)
    assert called(*apply.split()[1:]).returncode == 0
    assert called(command, "--home", home, "--root", root).returncode == 0
    assert agreed(Journal(home))["root"] == str(root)


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
