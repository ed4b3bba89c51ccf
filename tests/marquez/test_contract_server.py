"""The server that stands in for Marquez answers as the real one does: the same tests on both."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import requests
from delivering import event as event_of

if TYPE_CHECKING:
    from contract_server import ContractServer

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
    ("status", "words", "members"),
    [
        pytest.param(201, "", {}, id="nearly anything well-formed"),
        (201, "", {"eventType": "BANANA"}),
        (201, "", {"run": {"runId": "no uuid"}}),
        (201, "", {"padding": ["x" * 12_500_000] * 2}),
        (201, "", {"anything": [1, {"else": None}]}),
        pytest.param(422, '"errors":[', {"eventTime": ...}, id="what its validation misses"),
        (422, '"errors":[', {"run": ...}),
        (422, '"errors":[', {"run": {}}),
        (422, '"errors":[', {"job": ...}),
        (422, '"errors":[', {"job": {"namespace": "n"}}),
        (422, '"errors":[', {"producer": ...}),
        (422, '"errors":[', {"inputs": [{"name": "x"}]}),
        (422, '"errors":[', {"run": {"runId": "r", "facets": {"parent": {"run": {}}}}}),
        (422, '"errors":[', {"job": {"namespace": "n", "name": "j", "facets": {"sql": {}}}}),
        pytest.param(500, '"code":400', {"eventTime": "yesterday"}, id="what is bad for good"),
        (500, '"code":400', {"padding": "x" * 25_000_000}),
        (500, '"code":400', {"run": "x"}),
        (500, '"code":400', {"inputs": [5]}),
        (500, '"code":400', {"run": {"runId": "r", "facets": {"parent": "x"}}}),
        (500, '"code":400', {"job": {"namespace": "n", "name": "j", "facets": {"sql": "SELECT"}}}),
        (500, "<html>", {"eventType": ...}),
        (500, "<html>", {"name": "a\0b"}),
        (500, "<html>", {"a\0b": 1}),
    ],
)
def test_it_answers_an_event_as_it_is(url: str, status: int, words: str, members: dict[str, Any]) -> None:
    answer = post(url, event_of("run", **members))
    assert answer.status_code == status
    assert words in answer.text.replace('": ', '":')
    assert bool(answer.text) == bool(words)


@pytest.mark.parametrize("body", [b"{", b"[]", b"[{}]", b'"x"', b"\xff"])
def test_it_answers_500_to_what_is_no_event(url: str, body: bytes) -> None:
    assert post(url, body).status_code == 500


def test_it_answers_415_to_other_content_types(url: str) -> None:
    assert post(url, event_of("run"), "text/plain").status_code == 415


def test_it_keeps_repeats_and_lets_the_last_event_decide_the_state(url: str) -> None:
    run, moment = str(uuid.uuid4()), instant()
    for kind in ("START", "COMPLETE", "COMPLETE", "START"):
        assert post(url, event_of(run, eventType=kind, eventTime=moment)).status_code == 201
    stored = [event["run"]["runId"] for event in read(url, **around(moment))["events"]]
    assert stored == [run] * 4
    answer = requests.get(f"{url}/api/v1/jobs/runs/{run}", timeout=60)
    assert answer.json()["state"] == "RUNNING"


def test_it_gives_run_events_back_in_its_own_writing(url: str) -> None:
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


def test_it_takes_after_as_inclusive_and_before_as_exclusive(marquez: ContractServer) -> None:
    for number in range(5):
        post(marquez.url, event_of("run", number, eventTime=f"2026-01-01T00:00:0{number}+00:00"))
    post(marquez.url, event_of("run", 9, eventTime="2031-01-01T00:00:00+00:00"))
    inside = {"after": "2026-01-01T00:00:01Z", "before": "2026-01-01T00:00:03Z"}
    assert [event["number"] for event in read(marquez.url, **inside)["events"]] == [2, 1]
    assert [
        event["number"] for event in read(marquez.url, sortDirection="asc", limit="2", offset="1")["events"]
    ] == [1, 2]
    assert len(read(marquez.url)["events"]) == 5


def test_it_shows_of_a_run_the_last_facet_of_each_name(url: str) -> None:
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
def test_it_names_the_datasets_of_a_job_s_last_version(url: str, kind: str) -> None:
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


class Sender:
    """Sends run events in a namespace of its own, and reads what is known of its jobs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.namespace = f"tests-{uuid.uuid4()}"

    def send(self, kind: str, second: int, run: str, name: str = "job", /, **members: Any) -> None:  # noqa: ANN401 - any JSON
        """Send an event; `job` and `run` are the facets of these."""
        content: dict[str, Any] = {
            "eventType": kind,
            "eventTime": f"2026-01-01T00:00:{second:02}+00:00",
            "job": {"namespace": self.namespace, "name": name, "facets": members.pop("job", {})},
            "run": {"runId": run, "facets": members.pop("run", {})},
        }
        assert post(self.url, event_of("", **content | members)).status_code == 201

    def parent(self, run: str, name: str) -> dict[str, Any]:
        """The facet that names a parent."""
        return {"parent": FACET | {"run": {"runId": run}, "job": {"namespace": self.namespace, "name": name}}}

    def ask(self, path: str, method: str = "GET", **members: Any) -> requests.Response:  # noqa: ANN401 - as requests takes
        """The response to a request for a job, or for what is under it."""
        where = f"{self.url}/api/v1/namespaces/{self.namespace}/jobs/{path}"
        return requests.request(method, where, timeout=60, **members)

    def job(self, name: str = "job") -> dict[str, Any]:
        """What a job's page shows."""
        found = self.ask(quote(name, safe="")).json()
        assert isinstance(found, dict)
        return found


