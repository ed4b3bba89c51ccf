"""`waybill explain`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Kept, Run


def test_a_file_is_followed_from_its_events_to_its_rows(waybill: Run, kept: Kept) -> None:
    done = waybill("explain", kept.first, "--home", kept.home, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_proven"] is True
    assert next(step["event_type"] for step in found["steps"]) == "START"
    assert sorted(row["record"]["data_sink"] for row in found["rows"]) == ["lake", "report"]
    plain = waybill("explain", kept.first, "--home", kept.home).stdout
    assert f"run {kept.first}" in plain
    assert plain.count("as folded") == 2


def test_an_unknown_file_is_exit_code_1(waybill: Run, home: Path) -> None:
    done = waybill("explain", "none", "--home", home)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing is known of none" in done.stderr
