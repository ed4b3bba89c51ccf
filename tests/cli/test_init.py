"""`waybill init`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from waybill.cli.sample import DEFAULTS, sample
from waybill.transport import Journal, Settings, locks
from waybill.transport.config import SETTINGS, agree, agreed

if TYPE_CHECKING:
    from conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    made = tmp_path / "pipeline"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


def levels(done: str) -> dict[str, str]:
    return {found["check"]: found["level"] for found in json.loads(done)}


def test_it_writes_what_was_given_and_makes_the_home(called: Run, folder: Path) -> None:
    done = called("init", "--yes", "--home", "lineage", "--provenance-annotations-allowed", "customer,year")
    assert (done.returncode, done.stdout) == (
        0,
        f"wrote {folder / 'waybill.yaml'}\ncreated the home {folder / 'lineage'}\n",
    )
    assert stat.S_IMODE((folder / "waybill.yaml").stat().st_mode) == 0o600
    found = Settings.load(env={})
    assert (found.home, found.root, found.provenance_enabled) == (folder / "lineage",) * 2 + (True,)
    assert found.provenance_annotations_allowed == {"customer", "year"}
    with contextlib.closing(Journal(folder / "lineage")) as journal:
        assert agreed(journal)["provenance_enabled"] is True


def test_its_file_lets_every_annotation_into_the_records(called: Run, folder: Path) -> None:
    assert called("init", "--yes", "--home", "lineage").returncode == 0
    assert "provenance_annotations_allowed:\n- '*'\n" in (folder / "waybill.yaml").read_text(encoding="utf-8")
    settings = Settings.load(env={})
    assert settings.annotation_rule.kept({"any": "v"}) == {"any": "v"}
    found = {one["check"]: one for one in json.loads(called("init", "--check", "--json").stdout)}
    assert found["annotations"]["says"] == "all annotations reach the records"


def test_a_users_own_file_counts_in_each_folder(
    called: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = called("init", "--yes", "--user", "--home", tmp_path / "home", "--json")
    file = str(tmp_path / "config" / "waybill" / "config.yaml")
    assert json.loads(done.stdout) == {"file": file, "home": str(tmp_path / "home"), "to_apply": None}
    assert list(folder.iterdir()) == []
    assert Settings.load().home == tmp_path / "home"


def test_a_file_that_is_there_is_kept_and_its_home_is_made(called: Run, folder: Path) -> None:
    file, text = folder / "waybill.yaml", "home: mine\nprovenance_enabled: false\n"
    file.write_text(text, encoding="utf-8")
    done = called("init")
    assert (done.returncode, done.stdout) == (0, f"{file} is unchanged\ncreated the home {folder / 'mine'}\n")
    again = called("init", "--yes")
    assert again.returncode == 2
    assert f"{file} and the home {folder / 'mine'} exist already" in again.stderr
    with contextlib.closing(Journal(folder / "mine")) as journal:
        assert agreed(journal)["provenance_enabled"] is False
    assert file.read_text(encoding="utf-8") == text


def test_without_a_terminal_nobody_is_asked(called: Run, folder: Path) -> None:
    done = called("init", cwd=folder)
    assert done.returncode == 2
    assert "there is no terminal to ask questions; give --yes" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_home_that_is_there_keeps_its_settings_until_the_command_shown_is_run(
    called: Run, folder: Path
) -> None:
    home = folder / "a home"
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_age_off_days": 9}, env={}))
        done = called("init", "--yes", "--home", home, "--provenance-age-off-days", "400")
        assert agreed(journal)["provenance_age_off_days"] == 9
        (command,) = re.findall("`waybill (settings apply .*?)`", done.stderr)
        assert called(*shlex.split(command)).returncode == 0
        assert agreed(journal)["provenance_age_off_days"] == 400
        assert agreed(journal)["provenance_enabled"] is True


def test_the_check_goes_by_what_the_live_runner_works_by_and_says_how_to_change_that(
    called: Run, folder: Path
) -> None:
    home = folder / "home"
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_enabled": False}, env={}))
        (folder / "waybill.yaml").write_text("home: home\nprovenance_enabled: true\n", encoding="utf-8")
        held = locks.take(home)
        assert held is not None
        found = {one["check"]: one for one in json.loads(called("init", "--check", "--json").stdout)}
        assert "its live runner uses" in found["settings"]["says"]
        assert found["provenance"]["says"] == "provenance_enabled is off: no files are written"
        (command,) = re.findall("`waybill (settings apply .*?)`", found["settings"]["fix"])
        assert called(*shlex.split(command)).returncode == 0
        found = {one["check"]: one for one in json.loads(called("init", "--check", "--json").stdout)}
        held.release()
    assert [found[check]["level"] for check in ("settings", "provenance")] == ["ok", "ok"]


def test_what_init_says_of_a_home_with_other_values_is_what_a_flush_does(called: Run, folder: Path) -> None:
    home = folder / "home"
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_enabled": False}, env={}))
        done = called("init", "--yes", "--home", home)
        assert done.stdout.endswith(f"the home {home} is unchanged\n")
        assert "they apply until the next emit or flush from here" in done.stderr
        assert agreed(journal)["provenance_enabled"] is False
        assert called("flush").returncode == 0
        assert agreed(journal)["provenance_enabled"] is True


def test_a_setting_is_changed_where_it_was_given(called: Run, folder: Path) -> None:
    (folder / "waybill.yaml").write_text("home: home\nprovenance_enabled: false\n", encoding="utf-8")
    assert called("init").returncode == 0
    found = {one["check"]: one for one in json.loads(called("init", "--check", "--json").stdout)}
    assert found["provenance"]["fix"] == f"write `provenance_enabled: true` into {folder / 'waybill.yaml'}"


def test_the_check_says_what_is_off_until_it_is_done(
    called: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_HOME", str(folder / "home"))
    off = {"file": "note", "home": "note", "provenance": "note", "annotations": "note", "age-off": "note"}
    done = called("init", "--check", "--json")
    assert (done.returncode, levels(done.stdout)) == (
        0,
        {**off, "environment": "ok", "settings": "ok", "root": "ok"},
    )
    assert list(folder.iterdir()) == []
    assert called("init", "--yes").returncode == 0
    found = called("init", "--check").stdout
    (way,) = re.findall("`waybill (settings apply .*)`", found)  # for age-off, which nobody has chosen
    assert called(*shlex.split(way.replace("DAYS", "400"))).returncode == 0
    monkeypatch.setenv("WAYBILL_HOEM", "x")
    done = called("init", "--check", "--json")
    assert {check for check, level in levels(done.stdout).items() if level != "ok"} == {"environment"}


def test_the_check_is_exit_code_2_with_a_setting_that_there_is_not(called: Run, folder: Path) -> None:
    (folder / "waybill.yaml").write_text("provenance: true\n", encoding="utf-8")
    done = called("init", "--check")
    assert done.returncode == 2
    assert "setting provenance = True" in done.stderr


def test_the_sample_has_each_setting_once_and_its_default_behind_the_sign(folder: Path) -> None:
    text = sample({})
    assert yaml.safe_load(text) is None
    lines = re.findall(r"^# ([a-z_]+): (.*)$", text, re.MULTILINE)
    assert [name for name, _ in lines] == list(SETTINGS)
    freed = re.sub(r"^# ([a-z_]+: [^A-Z\n]*)$", r"\1", text, flags=re.MULTILINE)
    (folder / "waybill.yaml").write_text(freed, encoding="utf-8")
    found = Settings.load(env={})
    told = [name for name in SETTINGS if found.explicit(name)]
    assert told == [name for name, value in DEFAULTS.items() if isinstance(value, (str, bool, int, float))]
    assert {name: getattr(found, name) for name in told} == {name: DEFAULTS[name] for name in told}


def test_a_sample_with_values_is_read_as_these(folder: Path) -> None:
    backends = [{"name": "lake", "backend": "marquez", "endpoint": "http://lake:5000"}]
    values = {"system_name": "edge: 7", "provenance_annotations_allowed": ["a", "ö"], "backends": backends}
    (folder / "waybill.yaml").write_text(sample(values), encoding="utf-8")
    found = Settings.load(env={})
    assert {name: found.plain(name) for name in values} == values
