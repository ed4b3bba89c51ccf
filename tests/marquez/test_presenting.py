"""What Marquez is sent of an event: what its page shows is right, and the record of it stays the same."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import msgspec
import pytest
import requests
from delivering import drawn, facet, shown
from hypothesis import example, given, strategies as st

from waybill.facets import PRESENTED_FACET, RunEvent, decode_event, fold
from waybill.facets.event import OutputDataset
from waybill.facets.flows import FlowNode, FlowPath
from waybill.facets.schema_files import read_facet_schemas
from waybill.facets.standard import JobNotes, Owner
from waybill.marquez.graph import JobGraph, file_event_of, full_name, present
from waybill.transport import Kind
from waybill.transport.journal import event_in

if TYPE_CHECKING:
    from delivering import Site

    from waybill.transport.config import Detail

DATASETS = st.lists(
    st.fixed_dictionaries(
        {"namespace": st.just("s"), "name": st.sampled_from(["in", "lake", "clean · in", "other"])},
        optional={"facets": st.sampled_from([None, {}, {"documentation": {"description": "mine"}}, 5])},
    ),
    max_size=2,
)
FACETS = st.fixed_dictionaries(
    {},
    optional={
        "parent": st.fixed_dictionaries(
            {
                "run": st.fixed_dictionaries({"runId": st.sampled_from(["p", "q"])}),
                "job": st.fixed_dictionaries(
                    {"namespace": st.just("s"), "name": st.sampled_from(["in", "a", "a.in"])}
                ),
            },
            optional={"root": st.just({"run": {"runId": "o"}, "job": {"namespace": "s", "name": "top"}})},
        ),
        "waybill_inferred": st.just({"reason": "gone"}),
        "errorMessage": st.just({"message": "torn"}),
        "waybill_summary": st.sampled_from([{"records": 2, "dataSource": "in"}, 5]),
        "waybill_deltaFile": st.fixed_dictionaries(
            {"did": st.sampled_from(["d", "e"])},
            optional={
                "dataSource": st.sampled_from([None, "", "in", "a"]),
                "parentDid": st.sampled_from([None, "p"]),
                "dataSink": st.just("lake"),
                "systemName": st.sampled_from(["", "s"]),
            },
        ),
    },
)
BODIES = st.fixed_dictionaries(
    {
        "eventTime": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
        "eventType": st.sampled_from(["START", "complete", "FAIL", "ABORT", "odd"]),
        "run": st.fixed_dictionaries({"runId": st.sampled_from(["r", "t"])}, optional={"facets": FACETS}),
        "job": st.fixed_dictionaries(
            {"namespace": st.just("s"), "name": st.sampled_from(["in", "a.in", "a"])},
            optional={"facets": st.sampled_from([None, {}, {"documentation": {"description": "mine"}}])},
        ),
        "producer": st.just("https://example.com/tests"),
    },
    optional={"inputs": DATASETS, "outputs": DATASETS},
).map(lambda event: json.dumps(event).encode())


def a_graph(notes: JobNotes = JobNotes(), *, written: bool = False) -> JobGraph:  # noqa: B008 - immutable
    graph = JobGraph({})
    graph.learn(FlowPath(FlowNode("s", "in"), ("clean", "load"), "lake"), 1, notes)
    if written:
        identifiers = [{"namespace": "s", "name": "lake", "type": "DATA_SINK"}]
        facets = {"symlinks": {"identifiers": identifiers}, "schema": {"fields": []}}
        graph.learn_datasets([OutputDataset("file", "/lake", msgspec.Raw(msgspec.json.encode(facets)))])
    return graph


def sent(body: bytes, graph: JobGraph, **options: str) -> bytes:
    return present(body, event_in(Kind.OPENLINEAGE, body), graph, **options)


def folded(bodies: list[bytes]) -> object:
    try:
        events = [event for event in map(decode_event, bodies) if isinstance(event, RunEvent)]
        return fold(events, system_name="s")
    except ValueError:
        return None


@example(
    [
        (
            b'{"eventTime": "2026-01-01T00:00:00Z", "eventType": "START", "producer": "https://example.com/tests",'
            b'"run": {"runId": "t", "facets": {"waybill_deltaFile": {"did": "d"}}}, '
            b'"job": {"namespace": "s", "name": "in"}, "inputs": [{"namespace": "s", "name": "lake"}]}'
        ),
        (
            b'{"eventTime": "2026-01-01T00:00:00Z", "eventType": "complete", "run": {"runId": "t"}, '
            b'"job": {"namespace": "s", "name": "in"}, "producer": "https://example.com/tests"}'
        ),
    ],
    True,  # noqa: FBT003
).via("a sink as an input of a run whose end has no facet")
@given(st.lists(BODIES, max_size=5), st.booleans())
def test_events_give_the_same_records_as_before(bodies: list[bytes], written: bool) -> None:  # noqa: FBT001
    graph = a_graph(written=written)
    assert folded([sent(body, graph) for body in bodies]) == folded(bodies)


@given(BODIES, st.booleans())
def test_what_is_presented_twice_is_as_presented_once(body: bytes, written: bool) -> None:  # noqa: FBT001
    graph = a_graph(written=written)
    once = sent(body, graph)
    assert sent(once, graph) == once


def an_end(**members: object) -> dict[str, Any]:
    parent = {"run": {"runId": "p"}, "job": {"namespace": "s", "name": "year"}}
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-01-01T00:00:00Z",
        "run": {
            "runId": "r",
            "facets": {"parent": parent, "waybill_deltaFile": {"did": "d", "dataSource": "in"}},
        },
        "job": {"namespace": "s", "name": "in"},
        "producer": "https://example.com/tests",
        **members,
    }


def presented(event: dict[str, Any], graph: JobGraph) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(sent(json.dumps(event).encode(), graph))
    return seen


def test_an_event_goes_without_its_parent_a_large_one_too() -> None:
    event = presented(an_end(producer="x" * 3_000_000), a_graph())
    assert (event["job"]["name"], "parent" in event["run"]["facets"]) == ("year.in", False)


def test_the_original_parent_is_kept_whole() -> None:
    event = an_end()
    root = {"run": {"runId": "o"}, "job": {"namespace": "s", "name": "top"}}
    event["run"]["facets"]["parent"] |= {"root": root, "_producer": "x"}
    schema = json.loads(read_facet_schemas()["WaybillPresentedRunFacet-1-0-0"])
    facet = presented(event, a_graph())["run"]["facets"]["waybill_presented"]
    assert facet["_schemaURL"] == schema["$id"] + "#/$defs/WaybillPresentedRunFacet"
    assert schema["properties"] == {PRESENTED_FACET: {"$ref": "#/$defs/WaybillPresentedRunFacet"}}
    definition = schema["$defs"]["WaybillPresentedRunFacet"]["allOf"][1]
    jsonschema.validate(facet, definition)
    assert set(facet) == {"_producer", "_schemaURL", *definition["properties"]}
    assert (facet["jobName"], facet["parent"]) == ("in", event["run"]["facets"]["parent"])


@pytest.mark.parametrize(
    ("name", "parent", "full"),
    [
        ("app.write", "app", "app.write"),
        ("my.app.write", "app", "app.my.app.write"),
        ("app", "app", "app.app"),
        ("dag.task", "dag.task", "dag.task"),
        ("task", "dag.task", "dag.task.task"),
        (".x", ".x", ".x"),
    ],
)
def test_the_full_name_is_marquez_s(site: Site, system: str, name: str, parent: str, full: str) -> None:
    assert full_name(name, parent) == full
    run, job = str(uuid.uuid4()), {"namespace": system, "name": name}
    parents = {"run": {"runId": str(uuid.uuid4())}, "job": {"namespace": system, "name": parent}}
    facets = {"parent": facet("ParentRunFacet", **parents)}
    shown_at = f"{site.url}/api/v1/namespaces/{system}/jobs/{quote(full, safe='')}"
    assert requests.get(shown_at, timeout=60).status_code == 404
    for kind, state in (("START", "RUNNING"), ("FAIL", "FAILED")):
        site.keep(run, eventType=kind, run={"runId": run, "facets": facets}, job=job)
        site.deliver(url=site.url, draws=True)
        assert requests.get(shown_at, timeout=60).status_code == 200
        assert requests.get(f"{site.url}/api/v1/jobs/runs/{run}", timeout=60).json()["state"] == state


def test_jobs_sources_and_sinks_are_described_with_their_owners_unless_they_are() -> None:
    graph = a_graph(JobNotes("Ask Ann.", (Owner("team:flights"),)))
    mine = {"documentation": {"description": "mine"}}
    names = [{"namespace": "s", "name": name} for name in ("lake", "unknown")]
    event = presented(
        an_end(inputs=[{"namespace": "s", "name": "in"}], outputs=[*names, names[0] | {"facets": mine}]),
        graph,
    )
    said = [one.get("facets", {}).get("documentation", {}).get("description") for one in event["outputs"]]
    assert said == ["The data sink lake.", None, "mine"]
    assert event["inputs"][0]["facets"]["documentation"]["description"] == "Files of the data source in."
    says = event["job"]["facets"]["documentation"]["description"]
    assert says == "Files of the data source in. Ask Ann. Owners: team:flights."
    described = presented(an_end(job={"namespace": "s", "name": "in", "facets": mine}), graph)
    assert described["job"]["facets"] == mine


@pytest.mark.parametrize(
    ("columns", "kept"), [(["value"], False), (["k", "value"], True), (["values"], True), ([], True)]
)
def test_a_file_that_is_read_as_lines_has_no_column_of_that(columns: list[str], kept: bool) -> None:  # noqa: FBT001
    schema = {"schema": {"fields": [{"name": one, "type": "string"} for one in columns]}}
    datasets = [{"namespace": "file", "name": "/in.csv", "facets": schema | {"x": 1}}]
    event = presented(an_end(run={"runId": "r"}, inputs=datasets, outputs=datasets), a_graph())
    assert event["inputs"][0]["facets"] == ((schema if kept else {}) | {"x": 1})
    assert event["outputs"][0]["facets"] == schema | {"x": 1}, "what is written has the columns that it has"


@pytest.fixture
def flow(site: Site, system: str) -> str:
    """A year that is split into a month that fails; the name of the system."""
    with site.tracker(system) as tracker:
        with tracker.file("year", data_source="years") as year, year.transform("unpack"):
            (month,) = year.split(["month"], data_source="months")
        with month:
            (day,) = month.split(["day"], data_source="days")
        with day.transform("load"):
            day.error("torn")
    return system


def test_a_node_is_drawn_in_the_state_of_its_own_run_not_of_its_parent_s(site: Site, flow: str) -> None:
    site.deliver(url=site.url, draws=True)
    bodies = [json.loads(entry.body) for entry in site.journal.read(0) if entry.kind is Kind.OPENLINEAGE]
    runs = {body["job"]["name"]: body["run"]["runId"] for body in bodies}
    graph = drawn(site.url, "dataset", flow, "years")
    jobs = {one["data"]["name"]: one["data"] | one for one in graph if one["type"] == "JOB"}
    for job, name in (("years.months", "months"), ("months.days", "days")):
        latest = jobs[job]["latestRun"]  # the run that colours it
        assert (latest["id"] if isinstance(latest, dict) else latest) == runs[name]
    for name, says in (("years", "years"), ("months", "months")):
        assert shown(site.url, "datasets", flow, name)["description"] == f"Files of the data source {says}."
    assert shown(site.url, "jobs", flow, "months.days")["description"] == "Files of the data source days."


@pytest.mark.parametrize("detail", ["every", "summary"])
def test_the_button_of_each_job_leads_to_the_records_of_its_flow(
    site: Site, flow: str, detail: Detail
) -> None:
    site.journal.mark(b"flush")
    site.deliver(url=site.url, draws=True, detail=detail)
    located = {}
    for job in ("years", "years.months", "months.days", "unpack · years", "load · days", "(split) · years"):
        located[job] = shown(site.url, "jobs", flow, job)["location"]
    records = f"http://collector:8090/api/v1/records?system_name={flow}&data_source="
    assert located == {
        "years": f"{records}years",
        "years.months": f"{records}months",
        "months.days": f"{records}days",
        "unpack · years": f"{records}years",
        "load · days": f"{records}days",
        "(split) · years": f"{records}years",
    }


def test_a_job_with_a_location_of_its_own_keeps_it_and_without_an_address_there_is_none() -> None:
    own = {"sourceCodeLocation": {"type": "git", "url": "https://git.example.com/flow"}}
    event = an_end(job={"namespace": "s", "name": "in", "facets": own})
    base = "http://collector:8090"
    kept = sent(json.dumps(event).encode(), a_graph(), collector_url=base)
    assert json.loads(kept)["job"]["facets"]["sourceCodeLocation"] == own["sourceCodeLocation"]
    given = sent(json.dumps(an_end()).encode(), a_graph(), collector_url=base)
    location = json.loads(given)["job"]["facets"]["sourceCodeLocation"]
    assert location["url"] == f"{base}/api/v1/records?system_name=s&data_source=in"
    assert "sourceCodeLocation" not in presented(an_end(), a_graph())["job"]["facets"]
    spark = an_end(run={"runId": "r", "facets": {}})
    of_spark = sent(json.dumps(spark).encode(), a_graph(), collector_url=base)
    assert "facets" not in json.loads(of_spark)["job"], "it is no flow's"


def test_another_home_draws_a_presented_file_as_its_own() -> None:
    accepted = json.dumps(an_end()).encode()
    again = sent(accepted, a_graph())
    assert file_event_of(decode_event(again)) == file_event_of(decode_event(accepted))
