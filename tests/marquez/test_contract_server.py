"""The server that stands in for Marquez answers as was measured on the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from contract_server import ContractServer

EventOf = Callable[..., bytes]
FACET = {"_producer": "https://example.com", "_schemaURL": "https://example.com/schema"}


def post(marquez: ContractServer, body: bytes, content_type: str = "application/json") -> requests.Response:
    headers = {"Content-Type": content_type}
    return requests.post(f"{marquez.url}/api/v1/lineage", data=body, headers=headers, timeout=10)


def read(marquez: ContractServer, **query: str) -> dict[str, Any]:
    answer = requests.get(f"{marquez.url}/api/v1/events/lineage", params=query, timeout=10)
    assert answer.status_code == 200
    found = answer.json()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"eventType": "BANANA"},
        {"run": {"runId": "no uuid"}},
        {"padding": "x" * 25_000_000},
        {"anything": [1, {"else": None}]},
    ],
)
def test_it_takes_nearly_anything_well_formed(
    marquez: ContractServer, event_of: EventOf, members: dict[str, Any]
) -> None:
    answer = post(marquez, event_of("run", **members))
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
        {"job": {"namespace": "n", "name": "j", "facets": {"sql": "SELECT"}}},
    ],
)
def test_it_answers_422_to_what_its_validation_misses(
    marquez: ContractServer, event_of: EventOf, members: dict[str, Any]
) -> None:
    answer = post(marquez, event_of("run", **members))
    assert answer.status_code == 422
    assert answer.json()["errors"]
    assert marquez.stored == []


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"eventTime": "yesterday"}, '"code": 400'),
        ({"eventType": ...}, '"code": 500'),
        ({"name": "a\0b"}, "<html>"),
        ({"a\0b": 1}, "<html>"),
    ],
)
def test_it_answers_500_to_events_that_are_bad_for_good(
    marquez: ContractServer, event_of: EventOf, members: dict[str, Any], words: str
) -> None:
    answer = post(marquez, event_of("run", **members))
    assert answer.status_code == 500
    assert words in answer.text


@pytest.mark.parametrize("body", [b"{", b"[]", b"[{}]", b'"x"', b"\xff"])
def test_it_answers_500_to_what_is_no_event(marquez: ContractServer, body: bytes) -> None:
    assert post(marquez, body).status_code == 500


def test_it_answers_415_to_other_content_types(marquez: ContractServer, event_of: EventOf) -> None:
    assert post(marquez, event_of("run"), "text/plain").status_code == 415


def test_it_keeps_repeats_and_lets_the_last_event_decide_the_state(
    marquez: ContractServer, event_of: EventOf
) -> None:
    for kind in ("START", "COMPLETE", "COMPLETE", "START"):
        assert post(marquez, event_of("run", eventType=kind)).status_code == 201
    assert len(marquez.stored) == 4
    answer = requests.get(f"{marquez.url}/api/v1/jobs/runs/run", timeout=10)
    assert answer.json()["state"] == "RUNNING"


def test_it_gives_run_events_back_in_its_own_writing(marquez: ContractServer, event_of: EventOf) -> None:
    custom = {"waybill_deltaFile": FACET}
    post(marquez, event_of("run", 7, run={"runId": "run", "facets": custom}))
    post(marquez, event_of("run", schemaURL="https://example.com/#/$defs/JobEvent"))
    found = read(marquez)
    assert found["totalCount"] == 2
    (event,) = found["events"]
    assert event["number"] == 7
    assert event["eventTime"] == "2026-01-01T00:00:00Z"
    assert event["run"]["facets"] == {"nominalTime": None, "parent": None, **custom}


def test_it_takes_after_as_inclusive_and_before_as_exclusive(
    marquez: ContractServer, event_of: EventOf
) -> None:
    for number in range(5):
        post(marquez, event_of("run", number, eventTime=f"2026-01-01T00:00:0{number}+00:00"))
    post(marquez, event_of("run", 9, eventTime="2031-01-01T00:00:00+00:00"))
    inside = {"after": "2026-01-01T00:00:01Z", "before": "2026-01-01T00:00:03Z"}
    assert [event["number"] for event in read(marquez, **inside)["events"]] == [2, 1]
    assert [
        event["number"] for event in read(marquez, sortDirection="asc", limit="2", offset="1")["events"]
    ] == [1, 2]
    assert len(read(marquez)["events"]) == 5


def test_it_can_be_started_by_hand() -> None:
    file = Path(__file__).with_name("contract_server.py")
    command = [sys.executable, str(file), "--port", "0", "--fault", "503"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        answer = requests.post(f"{url}/api/v1/lineage", json={}, timeout=10)
        server.terminate()
    assert answer.status_code == 503
    assert json.loads(answer.text)["message"] == "fault 503 on request"
