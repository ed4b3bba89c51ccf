"""The server that stands in for Marquez answers as the real one does: the same tests on both."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import requests

if TYPE_CHECKING:
    from contract_server import ContractServer

EventOf = Callable[..., bytes]
FACET = {"_producer": "https://example.com", "_schemaURL": "https://example.com/schema"}


def post(url: str, body: bytes, content_type: str = "application/json") -> requests.Response:
    headers = {"Content-Type": content_type}
    return requests.post(f"{url}/api/v1/lineage", data=body, headers=headers, timeout=60)


def read(url: str, **query: str) -> dict[str, Any]:
    answer = requests.get(f"{url}/api/v1/events/lineage", params=query, timeout=60)
    assert answer.status_code == 200
    found = answer.json()
    assert isinstance(found, dict)
    return found


def instant() -> str:
    """An instant of a test's own, for a server that keeps what earlier tests sent."""
    second = int(uuid.uuid4()) % 1_000_000_000
    return datetime.fromtimestamp(second, UTC).isoformat()


def around(moment: str) -> dict[str, str]:
    """The query for the events of an instant."""
    after = datetime.fromisoformat(moment)
    before = after + timedelta(seconds=1)
    return {"after": after.isoformat(), "before": before.isoformat()}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"eventType": "BANANA"},
        {"run": {"runId": "no uuid"}},
        {"padding": ["x" * 12_500_000] * 2},
        {"anything": [1, {"else": None}]},
    ],
)
def test_it_takes_nearly_anything_well_formed(url: str, event_of: EventOf, members: dict[str, Any]) -> None:
    answer = post(url, event_of("run", **members))
    assert (answer.status_code, answer.content) == (201, b"")


@pytest.mark.parametrize(
    "members",
    [
        {"eventTime": ...},
        {"run": ...},
        {"run": {}},
        {"job": ...},
        {"job": {"namespace": "n"}},
        {"producer": ...},
        {"inputs": [{"name": "x"}]},
        {"run": {"runId": "r", "facets": {"parent": {"run": {}}}}},
        {"job": {"namespace": "n", "name": "j", "facets": {"sql": {}}}},
    ],
)
def test_it_answers_422_to_what_its_validation_misses(
    url: str, event_of: EventOf, members: dict[str, Any]
) -> None:
    answer = post(url, event_of("run", **members))
    assert answer.status_code == 422
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"eventTime": "yesterday"}, '"code":400'),
        ({"padding": "x" * 25_000_000}, '"code":400'),
        ({"run": "x"}, '"code":400'),
        ({"inputs": [5]}, '"code":400'),
        ({"run": {"runId": "r", "facets": {"parent": "x"}}}, '"code":400'),
        ({"job": {"namespace": "n", "name": "j", "facets": {"sql": "SELECT"}}}, '"code":400'),
        ({"eventType": ...}, "<html>"),
        ({"name": "a\0b"}, "<html>"),
        ({"a\0b": 1}, "<html>"),
    ],
)
def test_it_answers_500_to_events_that_are_bad_for_good(
    url: str, event_of: EventOf, members: dict[str, Any], words: str
) -> None:
    answer = post(url, event_of("run", **members))
    assert answer.status_code == 500
    assert words in answer.text.replace('": ', '":')


@pytest.mark.parametrize("body", [b"{", b"[]", b"[{}]", b'"x"', b"\xff"])
def test_it_answers_500_to_what_is_no_event(url: str, body: bytes) -> None:
    assert post(url, body).status_code == 500


def test_it_answers_415_to_other_content_types(url: str, event_of: EventOf) -> None:
    assert post(url, event_of("run"), "text/plain").status_code == 415


def test_it_keeps_repeats_and_lets_the_last_event_decide_the_state(url: str, event_of: EventOf) -> None:
    run, moment = str(uuid.uuid4()), instant()
    for kind in ("START", "COMPLETE", "COMPLETE", "START"):
        assert post(url, event_of(run, eventType=kind, eventTime=moment)).status_code == 201
    stored = [event["run"]["runId"] for event in read(url, **around(moment))["events"]]
    assert stored == [run] * 4
    answer = requests.get(f"{url}/api/v1/jobs/runs/{run}", timeout=60)
    assert answer.json()["state"] == "RUNNING"


