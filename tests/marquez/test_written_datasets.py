"""A sink and the dataset that it writes are one node with columns."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
import requests
from delivering import Worker

from waybill.facets import RunEvent, decode_event, fold
from waybill.facets.event import OutputDataset
from waybill.facets.flows import FlowNode, FlowPath
from waybill.marquez import EventReader, reconcile
from waybill.marquez.graph import Job, JobGraph, present
from waybill.marquez.graph.datasets import DATASETS_MAX, FACET_MAX_BYTES, Datasets
from waybill.transport import Journal, Kind as EntryKind, Settings, Tracker

if TYPE_CHECKING:
    from delivering import Site

EventOf = Callable[..., bytes]
FACET = {"_producer": "https://example.com", "_schemaURL": "https://example.com/schema"}


def a_schema(*columns: str) -> dict[str, Any]:
    return {"schema": FACET | {"fields": [{"name": one, "type": "int"} for one in columns]}}


@pytest.fixture
def system() -> str:
    """A namespace that no other test draws in."""
    return f"written-{uuid.uuid4()}"


@pytest.fixture
def new_tracker(home: Path, system: str) -> Callable[[], Tracker]:
    def new_tracker() -> Tracker:
        given = {"home": home, "system_name": system, "runner": "none"}
        return Tracker(settings=Settings.load(given, env={}))

    return new_tracker


@pytest.fixture
def deliver(site: Site) -> Callable[[], None]:
    """Deliver all that is in the journal, with a runner that starts and ends."""

    def deliver() -> None:
        worker = Worker(site.journal, site.url, draws=True, connect_timeout_s=10.0, answer_timeout_s=60.0)
        site.journal.mark(b"flush")
        worker.run(at_most_s=3600.0)
        worker.delivery.close()

    return deliver


@pytest.fixture
def spark(journal: Journal, system: str, event_of: EventOf) -> Callable[..., None]:
    """Accept what Spark says of a run that writes a folder."""

    def spark(lake: Path, *columns: str) -> None:
        run, outputs = (
            str(uuid.uuid4()),
            [{"namespace": "file", "name": str(lake), "facets": a_schema(*columns)}],
        )
        job = {"namespace": system, "name": "spark.write"}
        for kind in ("START", "COMPLETE"):
            moment = datetime.now(UTC).isoformat()
            body = event_of(run, eventType=kind, eventTime=moment, job=job, outputs=outputs)
            journal.append(EntryKind.OPENLINEAGE, body)

    return spark


def known(url: str, dataset: FlowNode) -> dict[str, Any]:
    where, name = (quote(one, safe="") for one in dataset)
    answer = requests.get(f"{url}/api/v1/namespaces/{where}/datasets/{name}", timeout=60)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def columns_of(url: str, dataset: FlowNode) -> list[str]:
    return sorted(field["name"] for field in known(url, dataset)["fields"])


def drawn(url: str, dataset: FlowNode) -> set[tuple[str, str]]:
    query = {"nodeId": f"dataset:{dataset.namespace}:{dataset.name}", "depth": "20"}
    graph = requests.get(f"{url}/api/v1/lineage", params=query, timeout=60).json()["graph"]
    return {(one["data"]["namespace"], one["data"]["name"]) for one in graph}


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
    url: str,
    system: str,
    new_tracker: Callable[[], Tracker],
    deliver: Callable[[], None],
    spark: Callable[..., None],
    tmp_path: Path,
    first: str,
) -> None:
    lake = tmp_path / "lake"
    if first == "spark":
        spark(lake, "a", "b")
        deliver()
    with new_tracker() as tracker:
        pass_files(tracker, dataset=lake)
        if first == "files":
            deliver()
            spark(lake, "a", "b")
    deliver()
    with new_tracker() as tracker:
        pass_files(tracker)  # another process, which does not say what it writes
    deliver()
    node = FlowNode("file", str(lake))
    jobs = {(system, "load · orders"), (system, "orders"), (system, "spark.write")}
    assert drawn(url, node) == {*jobs, tuple(node)}  # the data source has its job's name
    alias = requests.get(f"{url}/api/v1/namespaces/{system}/datasets/lake", timeout=60)
    assert alias.status_code == 404, "the page would list it, and show nothing under it"
    assert columns_of(url, node) == ["a", "b"]
    assert known(url, node)["description"] == "The data sink lake."


def test_a_sink_that_marquez_knows_by_its_name_is_drawn_as_the_dataset_from_then_on(
    url: str, system: str, new_tracker: Callable[[], Tracker], deliver: Callable[[], None], tmp_path: Path
) -> None:
    with new_tracker() as tracker:
        pass_files(tracker)
        deliver()
        assert (system, "lake") in drawn(url, FlowNode(system, "orders"))
        pass_files(tracker, dataset=tmp_path)
        deliver()
    nodes = drawn(url, FlowNode(system, "orders"))
    assert ("file", str(tmp_path)) in nodes
    assert (system, "lake") not in nodes


def test_summaries_name_the_dataset_and_nothing_of_the_graph_counts_as_lost(
    site: Site, system: str, new_tracker: Callable[[], Tracker], spark: Callable[..., None], tmp_path: Path
) -> None:
    spark(tmp_path, "a", "b")
    with new_tracker() as tracker:
        pass_files(tracker)
        pass_files(tracker, dataset=tmp_path)
    worker = Worker(
        site.journal, site.url, draws=True, detail="summary", connect_timeout_s=9, answer_timeout_s=60
    )
    site.journal.mark(b"flush")
    worker.run(at_most_s=3600.0)
    worker.delivery.close()
    node = FlowNode("file", str(tmp_path))
    assert (system, "orders") in drawn(site.url, node)
    assert (system, "lake") not in drawn(site.url, node)
    assert columns_of(site.url, node) == ["a", "b"]
    found = reconcile(site.journal, EventReader(site.url))
    assert (found.missing, found.missing_jobs, found.compared_jobs) == ((), (), 1)


def test_columns_that_the_tracker_gives_stay_with_files_that_do_not_get_there(
    url: str, system: str, new_tracker: Callable[[], Tracker], deliver: Callable[[], None]
) -> None:
    with new_tracker() as tracker:
        pass_files(tracker, schema={"a": "INT", "b": "STRING"})
        deliver()
        pass_files(tracker)
        deliver()
    assert columns_of(url, FlowNode(system, "lake")) == ["a", "b"]


def test_the_records_are_the_same_from_the_journal_and_from_what_marquez_is_sent(
    site: Site, system: str, new_tracker: Callable[[], Tracker], tmp_path: Path
) -> None:
    with new_tracker() as tracker:
        pass_files(tracker)
        pass_files(tracker, dataset=tmp_path / "lake", schema={"a": "INT"})
    worker = site.worker(draws=True)  # which also notes what a real one is sent
    worker.run(at_most_s=3600.0)
    worker.delivery.close()
    runs: dict[str, tuple[list[RunEvent], list[RunEvent]]] = {}
    sides = (
        [entry.body for entry in site.journal.read(0) if entry.kind is EntryKind.OPENLINEAGE],
        [one.body for one in site.marquez.received if b"waybill_deltaFile" in one.body],
    )
    for side, bodies in enumerate(sides):
        for event in map(decode_event, bodies):
            assert isinstance(event, RunEvent)
            runs.setdefault(event.run.runId, ([], []))[side].append(event)
    assert len(runs) == 4
    for ours, theirs in runs.values():
        assert fold(theirs, system_name=system) == fold(ours, system_name=system)
    sinks = {record.data_sink for ours, _ in runs.values() for record in fold(ours, system_name=system)}
    assert sinks == {None, "lake"}


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
def test_no_backend_gets_the_note_of_a_transform(
    site: Site, new_tracker: Callable[[], Tracker], *, draws: bool
) -> None:
    worker = site.worker(draws=draws)
    with new_tracker() as tracker, tracker.file("a.csv", data_source="in") as file, file.transform("unpack"):
        assert site.journal.read(0)[-1].begun_transforms is not None
        worker.run(at_most_s=3600.0)
        assert worker.delivery.pending() == 0
        assert any(b"a.csv" in one.body for one in site.marquez.received)
        assert all(b"unpack" not in one.body for one in site.marquez.received)
        file.egress("lake")
    worker.delivery.close()


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
