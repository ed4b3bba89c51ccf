"""A run that has ended is ended on every door, whatever its clocks say and however its events came."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from events import event, events_in

from waybill.lineage import Lineage
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.config import agree
from waybill.transport.runner.unended import UnendedRuns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conftest import Run

DAY_MS: Final = 86_400_000
RUN: Final = "01a1fd6a-9e75-7d78-870f-000000000001"
START: Final = ("START", "10:00:00.400")
END: Final = ("COMPLETE", "10:00:00.300")
"""Flink's listener times an end before its START now and then."""
AGAIN: Final = ("START", "11:00:00.000")
BELATED: Final = ("RUNNING", "10:00:00.350")


def told(steps: Iterable[tuple[str, str]]) -> list[bytes]:
    clicks: dict[str, Any] = {"namespace": "kafka://b:9092", "name": "clicks"}
    return [
        event(RUN, kind, f"2026-01-31T{at}Z", job="flink/job", inputs=[clicks], outputs=["lake/out"])
        for kind, at in steps
    ]


class Doors:
    """A home that is asked through each door, with its entries in the journal alone or in its files too."""

    def __init__(self, called: Run, settings: Settings) -> None:
        self.called = called
        with contextlib.closing(Journal(settings.home)) as journal:
            self.settings = agree(journal, settings)

    def keep(self, *bodies: bytes) -> None:
        with contextlib.closing(Journal(self.settings.home)) as journal:
            journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)

    def ask(self, *words: str) -> list[dict[str, Any]]:
        done = self.called(*words, "--home", self.settings.home, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def state(self) -> str:
        run = Lineage.open(self.settings.home).dependencies("flink/job").last_run
        assert run is not None
        return run.state

    def look_for_stale(self) -> None:
        with contextlib.closing(Journal(self.settings.home)) as journal:
            runs = UnendedRuns(journal, DAY_MS)
            now_ms = time.time_ns() // 1_000_000
            while runs.look(now_ms):
                pass
            while runs.look(now_ms + 3 * DAY_MS):
                pass


@pytest.fixture
def doors(called: Run, settings: Settings) -> Doors:
    return Doors(called, settings)


ORDERS: Final = [*itertools.permutations((START, END)), (BELATED, END, START), (END, START, BELATED)]
"""That no order matters is a law of the fold; here, each door goes by it."""


@pytest.mark.parametrize("steps", ORDERS)
def test_one_start_and_one_end_are_an_ended_run_on_every_door(
    doors: Doors, steps: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = told(steps)
    for at, body in enumerate(bodies):
        doors.keep(body)
        if at == 0:
            assert flush(doors.settings).problems == {}  # the rest is the tail of what is in files
    for _ in range(2):
        assert doors.ask("find", "--open") == []
        assert doors.state() == "COMPLETE"
        assert doors.ask("find", "--open", "--missing-sink", "lake/out") == []
        assert flush(doors.settings).problems == {}
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 3 * DAY_MS * 1_000_000)
    assert doors.ask("close-stale", "--older-than", "1d", "--as", "CANCELLED") == []
    doors.look_for_stale()
    assert all("waybill_inferred" not in one["run"]["facets"] for one in events_in(doors.settings.home))
    assert flush(doors.settings).problems == {}
    (record,) = doors.ask("find")
    assert (record["final_state"], record["completed"]) == ("COMPLETE", "2026-01-31T10:00:00.300Z")
    assert record["created"] == "2026-01-31T10:00:00.300Z"


@pytest.mark.parametrize("steps", [*itertools.permutations((START, END))])
def test_a_file_whose_end_is_timed_before_its_start_is_not_open(
    doors: Doors, steps: tuple[tuple[str, str], ...]
) -> None:
    facets = {"waybill_deltaFile": {"did": RUN, "filename": "a.csv", "dataSource": "in"}}
    for kind, at in steps:
        doors.keep(event(RUN, kind, f"2026-01-31T{at}Z", job="edge/in", facets=facets))
        assert flush(doors.settings).problems == {}
    assert doors.ask("find", "--open") == []
    (trace,) = doors.ask("trace", RUN)
    assert [file.get("open") for file in trace["files"]] == [None]


@pytest.mark.parametrize("steps", [(START, END, AGAIN), (AGAIN, END, START), (END, START, AGAIN)])
def test_a_second_start_after_the_end_begins_the_run_again(
    doors: Doors, steps: tuple[tuple[str, str], ...]
) -> None:
    for body in told(steps):
        doors.keep(body)
        assert flush(doors.settings).problems == {}
    assert [one["did"] for one in doors.ask("find", "--open")] == [RUN]
    assert doors.state() == "RUNNING"
    doors.keep(*told([("FAIL", "12:00:00.000")]))
    for _ in range(2):
        assert doors.ask("find", "--open") == []
        assert doors.state() == "ERROR"
        assert flush(doors.settings).problems == {}


@pytest.mark.parametrize("at", ["2026-01-31T09:00:00Z", "2026-02-05T10:00:00Z"])
@pytest.mark.parametrize("steps", [*itertools.permutations((START, END))])
def test_an_inferred_end_never_replaces_a_stated_one(
    doors: Doors, steps: tuple[tuple[str, str], ...], at: str
) -> None:
    inferred = {"waybill_inferred": {"reason": "nothing was heard of it"}}
    doors.keep(*told(steps), event(RUN, "ABORT", at, job="flink/job", facets=inferred))
    for _ in range(2):
        (record,) = doors.ask("find")
        assert (record["final_state"], doors.state()) == ("COMPLETE", "COMPLETE")
        assert record["completed"] == "2026-01-31T10:00:00.300Z"
        assert flush(doors.settings).problems == {}


@pytest.mark.parametrize("steps", [*itertools.permutations((("START", "10:00:00.000"), START, END), 3)][::2])
def test_closing_a_run_of_two_starts_replaces_no_end_that_is_timed_between_them(
    doors: Doors, steps: tuple[tuple[str, str], ...]
) -> None:
    for body in told(steps):
        doors.keep(body)
        assert flush(doors.settings).problems == {}
    (before,) = doors.ask("find")
    (closed,) = doors.ask("close-stale", "--older-than", "0s", "--as", "CANCELLED")
    assert closed["did"] == RUN
    for _ in range(2):
        assert doors.ask("find") == [before]
        assert (before["final_state"], before["completed"]) == ("COMPLETE", "2026-01-31T10:00:00.300Z")
        assert doors.state() == "COMPLETE"
        assert doors.ask("find", "--open") == []
        assert doors.ask("find", "--open", "--missing-sink", "lake/out") == []
        assert flush(doors.settings).problems == {}


def test_an_open_run_is_described_by_what_its_record_would_say_now(
    called: Run, settings: Settings, tmp_path: Path
) -> None:
    allowed = frozenset({"customer"})
    doors = Doors(called, msgspec.structs.replace(settings, provenance_annotations_allowed=allowed))
    parent = {
        "run": {"runId": "01a1fd6a-9e75-7d78-870f-000000000009"},
        "job": {"namespace": "n", "name": "p"},
    }
    tags = {"tags": {"tags": [{"key": "customer", "value": "acme", "source": "USER"}]}}
    clicks = {"namespace": "kafka://b:9092", "name": "clicks"}
    first = event(RUN, "RUNNING", "2026-01-31T10:05:00Z", job="flink/job", inputs=["lake/other"])
    start = event(
        RUN,
        "START",
        "2026-01-31T10:00:00Z",
        job="flink/job",
        inputs=[clicks],
        facets={"parent": parent} | tags,
    )
    for body in (first, start):  # they come late, and in the wrong order
        doors.keep(body)
        assert flush(doors.settings).problems == {}
    (told,) = doors.ask("find", "--open")
    assert (told["began"], told["data_source"]) == ("2026-01-31T10:00:00.000Z", "kafka://b:9092/clicks")
    for words in (
        ("--data-source", "kafka://b:9092/clicks"),
        ("--created-until", "2026-01-31T10:00:01Z"),
        ("--input", "kafka://b:9092/clicks"),
        ("--parent", parent["run"]["runId"]),
        ("--system", "flink"),
        ("--annotation", "customer=acme"),
    ):
        assert doors.ask("find", "--open", *words) == [told], words
    assert doors.ask("find", "--open", "--data-source", "job") == []
    away = tmp_path / "away"
    shutil.copytree(doors.settings.root / "provenance", away / "provenance")
    alone = doors.called("find", "--open", "--root", away, "--home", doors.settings.home, "--json")
    assert json.loads(alone.stdout) == told
    doors.keep(event(RUN, "COMPLETE", "2026-01-31T10:10:00Z", job="flink/job"))
    (record,) = doors.ask("find")
    for field in ("did", "parent_did", "system_name", "data_source"):
        assert told[field] == record[field]
    assert told["began"] == record["created"]
