"""`waybill root`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.exporter import find
from waybill.transport import Journal, Settings, flush
from waybill.transport.home import Home

if TYPE_CHECKING:
    from conftest import Run

EVENT = {
    "eventTime": "2026-01-01T00:00:00Z",
    "eventType": "COMPLETE",
    "producer": "https://example.org",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "job": {"namespace": "edge", "name": "load"},
}


def emit(settings: Settings, number: int) -> None:
    home = Home.open(settings)
    home.emit(json.dumps({**EVENT, "run": {"runId": f"01890000-0000-7000-8000-{number:012}"}}).encode())
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
    waybill: Run, settings: Settings, unmounted: Path
) -> None:
    way_out = "mount it, or run `waybill root adopt`"
    flushed = waybill("flush", "--home", settings.home)
    assert flushed.returncode == 1
    assert flushed.stderr.count(way_out) == 2
    for command in ("find", "verify", "explain 01890000-0000-7000-8000-000000000001"):
        looked = waybill(*command.split(), "--home", settings.home)
        assert (looked.returncode, looked.stdout, way_out in looked.stderr) == (1, "", True)
    status = json.loads(waybill("status", "--home", settings.home, "--json").stdout)
    assert way_out in status["projections"]["layout"]["problem"]
    shown = waybill("root", "show", "--home", settings.home, "--json")
    found = json.loads(shown.stdout)
    assert (shown.returncode, found["marker"]) == (1, None)
    assert found["problem"].endswith(way_out)
    assert list(unmounted.iterdir()) == []

    plan = json.loads(waybill("root", "adopt", "--home", settings.home, "--dry-run", "--json").stdout)
    assert list(unmounted.iterdir()) == []
    done = waybill("root", "adopt", "--home", settings.home, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, plan)
    assert plan["cursors"] == {"archive": 0, "layout": 0}
    assert waybill("root", "show", "--home", settings.home).returncode == 0
    assert flush(settings).problems == {}
    assert len(find(settings.root)) == 2
    notes = json.loads(waybill("status", "--home", settings.home, "--json").stdout)["notes"]
    assert "its root was adopted" in notes[0]


def test_a_live_runner_makes_way_for_the_adoption(waybill: Run, settings: Settings, unmounted: Path) -> None:
    shutil.rmtree(unmounted)
    emit(settings.with_values({"runner": "child"}, "tests"), 3)
    done = waybill("root", "adopt", "--home", settings.home)
    assert done.returncode == 0
    assert done.stdout.count("goes on after entry 0") == 2
    assert "entries are filed again" in done.stderr
    assert flush(settings).problems == {}
    assert len(list(settings.root.glob("provenance/compacted/*/*/*.parquet"))) == 1


def test_a_home_that_has_filed_nothing_makes_no_marker_by_being_looked_at(
    waybill: Run, settings: Settings
) -> None:
    Journal(settings.home).close()
    home = ("--home", settings.home, "--root", settings.root)
    assert waybill("root", "show", *home).returncode == 0
    assert waybill("doctor", "--home", settings.home, "--json").stdout.count('"root"') == 1
    assert not settings.root.exists()
