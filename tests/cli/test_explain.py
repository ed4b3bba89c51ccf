"""`waybill explain`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from waybill.transport import Settings, Tracker

if TYPE_CHECKING:
    from conftest import Kept, Run

pytestmark = pytest.mark.usefixtures("made_home")


def test_a_file_is_followed_from_its_events_to_its_rows(called: Run, kept: Kept) -> None:
    done = called("explain", kept.first, "--home", kept.home, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_proven"] is True
    assert next(step["event_type"] for step in found["steps"]) == "START"
    assert sorted(row["record"]["data_sink"] for row in found["rows"]) == ["lake", "report"]
    plain = called("explain", kept.first, "--home", kept.home).stdout
    assert f"run {kept.first}" in plain
    assert plain.count("as folded") == 2


def test_a_file_is_explained_in_any_spelling_of_its_did(called: Run, kept: Kept) -> None:
    done = called("explain", kept.first, "--home", kept.home, "--json")
    for spelled in (kept.first.upper(), kept.first.replace("-", ""), f"urn:uuid:{kept.first}"):
        assert called("explain", spelled, "--home", kept.home, "--json").stdout == done.stdout


def test_an_unknown_file_is_exit_code_2(called: Run, home: Path) -> None:
    did = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"
    told = called("explain", did, "--home", home, "--json")
    assert (told.returncode, json.loads(told.stdout)["is_proven"]) == (2, False)


def test_a_file_that_is_in_no_row_is_not_proven(called: Run, settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("orders.csv", data_source="in") as file:
        pass
    done = called("explain", file.did, "--home", settings.home)
    assert (done.returncode, "the layout has no row for it" in done.stderr) == (1, True), done.stderr


def test_while_provenance_is_off_the_stored_events_alone_answer(called: Run, settings: Settings) -> None:
    off = msgspec.structs.replace(settings, provenance_enabled=False)
    with Tracker(settings=off) as tracker, tracker.file("orders.csv", data_source="in") as file:
        pass
    done = called("explain", file.did, "--home", settings.home)
    assert (done.returncode, "COMPLETE  orders.csv  in" in done.stdout) == (0, True), done.stderr
    assert "no row to compare this with: provenance_enabled is off" in done.stderr
    assert f"`waybill settings apply --home {settings.home} --provenance-enabled`" in done.stderr


def test_a_file_that_has_not_ended_is_explained_so_far(called: Run, settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("orders.csv", data_source="in") as file:
        done = called("explain", file.did, "--home", settings.home)
    assert (done.returncode, "1. START at" in done.stdout) == (0, True), done.stderr
    assert "there is no row to compare this with: it has not ended" in done.stderr
