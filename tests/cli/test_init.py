"""`waybill init`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from waybill.cli.sample import DEFAULTS, sample
from waybill.transport import Journal, Settings, locks
from waybill.transport.config import SETTINGS, agree

if TYPE_CHECKING:
    from conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder."""
    made = tmp_path / "pipeline"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


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
