"""`waybill close-stale`: what its sessions among the snapshots cannot show."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from events import event

from waybill.cli.commands import status
from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import change

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


@pytest.fixture
def home(home: Path, journal: Journal) -> Path:
    """A home in which a run was left open."""
    journal.append_many((Kind.OPENLINEAGE, event("run", kind), "") for kind in ("START", "RUNNING"))
    return home


def test_status_does_not_count_what_is_open_where_that_would_take_long(
    called: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_READ_ENTRIES_MAX", 1)
    assert json.loads(called("status", "--home", home, "--json").stdout)["open_runs"] is None
    assert "open      not counted" in called("status", "--home", home).stdout


def test_ends_go_into_a_journal_only_as_far_as_its_agreed_limit_allows(
    called: Run, home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(journal, Settings.load({"home": home, "journal_max_bytes": "1MiB"}, origin="tests", env={}))
    large = {"x": os.urandom(40_000).hex()}
    journal.append_many((Kind.OPENLINEAGE, event(f"{n}", facets=large), "") for n in range(40))
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 2 * 86_400 * 10**9)
    done = called("close-stale", "--as", "ERROR", "--older-than", "1d", "--home", home)
    assert (done.returncode, "journal_max_bytes" in done.stderr) == (1, True), done.stderr
