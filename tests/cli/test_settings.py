"""`waybill settings`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal, Settings, locks
from waybill.transport.config import SETTINGS, agree

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.usefixtures("made_home")


def test_each_setting_is_shown_with_its_value_and_origin(called: Run, home: Path) -> None:
    done = called("settings", "--home", home)
    assert done.returncode == 0
    heading, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert heading == ["setting", "value", "from"]
    assert [row[0] for row in rows] == list(SETTINGS)
    assert rows[0] == ["home", str(home), "the command's options"]
    assert ["durability", "power", "default"] in rows


def test_json_has_null_for_a_setting_without_a_value(called: Run, home: Path) -> None:
    found = json.loads(called("settings", "--home", home, "--json").stdout)
    assert {found[name]["value"] for name in ("marquez_api_key", "marquez_url")} == {None}


def test_what_the_home_has_agreed_on_is_shown_where_nobody_gave_a_value(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = settings.home
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_enabled": True}, env={}))
        monkeypatch.setenv("WAYBILL_JOURNAL_RETAIN_DAYS", "9")
        shown = called("settings", "--home", home).stdout.splitlines()
        assert {"provenance_enabled\tTrue\tthe home", "durability\tpower\tdefault"} <= set(shown)
        assert "journal_retain_days\t9.0\tenvironment WAYBILL_JOURNAL_RETAIN_DAYS" in shown
        found = json.loads(called("settings", "--home", home, "--json").stdout)
        own = {"value": False, "origin": "default"}
        assert found["provenance_enabled"] == {"value": True, "origin": "home", "own": own}
        assert found["durability"] == {"value": "power", "origin": "default"}


def test_what_a_live_runner_works_by_is_shown_whatever_was_given(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, variable = settings.home, "WAYBILL_PROVENANCE_ENABLED"
    monkeypatch.setenv(variable, "0")
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home, "provenance_enabled": True}, env={}))
        lease = locks.take(home)
        assert lease is not None
        shown = called("settings", "--home", home).stdout
        lease.release()
    where = f"the home, whose runner is alive; not False from environment {variable}"
    assert f"provenance_enabled\tTrue\t{where}\n" in shown


def test_a_switch_can_be_turned_off_again(called: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_PROVENANCE_ENABLED", "true")
    done = called("settings", "--no-provenance-enabled", "--json")
    assert json.loads(done.stdout)["provenance_enabled"]["value"] is False


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_secret_is_never_printed(
    called: Run, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "s3cr3t")
    monkeypatch.setenv("MARQUEZ_URL", "http://ann:s3cr3t@marquez:5000")
    done = called("settings", *form)
    assert "s3cr3t" not in done.stdout + done.stderr
    assert "********" in done.stdout
    assert "http://****@marquez:5000" in done.stdout


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("root: /a\nhome: [", "is not valid YAML (line 2, column 8); write each setting as `name: value`"),
        ("home: a: b", "is not valid YAML (line 1, column 8); "),
        ("- home", "must hold names with values"),
    ],
)
def test_a_settings_file_that_cannot_be_read_is_named_once_with_the_place(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, says: str
) -> None:
    file = tmp_path / "waybill.yaml"
    file.write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = called("settings")
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"waybill: the settings file {file} {says}")
    assert sentence.count(str(file)) == 1


def test_a_typo_in_the_name_of_a_setting_is_answered_with_the_closest(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, meant in (("marquez_ulr", "did you mean marquez_url? "), ("colour", "")):
        (tmp_path / "waybill.yaml").write_text(f"{name}: x\n", encoding="utf-8")
        done = called("settings")
        assert done.returncode == 2
        assert done.stderr.endswith(f": is not a setting; {meant}`waybill settings` lists them all\n")


def test_what_yaml_takes_for_a_date_is_a_text(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waybill.yaml").write_text("system_name: 2026-01-01\n", encoding="utf-8")
    assert json.loads(called("settings", "--json").stdout)["system_name"]["value"] == "2026-01-01"
    (tmp_path / "waybill.yaml").write_text("system_name: 7\n", encoding="utf-8")
    assert "give text, in quotes if it is a number" in called("settings").stderr
