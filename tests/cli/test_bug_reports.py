"""Public bug reports about other lineage and data tools: here, each case has the right answer.

Every report stands for a kind of input that real producers send. All that comes over HTTP goes to one
collector, as it would.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pytest
from events import RUN_EVENT, members
from openlineage.client.event_v2 import Job, Run as RunOf, RunEvent, RunState
from openlineage.client.facet_v2 import RunFacet, error_message_run
from served import Collector, record, without_runner

from waybill.transport import WaybillConfig, WaybillTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Run

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
NULL_POINTER = "java.lang.NullPointerException"


def did(number: int, letter: str = "0") -> str:
    """The did of a case's file."""
    return f"01a1fd6a-9e75-7d78-870f-0000000{number:02}{letter:0>3}"


def sent(run: str, kind: str = "COMPLETE", minute: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    return members(run, kind, f"2026-01-31T12:{minute:02}:00Z", schemaURL=RUN_EVENT, **more)


def child_of(parent: str) -> dict[str, Any]:
    return {"parent": {"run": {"runId": parent}, "job": {"namespace": "n", "name": "app"}}}


class Site(NamedTuple):
    """A home with all that was sent over HTTP, and its collector."""

    collector: Collector
    home: Path

    def post(self, path: str, *bodies: object, mark: str = "") -> None:
        for body in bodies:
            reply = self.collector.post(path, (mark + json.dumps(body)).encode())
            assert reply.status in {201, 202}, reply.body
            assert not reply.body or reply.json.get("failed", []) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("reports") / "home"
    options = ("--provenance-enabled", "--provenance-annotations-allowed", "team")
    with without_runner(home, *options) as collector:
        yield Site(collector, home)


def find(called: Run, site: Site, *words: str) -> list[dict[str, Any]]:
    """The records that `waybill find` prints after a flush."""
    assert called("flush", "--home", site.home).returncode == 0
    done = called("find", "--home", site.home, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rebuilt(called: Run, tmp_path: Path, text: str) -> tuple[int, Path]:
    """The exit code of a rebuild from lines of events, and its root."""
    (tmp_path / "events.jsonl").write_text(text, encoding="utf-8")
    root = tmp_path / "root"
    return called("rebuild", "--from", "jsonl", tmp_path / "events.jsonl", "--to", root).returncode, root


def test_a_failure_whose_exception_has_no_message_ends_its_run(called: Run, site: Site) -> None:
    """After OpenLineage pull request 2431 and DataHub issue 13874."""
    trace = f"{NULL_POINTER}\n\tat org.example.Sink.write(Sink.java:7)"
    failed = {"message": None, "programmingLanguage": "JAVA", "stackTrace": trace}
    site.post("/api/v1/lineage", sent(did(1), "START", job="cdc/orders"))
    site.post("/api/v1/lineage", sent(did(1), "FAIL", 1, job="cdc/orders", facets={"errorMessage": failed}))
    facet = error_message_run.ErrorMessageRunFacet(None, "JAVA", trace)  # type: ignore[arg-type]
    transport = WaybillTransport(WaybillConfig.from_dict({"home": str(site.home), "runner": "none"}))
    ends: list[tuple[RunState, dict[str, RunFacet]]] = [
        (RunState.START, {}),
        (RunState.FAIL, {"errorMessage": facet}),
    ]
    for minute, (state, facets) in enumerate(ends):
        run, at = RunOf(did(1, "b"), facets), f"2026-01-31T12:{minute:02}:00Z"
        job = Job("cdc", "payments")
        transport.emit(RunEvent(eventTime=at, eventType=state, run=run, job=job, producer="tests"))
    transport.close()
    failures = find(called, site, "--system", "cdc")
    assert sorted((one["filename"], one["final_state"], one["annotations"]) for one in failures) == [
        (name, "ERROR", {"errorCause": NULL_POINTER}) for name in ("orders", "payments")
    ]
    assert find(called, site, "--open") == []


@pytest.mark.parametrize("names_each_other", [False, True])
def test_every_form_of_a_trace_has_the_ancestors_that_name_themselves(
    called: Run, tmp_path: Path, *, names_each_other: bool
) -> None:
    """After OpenMetadata issues 32206 and 21817, and DataHub pull request 2413."""
    parents = {"a": "b", "b": "a", "c": "a"} if names_each_other else {"a": "a", "b": "a", "c": "b"}
    lines = [
        json.dumps(sent(did(2, one), minute=minute, facets=child_of(did(2, parent))))
        for minute, (one, parent) in enumerate(parents.items())
    ]
    code, root = rebuilt(called, tmp_path, "\n".join(lines))
    assert code == 0

    def traced(*words: str | Path) -> str:
        done = called("trace", "--root", root, did(2, "c"), *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert len(json.loads(traced("--json"))["files"]) == 3
    assert len(re.findall(r"^\S.*01a1fd6a", traced("--up"), re.MULTILINE)) == 3
    assert len(re.findall(r"^  n\d+\[", traced("--mermaid"), re.MULTILINE)) == 3
    assert traced("--dot").count("label=") == 3
    for option, node in (("--svg", "<g>"), ("--graphml", "<node")):
        traced(option, tmp_path / "drawing")
        assert (tmp_path / "drawing").read_text(encoding="utf-8").count(node) == 3


def test_a_name_with_brackets_or_a_question_mark_is_found_as_it_is(called: Run, site: Site) -> None:
    """After polars issues 14733 and 17822, and aws-sdk-pandas issue 564."""
    names = ["report[1].csv", "report1.csv", "temp[9-1].csv", "what?.csv", "whats.csv"]
    site.post("/provenance", [record(did=did(3, str(at)), filename=name) for at, name in enumerate(names)])
    for name in names:
        (one,) = find(called, site, "--filename", name)
        assert one["filename"] == name
        traced = called("trace", "--home", site.home, name).stdout
        assert traced.startswith(f"{name}  {one['did']}")
        answer = site.collector.get(f"/api/v1/records?filename={quote(name, safe='')}").json
        assert [found["filename"] for found in answer] == [name]


def test_an_id_in_capitals_is_the_same_id(called: Run, site: Site) -> None:
    """After uipath-python pull request 1702, and ili2db issue 507: SQL Server and .NET write capitals."""
    run, up = did(4, "aa"), did(4, "c0")
    inputs, outputs = ["sftp/in.csv"], ["lake/out"]
    site.post("/api/v1/lineage", sent(run.upper(), "START", job="n/load", inputs=inputs))
    site.post("/api/v1/lineage", sent(run, "COMPLETE", 1, job="n/load", outputs=outputs))
    site.post("/api/v1/lineage", sent(did(4, "bb"), minute=2, job="n/step", facets=child_of(run.upper())))
    part = record(did=did(4, "c1"), parentDid=up, filename="part.csv")
    site.post("/provenance", [record(did=up.upper(), filename="up.csv", finalState="SPLIT"), part])
    (loaded,) = find(called, site, "--filename", "in.csv")
    assert (loaded["data_source"], loaded["data_sink"]) == ("sftp/in.csv", "lake/out")
    assert [one["did"] for one in find(called, site, "--parent", run)] == [did(4, "bb")]
    assert len(find(called, site, "--did", up)) == len(find(called, site, "--did", up.upper())) == 1
    assert called("trace", "--home", site.home, "part.csv").stdout.startswith("up.csv")


def test_graphml_of_ids_that_are_no_uuids_keeps_to_its_schema(
    called: Run, site: Site, tmp_path: Path
) -> None:
    """After JGraphT issue 831, and igraph issues 2507 and 794."""
    run = "manual__2026-01-31T12:00:00+00:00"
    names = {run: "dag.csv", "row 7/ä": "R&D <x>.csv", "tab\x01": "one.csv", "tab\\u0001": "two.csv"}
    site.post(
        "/provenance",
        [
            record(did=one, filename=name, parentDid=None if one == run else run)
            for one, name in names.items()
        ],
    )
    assert called("flush", "--home", site.home).returncode == 0
    done = called("trace", "--home", site.home, "dag.csv", "--graphml", tmp_path / "drawing")
    assert done.returncode == 0, done.stderr
    graph = ET.parse(tmp_path / "drawing").getroot()  # noqa: S314 - our own
    space = "{http://graphml.graphdrawing.org/xmlns}"
    ids = [node.get("id") or "" for node in graph.iter(f"{space}node")]
    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"[\w.:-]+", one, re.ASCII) for one in ids), "what the schema calls NMTOKEN"
    assert len(list(graph.iter(f"{space}edge"))) == len(names) - 1


def test_a_byte_order_mark_before_json_is_ignored(called: Run, site: Site) -> None:
    """After Pode issue 1604, and axoasset pull request 87: .NET and old PowerShell write one."""
    site.post("/api/v1/lineage", sent(did(11, "a"), job="marked/job"), mark=MARK)
    site.post("/provenance", [record(did=did(11, "b"), systemName="marked")], mark=MARK)
    assert len(find(called, site, "--system", "marked")) == 2


@pytest.mark.parametrize("character", ["\x00", "\x01"])
def test_a_control_character_in_a_facet_of_others_is_kept(called: Run, site: Site, character: str) -> None:
    """After chain-indexing pull request 699: a CSV option may be NUL, which PostgreSQL cannot store."""
    facets = {"spark_properties": {"properties": {"csv.delimiter": character}}}
    run = did(22, f"{ord(character)}")
    site.post("/api/v1/lineage", sent(run, inputs=["x/in.csv"], facets=facets))
    assert len(find(called, site, "--did", run)) == 1


def test_tags_that_are_no_text_do_not_cost_the_event_or_the_other_tags(called: Run, site: Site) -> None:
    """After OpenLineage pull request 4022, and Airflow issue 43638."""
    said = {"team": "night", "rows": 12, "pii": True, "seen": None}
    tags = {"tags": [{"key": key, "value": value} for key, value in said.items()]}
    site.post("/api/v1/lineage", sent(did(25), facets={"tags": tags}))
    (one,) = find(called, site, "--did", did(25))
    assert (one["final_state"], one["annotations"]) == ("COMPLETE", {"team": "night"})