@pytest.fixture
def sender(url: str) -> Sender:
    return Sender(url)


def test_it_takes_tags_by_requests_and_not_from_the_facet(sender: Sender) -> None:
    facet = {"tags": FACET | {"tags": [{"key": "a", "value": "b", "source": "x"}]}}
    sender.send("COMPLETE", 1, str(uuid.uuid4()), job=facet)
    assert (sender.job()["tags"], "tags" in sender.job()["facets"]) == ([], True)
    assert sender.ask("job/tags/x", "PUT").status_code == 405
    assert sender.ask("job/tags/x", "POST").json()["tags"] == ["x"]
    assert sorted(sender.ask("job/tags/a%3Ab%20c", "POST").json()["tags"]) == ["a:b c", "x"]
    for _ in range(2):
        assert sender.ask("job/tags/x", "DELETE").json()["tags"] == ["a:b c"]
    assert sender.ask("other/tags/x", "POST").status_code == 404
    sender.send("COMPLETE", 2, str(uuid.uuid4()))
    assert sender.job()["tags"] == ["a:b c"]


def test_it_describes_a_tag(url: str) -> None:
    tag = f"tests-{uuid.uuid4()}"
    for says in ("one", "two"):
        answer = requests.put(f"{url}/api/v1/tags/{tag}", json={"description": says}, timeout=60)
        assert answer.json() == {"name": tag, "description": says}
    tags = requests.get(f"{url}/api/v1/tags", params={"limit": "100000"}, timeout=60).json()["tags"]
    assert {"name": tag, "description": "two"} in tags


def test_it_cannot_tag_the_job_of_a_run_with_a_parent(sender: Sender) -> None:
    run = str(uuid.uuid4())
    facets = sender.parent(str(uuid.uuid4()), "above")
    sender.send("START", 1, run, run=facets)
    assert sender.job("above.job")["simpleName"] == "job"
    assert [sender.ask(f"{name}/tags/x", "POST").status_code for name in ("job", "above.job")] == [404, 500]
    sender.send("COMPLETE", 2, run, "above.job")
    assert sender.job("above.job")["simpleName"] == "above.job"
    assert sender.ask("above.job/tags/x", "POST").json()["tags"] == ["x"]
    sender.send("START", 3, str(uuid.uuid4()), run=facets)
    assert sender.job("above.job")["tags"] == []


def test_it_invents_the_run_of_a_parent_that_it_does_not_know(sender: Sender) -> None:
    parent = str(uuid.uuid4())
    sender.send("START", 1, str(uuid.uuid4()), run=sender.parent(parent, "above"))
    shown = sender.job("above")
    assert (shown["latestRun"]["id"], shown["latestRun"]["state"]) == (parent, "RUNNING")
    assert (shown["simpleName"], shown["description"]) == ("above", None)
    sender.send("FAIL", 2, str(uuid.uuid4()), run=sender.parent(parent, "above"))
    assert sender.job("above")["latestRun"]["state"] == "RUNNING"


def test_it_invents_another_run_for_a_parent_whose_run_it_knows_under_another_job(sender: Sender) -> None:
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    sender.send("COMPLETE", 1, parent, "one")
    name = f"{sender.namespace}.two.{parent}"
    invented = str(uuid.uuid3(uuid.NAMESPACE_URL, name))
    for second, kind, state in ((2, "START", "RUNNING"), (3, "FAIL", "FAILED")):
        sender.send(kind, second, child, run=sender.parent(parent, "two"))
        shown = sender.job("two")["latestRun"]
        assert (shown["id"], shown["state"]) == (invented, state)
    assert sender.job("one")["latestRun"]["state"] == "COMPLETED"


def test_it_counts_a_run_from_its_last_start_or_running(sender: Sender) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    sender.send("COMPLETE", 1, first)
    shown = sender.job()["latestRun"]
    assert (shown["startedAt"], shown["durationMs"]) == (None, None)
    for moment, kind in ((2, "START"), (4, "RUNNING"), (9, "COMPLETE")):
        sender.send(kind, moment, second)
    shown = sender.job()["latestRun"]
    assert (shown["startedAt"], shown["durationMs"]) == ("2026-01-01T00:00:04Z", 5000)
    listed = sender.ask("job/runs").json()
    assert [one["id"] for one in listed["runs"]] == [second, first]
    assert listed["totalCount"] == 2
    assert [one["id"] for one in sender.ask("job/runs?limit=1&offset=1").json()["runs"]] == [first]
    assert sender.ask("other/runs").status_code == 404


