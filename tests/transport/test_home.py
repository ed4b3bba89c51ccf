"""A home, opened as emitters do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from events import event

from waybill.transport import AdmissionError, Kind, Settings, SettingsConflictError, locks
from waybill.transport.home import Home

BODY = event("01a1fd6a-aa2c-772e-b9bc-000000000001", facets={"secret": {"password": "a"}})


def settings_of(home: Path, **given: object) -> Settings:
    values = {"home": home, "runner": "none", "system_name": "tests", **given}
    return Settings.load(values, env={}, cwd=home.parent)


def test_what_is_emitted_is_admitted_and_redacted_first(home: Path) -> None:
    opened = Home.open(settings_of(home, redact="run.facets.secret"))
    opened.emit(BODY)
    with pytest.raises(AdmissionError):
        opened.emit(b"{}")
    (entry,) = opened.journal.read(0)
    opened.close()
    assert (entry.kind, entry.system_name) == (Kind.OPENLINEAGE, "tests")
    assert json.loads(entry.body)["run"]["facets"] == {}


@pytest.mark.parametrize(("durability", "is_durable"), [("power", True), ("process", False)])
def test_an_event_is_in_the_journal_at_once_and_fsynced_as_the_durability_says(
    home: Path, durability: str, *, is_durable: bool
) -> None:
    opened = Home.open(settings_of(home, durability=durability))
    opened.emit(BODY)
    assert opened.is_durable is is_durable
    assert [entry.body for entry in opened.journal.read(0)] == [BODY]
    assert opened.sync()
    assert opened.is_durable
    opened.close()


def test_it_works_by_the_settings_that_the_home_has_and_while_a_runner_is_alive_changes_none(
    home: Path, tmp_path: Path
) -> None:
    Home.open(settings_of(home, root=tmp_path / "lake", redact="run.facets.secret")).close()
    followed = Home.open(settings_of(home))
    assert (followed.settings.root, followed.settings.origins["root"]) == (tmp_path / "lake", "home")
    assert json.loads(followed.redaction.admit(BODY))["run"]["facets"] == {}
    lease = locks.take(home)
    assert lease
    given = {"provenance_enabled": True, "redact": "job.facets.sql"}
    yielding = Home.open(settings_of(home, **given))
    with pytest.raises(SettingsConflictError, match=r"provenance_enabled = True .* uses False"):
        Home.open(settings_of(home, **given, strict=True))
    lease.release()
    assert yielding.settings.provenance_enabled is False
    assert yielding.settings.redact == ("run.facets.secret", "job.facets.sql")
    changing = Home.open(settings_of(home, **given))
    next_one = Home.open(settings_of(home))
    assert changing.settings.provenance_enabled is next_one.settings.provenance_enabled is True
    for opened in (followed, yielding, changing, next_one):
        opened.close()
