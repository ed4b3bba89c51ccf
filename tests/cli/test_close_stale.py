"""`waybill close-stale` and `waybill find --open`: files and runs that began and never ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from events import event

from waybill.cli.commands import status
from waybill.exporter.layout import Layout
from waybill.transport import Journal, Kind, Settings, Tracker, flush
from waybill.transport.config import agree, change

if TYPE_CHECKING:
    from conftest import Run


DAY_S = 86_400.0


def told(run: str, kind: str, **facets: object) -> tuple[Kind, bytes, str]:
    """An event that has just happened."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Kind.OPENLINEAGE, event(run, kind, now, job="ns/job", facets=facets), ""


class Left:
    """A home where a file and a run were begun and left open, a day ago and more."""

    def __init__(self, called: Run, settings: Settings, *, is_on: bool) -> None:
        self.called = called
        self.home = settings.home
        self.settings = msgspec.structs.replace(settings, provenance_enabled=is_on)
        self.journal = Journal(self.home)
        self.settings = agree(self.journal, self.settings)
        self.tracker = Tracker(settings=self.settings)
        self.file = self.tracker.file("left.csv", data_source="in", annotations={"customer": "acme"})
        with self.tracker.file("ended.csv", data_source="in"):
            pass
        self.journal.append_many([told("run", "START"), told("ended", "START"), told("ended", "COMPLETE")])

    def work(self) -> None:
        """Have the layout do what there is to do, if it is on."""
        if self.settings.provenance_enabled:
            assert Layout(self.journal, self.settings, linger_s=0).step().applied

    def ask(self, *words: str) -> list[dict[str, Any]]:
        done = self.called(*words, "--home", self.home, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def open(self) -> set[str]:
        return {one["did"] for one in self.ask("find", "--open")}


@pytest.fixture(params=[True, False], ids=["on", "off"])
def left(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Left]:
    made = Left(called, settings, is_on=request.param)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + int(1.5 * DAY_S * 1e9))
    yield made
    made.tracker.close()
    made.journal.close()


def test_status_does_not_count_what_is_open_where_that_would_take_long(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_READ_ENTRIES_MAX", 1)
    assert json.loads(left.called("status", "--home", left.home, "--json").stdout)["open_runs"] is None
    assert "open      not counted" in left.called("status", "--home", left.home).stdout


def test_ends_go_into_a_journal_only_as_far_as_its_agreed_limit_allows(left: Left) -> None:
    given = {"home": left.home, "journal_max_bytes": "1MiB"}
    change(left.journal, Settings.load(given, origin="tests", env={}))
    left.journal.append_many(told(f"{n}", "COMPLETE", x=os.urandom(40_000).hex()) for n in range(40))
    done = left.called("close-stale", "--as", "ERROR", "--older-than", "1d", "--home", left.home)
    assert (done.returncode, "journal_max_bytes" in done.stderr) == (1, True), done.stderr


def test_an_event_that_admission_would_refuse_is_no_open_run_and_the_others_can_be_ended(left: Left) -> None:
    facets = {"waybill_deltaFile": {"did": 5, "filename": "odd.csv"}}
    left.journal.append_many([told("odd", "START", **facets)])
    assert left.open() == {left.file.did, "run"}
    assert len(left.ask("close-stale", "--older-than", "1d", "--as", "error")) == 2


def test_open_files_are_known_after_the_journal_has_deleted_what_began_them(left: Left) -> None:
    left.work()
    assert flush(left.settings).left == {}
    left.journal.append_many([told("new", "START")])
    assert left.journal.prune(left.journal.last_seq() - 1, 2**60)
    found = {one["did"]: one["filename"] for one in left.ask("find", "--open")}
    assert found == {left.file.did: "left.csv", "run": None, "new": None}