def test_a_page_shows_the_run_with_the_latest_time_and_the_graph_the_one_that_arrived_last(
    sender: Sender,
) -> None:
    runs = [str(uuid.uuid4()) for _ in range(2)]
    outputs = [{"namespace": sender.namespace, "name": "out"}]
    sender.send("FAIL", 5, runs[0], outputs=outputs, run={"one": FACET})
    sender.send("COMPLETE", 3, runs[1], outputs=outputs, run={"two": FACET})
    shown = sender.job()["latestRun"]
    assert (shown["id"], shown["state"], shown["facets"]) == (runs[0], "FAILED", {"one": FACET})
    query = {"nodeId": f"job:{sender.namespace}:job", "depth": "1"}
    graph = requests.get(f"{sender.url}/api/v1/lineage", params=query, timeout=60).json()["graph"]
    (drawn,) = [one["data"].get("latestRun") or one.get("latestRun") for one in graph if one["type"] == "JOB"]
    assert (drawn["id"] if isinstance(drawn, dict) else drawn) == runs[1]


def test_an_event_without_a_description_takes_it_away(sender: Sender) -> None:
    facet = {"documentation": FACET | {"description": "says"}}
    datasets = [{"namespace": sender.namespace, "name": "in", "facets": facet}]
    sender.send("COMPLETE", 1, str(uuid.uuid4()), job=facet, inputs=datasets)
    at = f"{sender.url}/api/v1/namespaces/{sender.namespace}/datasets/in"
    said = [(sender.job()["description"], requests.get(at, timeout=60).json()["description"])]
    sender.send("COMPLETE", 2, str(uuid.uuid4()), inputs=[datasets[0] | {"facets": {}}])
    said += [(sender.job()["description"], requests.get(at, timeout=60).json()["description"])]
    assert said == [("says", "says"), (None, None)]


Told = list[tuple[str, list[str] | None]]
"""The type of each event of a run, and the columns of what it writes; None: it has no schema."""


def tell(url: str, dataset: tuple[str, str], told: Told, *also: tuple[str, str]) -> None:
    """Send the events of a run that writes a dataset, which has other names as well."""
    run, job = str(uuid.uuid4()), {"namespace": dataset[0], "name": "writer"}
    identifiers = [{"namespace": where, "name": name, "type": "DATA_SINK"} for where, name in also]
    for second, (kind, columns) in enumerate(told):
        facets = {"symlinks": FACET | {"identifiers": identifiers}} if also else {}
        if columns is not None:
            facets["schema"] = FACET | {"fields": [{"name": one, "type": "INT"} for one in columns]}
        outputs = [{"namespace": dataset[0], "name": dataset[1], "facets": facets}]
        moment = f"2026-01-01T00:00:0{second}+00:00"
        body = event_of(run, eventType=kind, eventTime=moment, job=job, outputs=outputs)
        assert post(url, body).status_code == 201


def columns_of(url: str, dataset: tuple[str, str]) -> list[str]:
    where, name = (quote(one, safe="") for one in dataset)
    found = requests.get(f"{url}/api/v1/namespaces/{where}/datasets/{name}", timeout=60).json()
    return sorted(field["name"] for field in found["fields"])


def test_a_dataset_loses_its_columns_when_a_run_without_a_schema_is_complete(url: str) -> None:
    lake = (f"tests-{uuid.uuid4()}", "lake")
    tell(url, lake, [("START", ["a", "b"])])
    assert columns_of(url, lake) == []
    tell(url, lake, [("START", ["a", "b"]), ("COMPLETE", ["a", "b"])])
    for last in ("RUNNING", "FAIL", "ABORT"):
        tell(url, lake, [("START", None), (last, None)])
        assert columns_of(url, lake) == ["a", "b"]
    tell(url, lake, [("START", None), ("COMPLETE", None)])
    assert columns_of(url, lake) == []


def test_the_first_name_of_a_dataset_stays_and_no_two_become_one(url: str) -> None:
    where = f"tests-{uuid.uuid4()}"
    lake, sink, late = (where, "/lake"), (where, "sink"), (where, "late")
    tell(url, lake, [("COMPLETE", ["a"])], sink)
    tell(url, sink, [("COMPLETE", ["a", "b"])])
    assert (columns_of(url, lake), columns_of(url, sink)) == (["a", "b"], ["a", "b"])
    tell(url, late, [("COMPLETE", ["c"])])
    tell(url, lake, [("COMPLETE", ["d"])], late)
    assert (columns_of(url, lake), columns_of(url, late)) == (["d"], ["c"])
    query = {"nodeId": f"dataset:{where}:sink", "depth": "1"}
    graph = requests.get(f"{url}/api/v1/lineage", params=query, timeout=60).json()["graph"]
    assert [one["data"]["name"] for one in graph if one["type"] == "DATASET"] == ["/lake"]
