"""The graph that Marquez draws of files' flows: the same on the contract server and on a real Marquez."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests
from delivering import Site, drawn, facet, shown
from manual_clock import ManualClock

from waybill.facets import FinalState
from waybill.facets.event import RunJob
from waybill.facets.flows import FlowNode, FlowPath, StepKind
from waybill.facets.standard import NOTES_MAX_BYTES, JobNotes, Owner, job_notes_of
from waybill.marquez import EventReader, dead_letters, reconcile, reconcile_new, repair
from waybill.marquez.graph import JobGraph
from waybill.marquez.graph.job_graph import BEGUN_MAX, EDGES_MAX, NOTE_AFTER_MS, Outcome
from waybill.transport import Journal, Kind, Tracker
from waybill.transport.journal import BegunTransforms, Entry

if TYPE_CHECKING:
    from contract_server import ContractServer


@pytest.fixture
def tracker(site: Site, system: str) -> Iterator[Tracker]:
    with site.tracker(system) as tracker:
        yield tracker


def edges_around(url: str, system: str, kind: str, name: str) -> tuple[list[str], list[str]]:
    """The nodes and edges around a node, jobs in brackets, without their namespace."""
    graph = drawn(url, kind, system, name)
    edges = {(edge["origin"], edge["destination"]) for one in graph for edge in one["inEdges"]}
    assert edges == {(edge["origin"], edge["destination"]) for one in graph for edge in one["outEdges"]}
    names = sorted(short(one["id"], system) for one in graph)
    return names, sorted(f"{short(a, system)} > {short(b, system)}" for a, b in edges)


def short(node_id: str, system: str) -> str:
    kind, _, rest = node_id.partition(":")
    name = rest.removeprefix(f"{system}:")
    return f"[{name}]" if kind == "job" else name


def pass_a_year(tracker: Tracker) -> None:
    """A year that is split by month: one that is cancelled, fails, is filtered, and gets to two sinks."""
    with tracker.file("year.csv", data_source="years") as year, year.transform("unpack"):
        pass_months(year.split([f"{n}.csv" for n in range(4)], data_source="months"))


def pass_months(months: list[Any]) -> None:
    cancelled, failed, filtered, complete = months
    cancelled.cancel()
    with failed.transform("validate"):
        failed.error("torn")
    with filtered.transform("validate"):
        filtered.filter("too few")
    with complete.transform("validate"), complete.transform("enrich"):
        with complete.branch() as to_lake, to_lake.transform("partition"):
            to_lake.egress("lake")
        with complete.branch() as to_report, to_report.transform("summarise"):
            to_report.egress("report")


def test_a_flow_reads_from_source_over_transforms_to_sinks_with_splits_and_fan_out(
    site: Site, system: str, tracker: Tracker
) -> None:
    pass_a_year(tracker)
    site.deliver(url=site.url, draws=True)
    nodes, edges = edges_around(site.url, system, "dataset", "months")
    assert edges == sorted(
        [
            "[enrich · months] > enrich · months",
            "[partition · months] > lake",
            "[summarise · months] > report",
            "[validate · months] > validate · months",
            "[years.months] > lake",
            "[years.months] > report",
            "[(split) · years] > months",
            "[unpack · years] > unpack · years",
            "months > [validate · months]",
            "months > [years.months]",
            "enrich · months > [partition · months]",
            "enrich · months > [summarise · months]",
            "validate · months > [enrich · months]",
            "years > [unpack · years]",
            "years > [years]",
            "unpack · years > [(split) · years]",
        ]
    )
    assert nodes == sorted({name for edge in edges for name in edge.split(" > ")})


@pytest.mark.parametrize("turned", [False, True], ids=["as they were", "the other way round"])
def test_the_graph_is_the_same_whatever_run_came_last(
    url: str, system: str, site: Site, tmp_path: Path, *, turned: bool
) -> None:
    """The job of the files has what its last run reached, here nothing; those of the graph have it all."""
    with site.tracker(system) as tracker:
        year = tracker.file("year.csv", data_source="years")
        months = year.split([f"{n}.csv" for n in range(4)], data_source="months")
        months[0].cancel()
        months[1].egress("lake")
        months[2].egress("report")
        months[3].error("torn")
    runs: dict[str, list[bytes]] = {}
    for entry in site.journal.read(0):
        runs.setdefault(json.loads(entry.body)["run"]["runId"], []).append(entry.body)
    journal = Journal(tmp_path / "in that order", clock=ManualClock())
    for bodies in reversed(runs.values()) if turned else runs.values():
        journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])
    Site(journal, site.marquez).deliver(url=url, draws=True).delivery.close()
    journal.close()
    _, edges = edges_around(url, system, "dataset", "months")
    assert edges == sorted(
        [
            "[(to lake) · months] > lake",
            "[(to report) · months] > report",
            "[(split) · years] > months",
            "months > [(to lake) · months]",
            "months > [(to report) · months]",
            "months > [years.months]",
            "years > [(split) · years]",
            "years > [years]",
        ]
    )


def test_summaries_leave_the_graph_as_every_file_draws_it(site: Site, system: str, tracker: Tracker) -> None:
    pass_a_year(tracker)
    site.journal.mark(b"flush")
    site.deliver(draws=True)
    first = edges_around(site.marquez.url, system, "dataset", "years")
    other = type(site.marquez)().start()
    site.journal.commit("marquez", cursor=0, delete=site.journal.state("marquez"))
    site.deliver(url=other.url, draws=True, detail="summary")
    assert all("waybill_summary" in event["run"]["facets"] for event in other.events)
    assert edges_around(other.url, system, "dataset", "years") == first
    other.refuse()


def test_a_marquez_that_lost_everything_has_each_state_and_the_graph_again_after_a_repair(
    site: Site, system: str, tracker: Tracker
) -> None:
    """What it was before stands for what it lost."""
    pass_a_year(tracker)
    before = type(site.marquez)().start()
    site.deliver(url=before.url, draws=True)
    graph = edges_around(before.url, system, "dataset", "years")
    reader = EventReader(site.url)
    found = reconcile(site.journal, reader)
    of_files = [event for event in before.events if "waybill_summary" not in event["run"]["facets"]]
    assert len(found.missing) == found.compared == len(of_files)
    assert [one.name for one in found.missing_jobs] == sorted(
        [
            "enrich · months",
            "partition · months",
            "summarise · months",
            "validate · months",
            "(split) · years",
            "unpack · years",
        ]
    )
    repair(site.journal, [*found.missing, *found.missing_jobs])
    site.deliver(url=site.url, draws=True)
    assert edges_around(site.url, system, "dataset", "years") == graph
    states = {
        run: requests.get(f"{site.url}/api/v1/jobs/runs/{run}", timeout=60).json() for run in before.runs
    }
    assert {run: said["state"] for run, said in states.items()} == before.runs
    again = reconcile(site.journal, reader)
    assert (again.missing, again.missing_jobs) == ((), ())
    before.refuse()


def test_a_job_or_an_edge_that_marquez_forgot_is_told_again_once_somebody_compares(
    site: Site, system: str, tracker: Tracker
) -> None:
    for sink in ("out", "archive"):
        with tracker.file("file", data_source="in") as file, file.transform("clean"):
            file.egress(sink)
    worker = site.deliver(draws=True)
    graph = edges_around(site.marquez.url, system, "job", "clean · in")
    reader = EventReader(site.marquez.url)
    assert [one.missing_jobs for one in reconcile_new(site.journal, reader)] == [()]
    for forgotten in ("job", "edge"):
        if forgotten == "job":
            del site.marquez.graph.jobs[system, "clean · in"]
        else:
            site.marquez.graph.jobs[system, "clean · in"].edges.popitem()
        (found,) = reconcile_new(site.journal, reader)
        assert [(one.namespace, one.name) for one in found.missing_jobs] == [(system, "clean · in")]
        worker.run()
        assert edges_around(site.marquez.url, system, "job", "clean · in") == graph
        assert list(reconcile_new(site.journal, reader)) == []
    assert worker.delivery.pending() == 0


def test_two_sources_that_share_a_transform_and_no_sink_stay_two_flows(
    site: Site, system: str, tracker: Tracker
) -> None:
    for source, sink in (("a", "x"), ("b", "y")):
        with tracker.file("file", data_source=source) as file, file.transform("clean"):
            file.egress(sink)
    site.deliver(url=site.url, draws=True)
    nodes, _ = edges_around(site.url, system, "dataset", "a")
    assert nodes == ["[a]", "[clean · a]", "a", "x"]


def test_records_of_deltafi_are_drawn_too(site: Site, system: str) -> None:
    record = {
        "did": str(uuid.uuid4()),
        "systemName": system,
        "dataSource": "sftp",
        "filename": "f",
        "transforms": ["decompress", "load"],
        "dataSink": "db",
        "finalState": "COMPLETE",
        "created": 1,
        "completed": 2,
    }
    site.journal.append(Kind.PROVENANCE, json.dumps([record]).encode())
    site.deliver(url=site.url, draws=True)
    _, edges = edges_around(site.url, system, "dataset", "sftp")
    assert edges == [
        "[decompress · sftp] > decompress · sftp",
        "[load · sftp] > db",
        "decompress · sftp > [load · sftp]",
        "sftp > [decompress · sftp]",
    ]


def of_transforms(marquez: ContractServer) -> list[dict[str, Any]]:
    """The events of the runs that stand for the files of a transform, in the order of arrival."""
    facets = [(event, event.get("run", {}).get("facets", {})) for event in marquez.stored]
    return [event for event, of_run in facets if "transform" in of_run.get("waybill_summary", {})]


def test_files_of_a_minute_are_one_run_of_their_transform_and_none_is_counted_twice(
    site: Site, tracker: Tracker
) -> None:
    for number in range(5):
        with tracker.file("file", data_source="in") as file, file.transform("clean"), file.transform("load"):
            if number == 3:
                file.error("torn")
            else:
                file.egress("out")
        site.deliver(draws=True)
    site.journal.mark(b"flush")
    site.deliver(draws=True)
    found = of_transforms(site.marquez)
    assert not any(event["schemaURL"].endswith("/JobEvent") for event in site.marquez.stored)
    by_job: dict[str, Counter[str]] = {}
    for event in found:
        facet = event["run"]["facets"]["waybill_summary"]
        if event["eventType"] == "START":
            assert event["eventTime"] == facet["windowStart"] < facet["windowEnd"]
            continue
        counted = by_job.setdefault(event["job"]["name"], Counter())
        counted.update({"passed": facet.get("passed", 0), **facet["byFinalState"]})
        assert event["eventType"] == ("FAIL" if "ERROR" in facet["byFinalState"] else "COMPLETE")
    assert by_job == {
        "clean · in": {"passed": 5},
        "load · in": {"passed": 0, "COMPLETE": 4, "ERROR": 1},
    }
    errors = [
        event["run"]["facets"]["errorMessage"]["message"] for event in found if event["eventType"] == "FAIL"
    ]
    assert errors == ["torn"]
    assert set(site.marquez.runs.values()) == {"COMPLETED", "FAILED"}, "none is left running"


def spans_of(marquez: ContractServer) -> dict[str, tuple[datetime, datetime]]:
    """When the runs of transforms and splits began and ended, by the name of the job."""
    times: dict[str, list[datetime]] = {}
    for event in of_transforms(marquez):
        times.setdefault(event["job"]["name"], []).append(datetime.fromisoformat(event["eventTime"]))
    return {job: (first, last) for job, (first, last) in times.items()}


def test_a_run_of_a_transform_lasts_from_when_its_first_file_began_it_until_the_last_left_it(
    site: Site, tracker: Tracker
) -> None:
    first, second = (tracker.file(name, data_source="in") for name in "ab")
    with first, first.transform("unpack"):
        time.sleep(0.2)
        with second, second.transform("unpack"):
            time.sleep(0.1)
            second.egress("out")
        with first.transform("load"):
            time.sleep(0.4)
        first.egress("out")
    site.deliver(draws=True)
    spans = spans_of(site.marquez)
    (unpack_from, unpack_to), (load_from, load_to) = spans["unpack · in"], spans["load · in"]
    assert unpack_from + timedelta(seconds=0.3) <= unpack_to
    assert load_from + timedelta(seconds=0.4) <= load_to
    assert unpack_to <= load_from + timedelta(milliseconds=1), "the first file left it when it began the next"


def test_a_path_that_nobody_noted_is_in_its_transforms_from_the_files_beginning_to_its_end() -> None:
    kinds = (StepKind.TRANSFORM, StepKind.TRANSFORM, StepKind.SPLIT)
    for begun_ms, expected in (
        ((20, 50), [(20, 50), (50, 90), (90, 90)]),
        ((None, None), [(10, 90), (10, 90), (90, 90)]),
        ((None, 50), [(10, 50), (50, 90), (90, 90)]),
        ((99, None), [(90, 90), (10, 90), (90, 90)]),
        ((), [(10, 90), (10, 90), (90, 90)]),
    ):
        outcome = Outcome(FinalState.SPLIT, "", 10, 90, begun_ms)
        assert [outcome.span_ms(place, kind) for place, kind in enumerate(kinds)] == expected
    assert Outcome(FinalState.COMPLETE, "", 10, 90).span_ms(0, StepKind.DIRECT) == (10, 90)


def test_what_is_remembered_of_begun_transforms_is_bounded_and_the_oldest_goes_first() -> None:
    graph = JobGraph({})
    for number in range(BEGUN_MAX + 1):
        graph.note_begun(BegunTransforms(f"run-{number}", 1, ("unpack",)), number)
    graph.note_begun(BegunTransforms("run-2", 2, ("unpack", "load")), 7)
    graph.note_begun(BegunTransforms("run-3", 2, ("load",)), 7)  # its first name was too long to be noted
    assert graph.begun_ms("run-0", ("unpack",)) == graph.begun_ms("run-1", ("unpack",)) == (None,)
    assert graph.begun_ms("run-2", ("unpack", "load", "more")) == (2, 7, None)
    assert graph.begun_ms("run-3", ("unpack", "load")) == (3, None)


def test_each_minute_has_a_run_also_while_nothing_new_is_drawn(site: Site, tracker: Tracker) -> None:
    with tracker.file("file", data_source="in") as file, file.transform("clean"):
        file.egress("out")
    site.deliver(draws=True)
    assert [event["eventType"] for event in of_transforms(site.marquez)] == ["START", "COMPLETE"]
    graph = JobGraph({}, "node")
    path, outcome = FlowPath(FlowNode("s", "in"), ("clean",), "out"), Outcome(FinalState.COMPLETE)
    (job,) = graph.learn(path, 1_000)
    graph.count([job], outcome, Entry(1, 1_000, Kind.OPENLINEAGE, "", b""))
    assert graph.due(1_000, caught_up=False) == []
    assert graph.due(1_000, caught_up=True) == [job.node], "a job that is new is drawn at once"
    assert graph.event(job.node) is not None
    graph.count([job], outcome, Entry(2, 2_000, Kind.OPENLINEAGE, "", b""))
    assert graph.due(99_000, caught_up=True) == [], "the one before has not been taken"
    graph.told(job.node, 3_000)
    assert graph.due(61_999, caught_up=True) == []
    assert graph.wait_s(61_999) == 0.001
    assert graph.due(62_000, caught_up=True) == [job.node]


@pytest.mark.parametrize("transforms", [("split",), ("v1.2",), ("(split)",), ("a · b",), ("a", "b")])
def test_names_of_transforms_are_taken_for_nothing_else(
    site: Site, tracker: Tracker, transforms: tuple[str, ...]
) -> None:
    with tracker.file("file", data_source="in") as file:
        for transform in transforms:
            with file.transform(transform):
                pass
        file.split(["part"], data_source="parts")
    site.deliver(draws=True)
    ends = {
        event["job"]["name"]: event for event in of_transforms(site.marquez) if event["eventType"] != "START"
    }
    assert len(ends) == len(transforms) + 1
    says = {event["job"]["facets"]["documentation"]["description"] for event in ends.values()}
    assert says == {
        "Splits files of the data source in into others.",
        *(f"The transform {transform} of files of the data source in." for transform in transforms),
    }


def test_a_run_of_a_transform_that_is_refused_is_no_dead_letter_and_holds_up_nothing(
    site: Site, tracker: Tracker
) -> None:
    with tracker.file("file", data_source="in") as file, file.transform("clean"):
        file.egress("out")
    site.marquez.fault_of = lambda body: "422" if b"TRANSFORM" in body else None
    worker = site.deliver(draws=True)
    assert worker.delivery.pending() == 0
    assert list(site.marquez.runs.values()) == ["COMPLETED"]
    assert dead_letters(site.journal) == []


def test_owners_tags_and_documentation_of_the_files_events_are_those_of_the_flow_s_jobs(
    site: Site, system: str
) -> None:
    """Tags as any OpenLineage client adds them; owners and documentation as an emitter of its own does."""
    with site.tracker(system) as tracker:
        with tracker.file("year.csv", data_source="years") as year, year.transform("unpack"):
            (month,) = year.split(["1.csv"], data_source="months")
        with month.transform("validate"), month.transform("load"):
            month.egress("lake")
    of_month = [entry.body for entry in site.journal.read(0) if b'"lake"' in entry.body]
    noted = json.loads(of_month[-1])
    noted["job"]["facets"] = {
        "documentation": facet("DocumentationJobFacet", description="Ask Ann."),
        "ownership": facet("OwnershipJobFacet", owners=[{"name": "team:flights", "type": "MAINTAINER"}]),
        "tags": facet("TagsJobFacet", tags=[{"key": "tier", "value": "gold", "source": "USER"}]),
    }
    site.journal.append(Kind.OPENLINEAGE, json.dumps(noted).encode())
    site.deliver(url=site.url, draws=True)
    for name in ("validate · months", "load · months"):
        job = shown(site.url, "jobs", system, name)
        assert job["description"].endswith(
            "of files of the data source months. Ask Ann. Owners: team:flights."
        )
        assert job["facets"]["ownership"]["owners"] == [{"name": "team:flights", "type": "MAINTAINER"}]
        (tag,) = job["facets"]["tags"]["tags"]
        assert (tag["key"], tag["value"]) == ("tier", "gold")
    for name in ("unpack · years", "(split) · years"):
        assert "ownership" not in shown(site.url, "jobs", system, name)["facets"], "another data source's own"
    between = shown(site.url, "datasets", system, "validate · months")
    assert between["description"] == "Files of the data source months that have passed validate."


@pytest.mark.parametrize(
    "facets",
    [5, {"ownership": 5}, {"ownership": {"owners": [{}]}}, {"tags": {"tags": "gold"}}, {"documentation": {}}],
)
def test_a_facet_that_is_not_as_its_schema_has_it_says_nothing(facets: object) -> None:
    large = {"documentation": {"description": "x" * NOTES_MAX_BYTES}}
    for said in (facets, large):
        job = RunJob("ns", "job", msgspec.Raw(json.dumps(said).encode()))
        assert job_notes_of(job) == JobNotes()


def test_emitters_that_disagree_are_passed_on_once_a_minute() -> None:
    graph, now_ms = JobGraph({}), 1_000_000
    ann, ben = (JobNotes(owners=(Owner(name),)) for name in ("ann", "ben"))
    path = FlowPath(FlowNode("s", "in"), ("clean",), "out")

    def owners(notes: JobNotes, at_ms: int) -> list[str]:
        (job,) = graph.learn(path, at_ms, notes)
        graph.count([job], Outcome(FinalState.COMPLETE), Entry(1, at_ms, Kind.OPENLINEAGE, "", b""))
        if graph.due(at_ms, caught_up=True) == []:
            return []
        body = graph.event(job.node)
        graph.told(job.node, at_ms)
        facet = json.loads(body or b"{}")["job"]["facets"].get("ownership", {"owners": [{"name": "nobody"}]})
        return [owner["name"] for owner in facet["owners"]]

    assert owners(JobNotes(), now_ms) == ["nobody"]
    assert owners(ann, now_ms + 1) == ["ann"], "the first word is told at once"
    assert owners(ben, now_ms + 2) == []
    assert owners(JobNotes(), now_ms + NOTE_AFTER_MS + 2) == ["ann"], (
        "one who says nothing takes nothing away"
    )
    assert owners(ben, now_ms + 3 * NOTE_AFTER_MS) == ["ben"]
    again = JobGraph(dict(graph.changed()))
    assert again.learn(path, now_ms)[0].notes == ben


def test_what_is_learned_while_a_run_is_on_its_way_is_sent_with_the_next() -> None:
    graph = JobGraph({})
    outcome, entry = Outcome(FinalState.COMPLETE), Entry(1, 1, Kind.OPENLINEAGE, "", b"")
    (job,) = graph.learn(FlowPath(FlowNode("s", "in"), ("clean",), "out"), 1)
    graph.count([job], outcome, entry)
    assert graph.due(1, caught_up=True) == [job.node]
    graph.event(job.node)
    graph.count(graph.learn(FlowPath(FlowNode("s", "in"), ("clean",), "archive"), 2), outcome, entry)
    assert graph.due(2, caught_up=True) == []
    again = JobGraph(dict(graph.changed()))
    assert again.untold() == [job.node], "what was on its way when a runner died is sent again"
    graph.told(job.node, 3)
    assert graph.due(3, caught_up=True) == [job.node]
    outputs = json.loads(graph.event(job.node) or b"{}")["outputs"]
    assert [(one["namespace"], one["name"]) for one in outputs] == [("s", "archive"), ("s", "out")]


def test_names_that_differ_for_each_file_fill_no_memory() -> None:
    journey = JobGraph({})
    for number in range(EDGES_MAX):
        journey.learn(FlowPath(FlowNode("s", f"source-{number}"), ("clean",), "out"), 1)
    assert len(journey.untold()) <= EDGES_MAX
