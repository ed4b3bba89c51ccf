"""A sink and the dataset that it writes are one node with columns."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests
from delivering import drawn, shown

from waybill.facets import RunEvent, decode_event
from waybill.facets.event import OutputDataset
from waybill.facets.flows import FlowNode, FlowPath
from waybill.marquez import EventReader, reconcile
from waybill.marquez.graph import Job, JobGraph, present
from waybill.marquez.graph.datasets import DATASETS_MAX, FACET_MAX_BYTES, Datasets

if TYPE_CHECKING:
    from delivering import Site

    from waybill.transport import Tracker

FACET = {"_producer": "https://example.com", "_schemaURL": "https://example.com/schema"}


def a_schema(*columns: str) -> dict[str, Any]:
    return {"schema": FACET | {"fields": [{"name": one, "type": "int"} for one in columns]}}


def deliver(site: Site) -> None:
    """Deliver all that is in the journal, with a runner that starts and ends."""
    site.journal.mark(b"flush")
    site.deliver(url=site.url, draws=True)


def spark(site: Site, system: str, lake: Path, *columns: str) -> None:
    """Accept what Spark says of a run that writes a folder."""
    run, outputs = str(uuid.uuid4()), [{"namespace": "file", "name": str(lake), "facets": a_schema(*columns)}]
    for kind in ("START", "COMPLETE"):
        job = {"namespace": system, "name": "spark.write"}
        site.keep(run, eventType=kind, eventTime=datetime.now(UTC).isoformat(), job=job, outputs=outputs)


def columns_of(url: str, dataset: FlowNode) -> list[str]:
    return sorted(field["name"] for field in shown(url, "datasets", *dataset)["fields"])


def names_around(url: str, dataset: FlowNode) -> set[tuple[str, str]]:
    return {(one["data"]["namespace"], one["data"]["name"]) for one in drawn(url, "dataset", *dataset)}


def pass_files(tracker: Tracker, **told: Any) -> None:  # noqa: ANN401 - as egress takes it
    """One file is filtered, and one goes to the lake."""
    for name in ("filtered", "complete"):
        with tracker.file(name, data_source="orders") as file, file.transform("load"):
            if name == "filtered":
                file.filter("empty")
            else:
                file.egress("lake", **told)


@pytest.mark.parametrize("first", ["files", "spark"])
def test_a_sink_and_what_spark_writes_there_are_one_dataset_with_columns(
    site: Site, system: str, tmp_path: Path, first: str
) -> None:
    lake, url = tmp_path / "lake", site.url
    if first == "spark":
        spark(site, system, lake, "a", "b")
        deliver(site)
    with site.tracker(system) as tracker:
        pass_files(tracker, dataset=lake)
        if first == "files":
            deliver(site)
            spark(site, system, lake, "a", "b")
    deliver(site)
    with site.tracker(system) as tracker:
        pass_files(tracker)  # another process, which does not say what it writes
    deliver(site)
    node = FlowNode("file", str(lake))
    jobs = {(system, "load · orders"), (system, "orders"), (system, "spark.write")}
    assert names_around(url, node) == {*jobs, tuple(node)}  # the data source has its job's name
    alias = requests.get(f"{url}/api/v1/namespaces/{system}/datasets/lake", timeout=60)
    assert alias.status_code == 404, "the page would list it, and show nothing under it"
    assert columns_of(url, node) == ["a", "b"]
    assert shown(url, "datasets", *node)["description"] == "The data sink lake."


def test_a_sink_that_marquez_knows_by_its_name_is_drawn_as_the_dataset_from_then_on(
    site: Site, system: str, tmp_path: Path
) -> None:
    with site.tracker(system) as tracker:
        pass_files(tracker)
        deliver(site)
        assert (system, "lake") in names_around(site.url, FlowNode(system, "orders"))
        pass_files(tracker, dataset=tmp_path)
        deliver(site)
    nodes = names_around(site.url, FlowNode(system, "orders"))
    assert ("file", str(tmp_path)) in nodes
    assert (system, "lake") not in nodes


def test_summaries_name_the_dataset_and_nothing_of_the_graph_counts_as_lost(
    site: Site, system: str, tmp_path: Path
) -> None:
    spark(site, system, tmp_path, "a", "b")
    with site.tracker(system) as tracker:
        pass_files(tracker)
        pass_files(tracker, dataset=tmp_path)
    site.journal.mark(b"flush")
    site.deliver(url=site.url, draws=True, detail="summary")
    node = FlowNode("file", str(tmp_path))
    assert (system, "orders") in names_around(site.url, node)
    assert (system, "lake") not in names_around(site.url, node)
    assert columns_of(site.url, node) == ["a", "b"]
    found = reconcile(site.journal, EventReader(site.url))
    assert (found.missing, found.missing_jobs, found.compared_jobs) == ((), (), 1)


def test_other_names_of_a_dataset_stay_and_other_runs_name_the_dataset_of_a_sink_too() -> None:
    graph = JobGraph({})
    identifiers = [{"namespace": "hive", "name": "db.lake", "type": "TABLE"}]
    sinks = sink_of("lake")["symlinks"]["identifiers"]
    graph.learn_datasets(outputs(("/lake", sink_of("lake"))))

    def sent(dataset: dict[str, Any]) -> dict[str, Any]:
        run = {"run": {"runId": "r"}, "job": {"namespace": "s", "name": "report"}, "inputs": [dataset]}
        event = {"eventType": "COMPLETE", "eventTime": "2026-01-01T00:00:00Z", "producer": "x"} | run
        body = json.dumps(event).encode()
        again = present(body, decode_event(body), graph)
        before, after = decode_event(body), decode_event(again)
        assert isinstance(before, RunEvent)
        assert isinstance(after, RunEvent)
        assert [one.recorded for one in after.inputs or ()] == [one.recorded for one in before.inputs or ()]
        (found,) = json.loads(again)["inputs"]
        assert isinstance(found, dict)
        return found

    both = {
        "namespace": "file",
        "name": "/lake",
        "facets": {"symlinks": {"identifiers": identifiers + sinks}},
    }
    assert sent(both)["facets"]["symlinks"] == {"identifiers": identifiers}
    assert sent(both)["facets"]["waybill_sinks"] == {"identifiers": sinks}
    named = sent({"namespace": "s", "name": "lake"})
    assert (named["namespace"], named["name"], "symlinks" in named["facets"]) == ("file", "/lake", False)
    assert sent({"namespace": "s", "name": "other"}) == {"namespace": "s", "name": "other"}


@pytest.mark.parametrize("draws", [True, False])
def test_no_backend_gets_the_note_of_a_transform(site: Site, system: str, *, draws: bool) -> None:
    worker = site.worker(draws=draws)
    with (
        site.tracker(system) as tracker,
        tracker.file("a.csv", data_source="in") as file,
        file.transform("unpack"),
    ):
        assert site.journal.read(0)[-1].begun_transforms is not None
        worker.run(at_most_s=3600.0)
        assert worker.delivery.pending() == 0
        assert any(b"a.csv" in one.body for one in site.marquez.received)
        assert all(b"unpack" not in one.body for one in site.marquez.received)
        file.egress("lake")


def outputs(*written: tuple[str, dict[str, Any]]) -> list[OutputDataset]:
    return [OutputDataset("file", name, msgspec.Raw(json.dumps(facets).encode())) for name, facets in written]


def sink_of(name: str) -> dict[str, Any]:
    return {"symlinks": {"identifiers": [{"namespace": "s", "name": name, "type": "DATA_SINK"}]}}


def test_the_last_columns_count_and_large_ones_do_not() -> None:
    datasets = Datasets({})
    lake = FlowNode("file", "/lake")
    for columns in (["a"], ["b", "c"], ["x" * FACET_MAX_BYTES]):
        datasets.learn(outputs(("/lake", a_schema(*columns))))
    assert json.loads(bytes(datasets.columns_of(lake)["schema"])) == a_schema("b", "c")["schema"]
    again = Datasets({key: row for key, row in datasets.changed() if row is not None})
    assert again.columns_of(lake) == datasets.columns_of(lake)
    assert list(datasets.changed()) == []


def test_datasets_that_are_no_sinks_are_forgotten_first() -> None:
    datasets = Datasets({})
    datasets.learn(outputs(("/lake", sink_of("lake") | a_schema("a"))))
    for number in range(DATASETS_MAX):
        datasets.learn(outputs((f"/{number}", a_schema("a"))))
    rows = dict(datasets.changed())
    assert sum(row is not None for row in rows.values()) == DATASETS_MAX
    assert datasets.columns_of(FlowNode("file", "/0")) == {}
    assert datasets.node_of(FlowNode("s", "lake")) == FlowNode("file", "/lake")
    assert datasets.columns_of(FlowNode("file", "/lake"))


def test_a_sink_that_writes_elsewhere_moves_with_its_jobs() -> None:
    graph = JobGraph({})
    graph.learn(FlowPath(FlowNode("s", "in"), ("load",), "lake"), 1)
    for name in ("/old", "/new"):
        graph.learn_datasets(outputs((name, sink_of("lake"))))
    (job,) = [msgspec.json.decode(row, type=Job) for _, row in graph.changed()]
    assert job.outputs == {FlowNode("file", "/new")}
    assert graph.says(FlowNode("file", "/new")) == "The data sink lake."
    assert graph.datasets.sinks_of(FlowNode("file", "/old")) == []


@pytest.mark.parametrize("raw", [b"", b"5", b'["schema"]', b"[" * 9_999 + b"schema"])
def test_outputs_that_cannot_be_read_teach_nothing(raw: bytes) -> None:
    datasets = Datasets({})
    assert datasets.learn([OutputDataset("file", "/lake", msgspec.Raw(raw))]) == {}
    assert list(datasets.changed()) == []
