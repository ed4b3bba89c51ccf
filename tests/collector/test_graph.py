"""The dependencies of a dataset or a job over HTTP are what the home says."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest
from inside import Exchange, Scope
from served import Collector, event, without_runner

from waybill.collector.endpoints import provenance
from waybill.lineage import Dependencies, Lineage
from waybill.lineage.answers import CollectorReadError, HomeAnswers
from waybill.lineage.graph import OfWhole
from waybill.lineage.index import IndexReader
from waybill.transport import NotFoundError
from waybill.transport.budget import BudgetError, check_budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Open

PATH = "/api/v1/lineage-graph"
RAW: dict[str, object] = {"namespace": "lake", "name": "raw"}
SUM = {"fields": {"sum": {"inputFields": [RAW | {"field": "amount"}]}}}
REPORT: dict[str, object] = {"namespace": "lake", "name": "report", "facets": {"columnLineage": SUM}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with without_runner(tmp_path_factory.mktemp("graph") / "home") as collector:
        for number, (job, reads, writes) in enumerate((("load", [], [RAW]), ("sum", [RAW], [REPORT]))):
            run = {"runId": f"01a1fd6a-9e75-7d78-870f-00000000000{number}"}
            named = {"namespace": "etl", "name": job}
            body = event(eventType="COMPLETE", run=run, job=named, inputs=reads, outputs=writes)
            assert collector.post("/api/v1/lineage", body).status == 201
        yield collector


def test_a_collector_and_its_home_answer_the_same(served: Collector) -> None:
    there, here = Lineage.open(served.url), Lineage.open(served.home)
    for name in ("lake/report", "raw", "load"):
        for up, down in ((1, 1), (None, 0), (0, None), (2, 3)):
            assert there.dependencies(name, up=up, down=down) == here.dependencies(name, up=up, down=down)
        assert there.impact(name) == here.impact(name)
    assert there.dependencies("raw", as_of_ms=1).downstream.nodes == ()
    for written in (False, True):
        assert there.unused_datasets(written=written) == here.unused_datasets(written=written)
    assert there.names("lake/raw") == here.names("raw")
    with pytest.raises(CollectorReadError, match="does not compare runs over HTTP; run `waybill diff a b`"):
        there.diff("a", "b")
    assert there.search("lake rep") == here.search("lake rep")
    assert [one.node.name for one in there.search("lake rep").nodes] == ["report"]
    assert there.stale_datasets(2**41) == here.stale_datasets(2**41) != ()
    assert there.recent_runs() == here.recent_runs() != ()
    assert there.schema_changes() == here.schema_changes() == ()
    assert there.duplicate_producers() == here.duplicate_producers() == ()
    assert there.origins("report.sum") == here.origins("report.sum")
    assert [one.source.column for one in there.origins("report.sum").steps] == ["amount"]
    assert dict(there.graph().nodes) == dict(here.graph().nodes)
    assert set(there.graph().edges) == set(here.graph().edges)
    assert len(there.graph().edges) == 3
    reply = served.get(f"{PATH}?name=lake/report&up=all")
    found = msgspec.json.decode(reply.body, type=Dependencies)
    assert found == here.dependencies("lake/report", up=None, down=1)
    assert [one["distance"] for one in reply.json["upstream"]["nodes"]] == [1, 2, 3]


def test_what_is_not_there_is_404_and_what_cannot_be_asked_400(served: Collector) -> None:
    for path in ("lineage-graph", "impact", "origins"):
        assert served.get(f"/api/v1/{path}?name=nothing").status == 404
        assert "the parameter name is missing" in served.get(f"/api/v1/{path}").json["detail"]
    for query, says in (
        ("", "the parameter name is missing"),
        ("?name=raw&up=-1", "the parameter up is '-1'"),
        ("?name=raw&down=some", "the parameter down is 'some'"),
        ("?name=raw&as_of=now", "the parameter as_of is 'now'"),
        (f"?name=raw&as_of={10**30}", "and at most 999999999999999"),
        ("?name=raw&name=report", "the parameter name appears twice"),
        ("?name=raw&depth=1", "the parameter depth is unknown"),
    ):
        reply = served.get(PATH + query)
        assert (reply.status, says in reply.json["detail"]) == (400, True), reply.body
    long = served.get(f"/api/v1/search?text={'a' * 1_001}")
    assert (long.status, "more than 1,000 characters" in long.json["detail"]) == (400, True)
    with pytest.raises(NotFoundError, match="no dataset, column or job has the name 'nothing'"):
        Lineage.open(served.url).dependencies("nothing")
    with pytest.raises(CollectorReadError):
        Lineage.open("http://127.0.0.1:1").dependencies("raw")


def test_a_large_answer_is_sent_in_parts_and_is_the_same_or_ends_with_the_problem(
    inside: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = inside()
    inputs = [RAW | {"name": f"in-{number}"} for number in range(2_500)]
    body = event(eventType="COMPLETE", job={"namespace": "etl", "name": "wide"}, inputs=inputs)
    assert collector.post("/api/v1/lineage", body).status == 201
    reply = collector.get("/api/v1/whole-graph")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert "content-length" not in reply.headers
    with IndexReader.open(collector.home, collector.journal) as index:
        whole = index.answer(OfWhole())
    assert len(whole.edges) == 2_500
    assert reply.body == msgspec.json.encode(whole)
    head = collector.ask("HEAD", "/api/v1/whole-graph")
    assert (head.status, head.headers, head.body) == (200, reply.headers, b"")
    small = collector.get("/api/v1/names?name=lake/in-1")
    assert int(small.headers["content-length"]) == len(small.body)

    def break_off(_: object) -> Iterator[bytes]:
        yield b"begun\n"
        raise ValueError("nobody has thought of it")

    monkeypatch.setattr(provenance, "_json_parts", break_off)
    begun, problem = collector.get("/api/v1/whole-graph").body.splitlines()
    assert (begun, json.loads(problem)["status"]) == (b"begun", 500)


def test_a_question_whose_client_has_gone_away_is_given_up(
    inside: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, given_up = threading.Event(), threading.Event()

    def answer_never(*_: object) -> None:
        begun.set()
        try:
            while True:
                check_budget()
        except BudgetError:
            given_up.set()
            raise

    monkeypatch.setattr(HomeAnswers, "answer", answer_never)
    collector, exchange = inside(), Exchange()
    asked = collector.begin(Scope("GET", "/api/v1/search?text=nothing", {}), exchange)
    assert begun.wait(30)
    assert not given_up.is_set()
    collector.leave(exchange)
    assert given_up.wait(30)
    assert asked.result(30).status == 0, "nothing is answered"
