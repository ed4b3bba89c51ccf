"""An event whose sender's clock is years ahead is the last one in the graph only until the next one comes."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from events import event
from manual_clock import ManualClock

from waybill.exporter import Query
from waybill.facets.json_events import instant
from waybill.lineage import Lineage
from waybill.lineage.graph import OfDetails
from waybill.lineage.index import Index, IndexReader
from waybill.transport import Journal, Kind, NotFoundError, Settings, flush

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

DATASET_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent"
FILE = "01a1fd6a-9e75-7d78-870f-000000000001"


def told(run: str, at: str, owner: str, kind: str = "COMPLETE", **more: Any) -> bytes:  # noqa: ANN401 - any JSON
    facets = {"ownership": {"owners": [{"name": owner}]}, "documentation": {"description": f"by {owner}"}}
    orders = {"namespace": "lake", "name": "orders", "facets": facets}
    return event(run, kind, at, job="etl/load", outputs=[orders], **more)


def keep(home: Path, *bodies: bytes) -> None:
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)


def now(seconds: float = 0) -> str:
    return instant(int((time.time() + seconds) * 1_000))


def clocks_of(called: Run, settings: Settings) -> dict[str, str]:
    found = json.loads(called("doctor", "--home", settings.home, "--json").stdout)
    (clocks,) = (one for one in found if one["check"] == "clocks")
    assert isinstance(clocks, dict)
    return clocks


def freshness_of(called: Run, settings: Settings) -> list[float]:
    found = json.loads(called("slis", "--home", settings.home, "--json").stdout)
    values = [one["value"] for one in found["levels"] if one["sli"] == "freshness"]
    return [value for value in values if value is not None]


@pytest.mark.parametrize("ahead", ["2099-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_an_event_of_2099_is_the_last_one_until_the_next_comes(
    called: Run, settings: Settings, ahead: str
) -> None:
    keep(settings.home, told("wrong", ahead, "zoe", "START"), told("wrong", ahead, "zoe", "FAIL"))
    first = Lineage.open(settings.home).dependencies("lake/orders").last_run
    assert first is not None
    assert (first.state, abs(first.started_ms / 1_000 - time.time()) < 60) == ("ERROR", True)
    time.sleep(0.01)
    keep(settings.home, told("right", now(), "ada"))
    for _ in range(2):
        lineage = Lineage.open(settings.home)
        found = lineage.dependencies("lake/orders")
        assert found.last_run is not None
        assert (found.last_run.run, found.last_run.state) == ("right", "COMPLETE")
        (dataset,) = lineage.impact("etl/load").nodes
        assert dataset.owners == ("ada",)
        with closing(Journal(settings.home)) as journal, IndexReader.open(settings.home, journal) as index:
            assert index.answer(OfDetails("lake/orders")).description == "by ada"
        (record,) = lineage.find(Query(did="wrong"))
        assert instant(record.completed)[:19] == ahead[:19]  # a record keeps its times
        clocks = clocks_of(called, settings)
        assert (clocks["level"], "etl/load" in clocks["says"], ahead[:4] in clocks["says"]) == (
            "note",
            True,
            True,
        )
        ages = freshness_of(called, settings)
        assert all(0 <= age < 60 for age in ages)
        assert len(ages) == 1
        assert flush(settings).problems == {}


@pytest.mark.parametrize("is_filed", [False, True])
@pytest.mark.parametrize("name", ["run", "file"])
def test_a_run_whose_sender_is_ahead_is_marked_with_that_on_each_door(
    called: Run, settings: Settings, name: str, *, is_filed: bool
) -> None:
    later, job = now(3 * 86_400 + 3_600), "etl/load"
    if name == "run":
        keep(settings.home, told("ahead", later, "zoe", "START"), told("ahead", now(), "zoe"))
    else:
        file = {
            "did": FILE,
            "systemName": "etl",
            "dataSource": "load",
            "dataSink": "orders",
            "completed": later,
        }
        out = {"waybill_deltaFile": file}
        keep(settings.home, event(FILE, "COMPLETE", now(), job=job, outputs=["lake/orders"], facets=out))
    keep(settings.home, event("right", "COMPLETE", now(), job="etl/use", inputs=["lake/orders"]))
    if is_filed:
        assert flush(settings).problems == {}
    words = ("lineage", "lake/orders", "--home", settings.home)
    for said in (words, ("lineage", job, "--home", settings.home)):
        shown = called(*said).stdout
        assert "Clock: the sender's is 3d 1h ahead, so its events count as of their receipt" in shown
    run = json.loads(called(*words, "--json").stdout)["last_run"]
    assert abs(run["clock_ahead_s"] - 3 * 86_400 - 3_600) < 60
    assert run["started"] < now(60)
    reached = called("impact", job, "--home", settings.home, "--csv").stdout.splitlines()
    assert [line.rpartition(",")[2] for line in reached] == ["clock ahead", "", ""]
    keep(settings.home, event("first", "COMPLETE", now(-60), job="etl/first", outputs=["lake/in"]))
    keep(settings.home, event("more", "COMPLETE", now(-60), job=job, inputs=["lake/in"]))
    by_csv = called("impact", "etl/first", "--home", settings.home, "--csv").stdout
    assert by_csv.partition("etl/load")[2].partition("\n")[0].endswith(",3d 1h")
    assert clocks_of(called, settings)["level"] == "note"
    use = called("lineage", "etl/use", "--home", settings.home)
    assert ("Last Run" in use.stdout, "Clock" in use.stdout) == (True, False)
    assert (
        json.loads(called("lineage", "etl/use", "--home", settings.home, "--json").stdout)["last_run"][
            "clock_ahead_s"
        ]
        is None
    )


def listed(called: Run, settings: Settings) -> dict[str, str]:
    lines = called("datasets", "--unread", "--home", settings.home, "--csv").stdout.splitlines()
    found = json.loads(called("datasets", "--unread", "--home", settings.home, "--json").stdout)["datasets"]
    assert lines[0] == "dataset,last written,clock ahead"
    marks = dict(line.split(",")[::2] for line in lines[1:])
    assert [mark != "" for mark in marks.values()] == [one["clock_ahead_s"] is not None for one in found]
    return marks


def marked(called: Run, settings: Settings) -> list[tuple[int, str]]:
    lines = called("slis", "--home", settings.home, "--csv").stdout.splitlines()
    levels = json.loads(called("slis", "--home", settings.home, "--json").stdout)["levels"]
    notes = {one["tier"]: one["note"] for one in levels if one["sli"] == "freshness"}
    assert all(any(line.endswith(note) for line in lines) for note in notes.values())
    return [(one["clocks_ahead"], one["note"]) for one in levels if one["clocks_ahead"] or one["note"]]


@pytest.mark.parametrize("is_filed", [False, True])
@pytest.mark.parametrize("name", ["run", "file", "dataset"])
def test_lists_of_datasets_and_levels_are_marked_until_a_right_clock_tells_of_them(
    called: Run, settings: Settings, name: str, *, is_filed: bool
) -> None:
    later = now(3 * 86_400 + 3_600)
    file = {"did": FILE, "systemName": "etl", "dataSource": "in", "dataSink": "orders", "completed": later}
    of_file, lake = {"waybill_deltaFile": file}, {"namespace": "lake"}
    columns = {"k": {"inputFields": [lake | {"name": "in", "field": "k"}]}}
    orders = lake | {"name": "orders", "facets": {"columnLineage": {"fields": columns}}}
    bodies = {
        "run": told("ahead", later, "zoe"),
        "file": event(FILE, "COMPLETE", now(), job="etl/load", outputs=["lake/orders"], facets=of_file),
        "dataset": json.dumps(
            {"eventTime": later, "producer": "urn:x", "schemaURL": DATASET_EVENT, "dataset": orders}
        ).encode(),
    }
    keep(settings.home, bodies[name])
    if is_filed:
        assert flush(settings).problems == {}
    names = ["etl/orders", "lake/orders"] if name == "file" else ["lake/orders"]
    assert listed(called, settings) == dict.fromkeys(names, "3d 1h")
    some = "2 datasets count" if name == "file" else "1 dataset counts"
    assert marked(called, settings) == [(int(some[0]), f"clock ahead: {some} as of the receipt")]
    if name != "dataset":  # what one tells alone is known to the hour
        time.sleep(0.01)
        keep(settings.home, told("right", now(), "ada"))
        assert listed(called, settings)["lake/orders"] == ""
        assert [count for count, _ in marked(called, settings)] == ([1] if name == "file" else [])


def test_a_clock_that_is_a_minute_ahead_is_taken_as_it_is(called: Run, settings: Settings) -> None:
    soon = now(120)
    keep(settings.home, told("r", soon, "ada"))
    last = Lineage.open(settings.home).dependencies("lake/orders").last_run
    assert last is not None
    assert instant(last.started_ms) == soon
    assert clocks_of(called, settings)["level"] == "ok"
    assert freshness_of(called, settings) == [0]


def test_a_file_that_ends_in_9999_is_not_the_last_one_of_its_job_for_ever(settings: Settings) -> None:
    file = {"did": "01a1fd6a-9e75-7d78-870f-000000000001", "systemName": "edge", "dataSource": "in"}
    never = {"waybill_deltaFile": file | {"completed": "9999-12-31T23:59:59Z", "dataSink": "lake"}}
    later = {"waybill_deltaFile": file | {"did": f"{file['did'][:-1]}2", "dataSink": "lake"}}
    keep(settings.home, event(file["did"], "COMPLETE", now(), job="edge/in", facets=never))
    time.sleep(0.01)
    keep(settings.home, event(f"{file['did'][:-1]}2", "COMPLETE", now(), job="edge/in", facets=later))
    last = Lineage.open(settings.home).dependencies("edge/in").last_run
    assert last is not None
    assert last.run == f"{file['did'][:-1]}2"


def test_what_was_told_by_a_clock_ahead_is_forgotten_by_its_receipt(settings: Settings) -> None:
    keep(settings.home, told("wrong", "2099-01-01T00:00:00Z", "zoe"))
    assert flush(settings).problems == {}
    lasting = msgspec.structs.replace(settings, lineage_retain_days=1.0)
    later_ms = int(time.time() * 1_000) + 3 * 86_400_000
    with closing(Journal(settings.home, clock=ManualClock(later_ms))) as journal:
        index = Index(journal, lasting, linger_s=0)
        while index.step().applied:
            pass
        index.close()
    with pytest.raises(NotFoundError):
        Lineage.open(settings.home).dependencies("lake/orders")
