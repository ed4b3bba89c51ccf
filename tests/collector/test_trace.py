"""The journey of a file over HTTP."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree as ET

import msgspec
import pytest
from events import event
from inside import Exchange, Inside, Scope
from served import Asking, Collector, without_runner
from waiting import wait_until

from waybill.collector.endpoints import trace
from waybill.exporter import Query
from waybill.exporter.query import Dimension
from waybill.facets import FinalState
from waybill.lineage import CollectorReadError, Journey, Lineage, ToldJourney
from waybill.lineage.answers import remote as client
from waybill.transport import Journal, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.collector.endpoints.query_params import Trace

YEAR, FIRST, SECOND, OPEN = (f"0198f000-0000-7000-8000-00000000000{number}" for number in range(4))
ODD = "a/b c?d#%2F&é\n\"<'trace/"


def record(
    did: str, parent: str | None = None, state: str = "COMPLETE", **fields: object
) -> dict[str, object]:
    told = {"did": did, "parentDid": parent, "finalState": state, "created": 1_000, "completed": 2_500}
    return told | {"systemName": "edge", "dataSource": "in", "filename": f"{did[-1]}.csv"} | fields


RECORDS = [
    record(YEAR, state="SPLIT"),
    record(FIRST, YEAR, dataSink="lake"),
    record(FIRST, YEAR, dataSink="report"),
    record(SECOND, YEAR, "ERROR"),
    record(ODD, SECOND, filename=ODD),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with without_runner(tmp_path_factory.mktemp("traced") / "home") as collector:
        assert collector.post("/provenance", json.dumps(RECORDS).encode()).status == 202
        assert collector.post("/api/v1/lineage", event(OPEN, "START", job="edge/in")).status == 201
        yield collector


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A collector to which the journey of a file of 200 children is large; it has `RECORDS`, too."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(Inside(tmp_path_factory.mktemp("wide") / "home")) as collector,
    ):
        for limit, value in (("SMALL_RECORDS_MAX", 100), ("UNFOLDED_MAX", 100), ("SMALL_S", 60)):
            patch.setattr(trace, limit, value)
        children = [record(f"child-{number}", "wide") for number in range(200)]
        sent = [*RECORDS, record("wide", state="SPLIT"), *children]
        assert collector.post("/provenance", json.dumps(sent).encode()).status == 202
        assert len(asked(collector, "wide").files) == 201
        yield collector


def asked(collector: Asking, did: str, **params: object) -> Journey:
    query = "&".join(f"{name}={value}" for name, value in params.items())
    reply = collector.get(f"/trace/{quote(did, safe='')}?{query}")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json"), reply
    return Journey.of(msgspec.json.decode(reply.body, type=ToldJourney))


def test_a_collector_is_asked_as_a_home_is(shared: Collector) -> None:
    home, remote = Lineage.open(shared.home), Lineage.open(shared.url)
    assert remote.trace(ODD) == home.trace(ODD)
    assert remote.trace(YEAR.upper()) == home.trace(YEAR)
    assert remote.trace(YEAR, up=False, depth=1) == home.trace(YEAR, up=False, depth=1)
    assert remote.trace(OPEN) == home.trace(OPEN)
    assert remote.trace(OPEN).file.open is not None
    assert remote.descendants(FIRST) == []
    for query in (
        Query(),
        Query(did=ODD),
        Query(filename=ODD, oldest_first=True, limit=1),
        Query(parent_did=YEAR, final_state=(FinalState.ERROR, FinalState.SPLIT)),
        Query(not_final_states=(FinalState.ERROR,), has_data_sink=True, not_data_sinks=("lake",)),
        Query(since_ms=2_500, until_ms=2_501, created_since_ms=1_000, created_until_ms=1_001),
        Query(until_ms=2_500),
        Query(annotations={"k": "v=w"}),
        Query(missing_sink="lake", data_source="in"),
    ):
        assert remote.find(query) == home.find(query)
    by = ("sink", "state", "hour")
    for query in (Query(), Query(not_final_states=(FinalState.ERROR,), data_source="in")):
        assert remote.stats(query) == home.stats(query)
        assert remote.sums(by, query) == home.sums(by, query)
    assert remote.count() == len(RECORDS)
    assert home.sums([Dimension.SINK, Dimension.HOUR]) == {(None, 0): 3, ("lake", 0): 1, ("report", 0): 1}
    with pytest.raises(ValueError, match="at least one of state"):
        home.sums([])


def test_a_collector_is_asked_a_page_at_a_time(shared: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAGE_RECORDS", 2)
    asked = Lineage.open(shared.url)
    assert asked.find() == Lineage.open(shared.home).find()
    assert asked.find(Query(limit=3, oldest_first=True)) == asked.find(Query(oldest_first=True))[:3]


def test_what_a_collector_refuses_is_a_typed_error(shared: Collector) -> None:
    lineage = Lineage.open(shared.url)
    with pytest.raises(NotFoundError, match="no record has the did nothing"):
        lineage.trace("nothing")
    with pytest.raises(CollectorReadError, match="takes one did in a question"):
        lineage.find(Query(dids=frozenset({"a"})))
    with pytest.raises(CollectorReadError, match="400: the parameter data_sink contains a NUL"):
        lineage.find(Query(data_sink="\0"))
    for length in (70_000, 300_000):
        with pytest.raises(
            CollectorReadError, match=r"4\d\d: the question is longer than 64 KiB; give fewer"
        ):
            lineage.find(Query(not_data_sinks=("x" * length,)))
    with pytest.raises(CollectorReadError, match="give the address that `waybill serve` says") as error:
        Lineage.open(f"{shared.url}/health/live").find()
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://user:secret@127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(CollectorReadError, match="cannot be reached") as error:
        Lineage.open(url).find()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"up": "true"}, {YEAR, SECOND}),
        ({"down": "false"}, {YEAR, SECOND}),
        ({"down": "true"}, {SECOND, ODD}),
        ({"up": "false"}, {SECOND, ODD}),
        ({"up": "false", "down": "false"}, {SECOND}),
        ({"up": "true", "down": "true"}, {YEAR, SECOND, ODD}),
        ({"depth": "0"}, {SECOND}),
    ],
)
def test_a_direction_and_a_depth_cut_it(shared: Collector, params: dict[str, str], found: set[str]) -> None:
    assert asked(shared, SECOND, **params).files.keys() == found


def test_it_is_shown_as_it_was_known_then(shared: Collector) -> None:
    with contextlib.closing(Journal(shared.home)) as journal:
        [first, *_] = journal.read(0)
    assert asked(shared, YEAR, as_of=first.received_ms) == asked(shared, YEAR)
    reply = shared.get(f"/trace/{YEAR}?as_of={first.received_ms - 1}")
    assert (reply.status, "nothing was known of the file" in reply.json["detail"]) == (404, True)


@pytest.mark.parametrize("way", ["format", "accept"])
def test_it_comes_as_a_picture_on_demand(shared: Collector, way: str) -> None:
    for name, media in trace.MEDIA.items():
        query, headers = (
            (f"?format={name}", {}) if way == "format" else ("", {"Accept": f"x/y, {media};q=0.8"})
        )
        reply = shared.get(f"/trace/{YEAR}{query}", headers)
        assert (reply.status, reply.headers["content-type"]) == (200, media)
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        text = reply.body.decode()
        if name in {"svg", "graphml"}:
            assert ET.fromstring(text).tag.endswith(f"}}{name}")  # noqa: S314 - our own text
        else:
            assert text.startswith({"json": '{"did"', "mermaid": "flowchart LR\n", "dot": "digraph "}[name])


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("nothing", 404, "no record has the did nothing"),
        ("", 400, "give the did"),
        ("a%00b", 400, "give the did"),
        ("%FF", 404, "no record has the did"),
        (f"{YEAR}?depth=-1", 400, "parameter depth"),
        (f"{YEAR}?up=yes", 400, "use true or false"),
        (f"{YEAR}?format=png", 400, "use one of json, svg"),
        (f"{YEAR}?days=1", 400, "is unknown"),
    ],
)
def test_what_cannot_be_answered_says_why(shared: Collector, path: str, status: int, says: str) -> None:
    reply = shared.get(f"/trace/{path}")
    assert (reply.status, says in reply.json["detail"]) == (status, True), reply


@pytest.mark.parametrize(
    ("limit", "status", "says"),
    [("JOURNEY_BYTES_MAX", 400, "more than 0 bytes"), ("TRACE_TIMEOUT_S", 503, "longer than 0 s")],
)
def test_a_journey_beyond_the_limits_is_refused_with_what_narrows_it(
    wide: Inside, monkeypatch: pytest.MonkeyPatch, limit: str, status: int, says: str
) -> None:
    monkeypatch.setattr(trace, limit, 0)
    refused = wide.get(f"/trace/{YEAR}")
    assert (refused.status, says in refused.json["detail"]) == (status, True)
    assert "narrow it with depth" in refused.json["detail"]


def test_a_journey_that_takes_long_is_a_large_one_with_the_same_answer(
    wide: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_small = asked(wide, YEAR)
    monkeypatch.setattr(trace, "SMALL_S", 0)
    assert asked(wide, YEAR) == as_small


def test_journeys_beyond_those_that_may_wait_are_refused_at_once_and_small_ones_wait_for_no_large_one(
    wide: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, go_on = trace._drawn, threading.Event()  # noqa: SLF001 - the last step of a journey

    def draw_later(journey: Journey, params: Trace) -> bytes:
        assert params.format == "json" or go_on.wait(60)
        return draw(journey, params)

    monkeypatch.setattr(trace, "_drawn", draw_later)
    path, count = "/trace/wide?format=graphml", 2 * trace.WAITING_MAX
    large = [wide.begin(Scope("GET", path, {}), Exchange()) for _ in range(count)]
    # Each of them is begun as a small one.
    wait_until(lambda: wide.get(f"/trace/{YEAR}").status == 200)
    refused = [one.result() for one in large if one.done()]
    assert {one.status for one in refused} == {503}
    assert {one.headers["retry-after"] for one in refused} == {"2"}
    assert {one.json["detail"] for one in refused} == {"16 journeys are under way or wait; try again later"}
    go_on.set()
    taken = [reply.body for one in large if (reply := one.result(60)).status == 200]
    assert len(taken) == count - len(refused) == trace.WAITING_MAX
    assert set(taken) == {wide.get(path).body}


@pytest.mark.parametrize("name", trace.MEDIA)
def test_a_picture_shows_so_many_files_at_most(wide: Inside, name: str) -> None:
    assert wide.get(f"/trace/wide?format={name}").status == 200
    assert wide.get(f"/trace/{YEAR}?format={name}&unfold=true").status == 200
    reply = wide.get(f"/trace/wide?format={name}&unfold=true")
    if name in {"json", "graphml"}:
        assert reply.status == 200
    else:
        assert (reply.status, "leave out unfold" in reply.json["detail"]) == (400, True)
