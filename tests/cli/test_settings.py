"""`waybill settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.transport.config import SETTINGS

if TYPE_CHECKING:
    from conftest import Run


def test_each_setting_is_shown_with_its_value_and_origin(waybill: Run, home: Path) -> None:
    done = waybill("settings", "--home", home)
    assert done.returncode == 0
    heading, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert heading == ["setting", "value", "from"]
    assert [row[0] for row in rows] == list(SETTINGS)
    assert rows[0] == ["home", str(home), "the command's options"]
    assert ["durability", "power", "default"] in rows


def test_the_nearest_value_wins(waybill: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waybill.yaml").write_text(
        "system_name: by-file\ndurability: process\njournal_retain_days: 9\n", encoding="utf-8"
    )
    monkeypatch.setenv("WAYBILL_SYSTEM_NAME", "by-environment")
    monkeypatch.setenv("WAYBILL_DURABILITY", "power")
    done = waybill("settings", "--system-name", "by-option", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["system_name"] == {"value": "by-option", "origin": "the command's options"}
    assert found["durability"] == {"value": "power", "origin": "environment WAYBILL_DURABILITY"}
    assert found["journal_retain_days"] == {"value": 9, "origin": str(tmp_path / "waybill.yaml")}
    assert found["listen"] == {"value": "127.0.0.1:8090", "origin": "default"}


def test_a_switch_can_be_turned_off_again(waybill: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_PROVENANCE_ENABLED", "true")
    done = waybill("settings", "--no-provenance-enabled", "--json")
    assert json.loads(done.stdout)["provenance_enabled"]["value"] is False


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_secret_is_never_printed(
    waybill: Run, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "s3cr3t")
    monkeypatch.setenv("MARQUEZ_URL", "http://ann:s3cr3t@marquez:5000")
    done = waybill("settings", *form)
    assert "s3cr3t" not in done.stdout + done.stderr
    assert "********" in done.stdout
    assert "http://****@marquez:5000" in done.stdout


def test_an_invalid_value_is_one_sentence_and_exit_code_2(waybill: Run) -> None:
    done = waybill("settings", "--journal-max-bytes", "banana")
    assert done.returncode == 2
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    where = "setting journal_max_bytes = 'banana' (from the command's options)"
    assert sentence.startswith(f"waybill: {where}: give a size")


def test_an_unknown_option_is_exit_code_2(waybill: Run) -> None:
    done = waybill("settings", "--colour")
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_a_settings_file_that_is_no_yaml_names_itself(waybill: Run, tmp_path: Path) -> None:
    (tmp_path / "waybill.yaml").write_text("home: [", encoding="utf-8")
    done = waybill("settings", cwd=tmp_path)
    assert done.returncode == 2
    assert str(tmp_path / "waybill.yaml") in done.stderr
    assert "Traceback" not in done.stderr