def test_it_gives_run_events_back_in_its_own_writing(url: str, event_of: EventOf) -> None:
    custom, moment = {"waybill_deltaFile": FACET}, instant()
    run = {"runId": str(uuid.uuid4()), "facets": custom}
    post(url, event_of("", 7, run=run, eventTime=moment))
    post(url, event_of("", schemaURL="https://example.com/#/$defs/JobEvent", eventTime=moment))
    found = read(url, **around(moment))
    assert found["totalCount"] == 2
    (event,) = found["events"]
    assert event["number"] == 7
    assert event["eventTime"] == moment.replace("+00:00", "Z")
    assert event["run"]["facets"] == {"nominalTime": None, "parent": None, **custom}


def test_it_takes_after_as_inclusive_and_before_as_exclusive(
    marquez: ContractServer, event_of: EventOf
) -> None:
    for number in range(5):
        post(marquez.url, event_of("run", number, eventTime=f"2026-01-01T00:00:0{number}+00:00"))
    post(marquez.url, event_of("run", 9, eventTime="2031-01-01T00:00:00+00:00"))
    inside = {"after": "2026-01-01T00:00:01Z", "before": "2026-01-01T00:00:03Z"}
    assert [event["number"] for event in read(marquez.url, **inside)["events"]] == [2, 1]
    assert [
        event["number"] for event in read(marquez.url, sortDirection="asc", limit="2", offset="1")["events"]
    ] == [1, 2]
    assert len(read(marquez.url)["events"]) == 5


def test_it_shows_of_a_run_the_last_facet_of_each_name(url: str, event_of: EventOf) -> None:
    run = str(uuid.uuid4())
    for second, facets in enumerate(
        ({"one": FACET | {"says": 1}}, {"two": FACET}, {"one": FACET | {"says": 2}})
    ):
        moment = f"2026-01-01T00:00:0{second}+00:00"
        post(url, event_of("", run={"runId": run, "facets": facets}, eventTime=moment))
    answer = requests.get(f"{url}/api/v1/jobs/runs/{run}/facets", params={"type": "run"}, timeout=60)
    assert answer.json()["runId"] == run
    assert answer.json()["facets"] == {"one": FACET | {"says": 2}, "two": FACET}


@pytest.mark.parametrize("kind", ["JobEvent", "RunEvent"])
def test_it_names_the_datasets_of_a_job_s_last_version(url: str, event_of: EventOf, kind: str) -> None:
    job = {"namespace": f"tests-{uuid.uuid4()}", "name": "a/b c.d"}
    members: dict[str, Any] = (
        {"run": ..., "eventType": ...} if kind == "JobEvent" else {"eventType": "COMPLETE"}
    )
    for names in (["x"], ["y", "z"]):
        outputs = [{"namespace": "n", "name": name} for name in names]
        inputs = [{"namespace": "n", "name": "in"}]
        schema = f"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/{kind}"
        given = {"job": job, "inputs": inputs, "outputs": outputs, "schemaURL": schema} | members
        assert post(url, event_of(str(uuid.uuid4()), **given)).status_code == 201
    where = f"{url}/api/v1/namespaces/{job['namespace']}/jobs/"
    found = requests.get(where + quote(job["name"], safe=""), timeout=60).json()
    assert found["inputs"] == inputs
    assert sorted(one["name"] for one in found["outputs"]) == ["y", "z"]
    assert requests.get(f"{where}other", timeout=60).status_code == 404


def test_it_takes_no_more_than_its_pace_over_however_many_connections(
    marquez: ContractServer, event_of: EventOf
) -> None:
    marquez.pace = 100.0
    started_s = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: post(marquez.url, event_of("run", number)), range(30)))
    assert time.monotonic() - started_s >= 30 / marquez.pace
    assert {answer.status_code for answer in answers} == {201}
    assert len(marquez.stored) == 30


def test_it_can_be_started_by_hand() -> None:
    file = Path(__file__).with_name("contract_server.py")
    command = [sys.executable, str(file), "--port", "0", "--pace", "40", "--fault", "503"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        answer = requests.post(f"{url}/api/v1/lineage", json={}, timeout=10)
        server.terminate()
    assert answer.status_code == 503
    assert json.loads(answer.text)["message"] == "fault 503 on request"
