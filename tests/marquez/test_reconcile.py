"""What Marquez lacks of what was delivered is found, and after a repair all is as at the first delivery."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from waybill.facets.flows import FlowNode
from waybill.marquez import EventReader, MarquezReadError, open_reader, reconcile, reconcile_new, repair
from waybill.transport import Journal, Kind, NotFoundError, Settings

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]
MOMENT = "2026-01-01T00:00:{:02}.{:03}+00:00"


@pytest.fixture
def delivered(worker: Worker, keep: Keep) -> Worker:
    """Three runs of four events each, all delivered."""
    for run in range(3):
        for number, kind in enumerate(("START", "RUNNING", "RUNNING", "COMPLETE")):
            keep(f"run-{run}", number, eventType=kind, eventTime=MOMENT.format(number, run))
    worker.run()
    return worker


def send(url: str, body: bytes) -> int:
    """Send an event past Waybill; returns the status."""
    headers = {"Content-Type": "application/json"}
    return requests.post(f"{url}/api/v1/lineage", data=body, headers=headers, timeout=60).status_code


def forget(marquez: ContractServer, *numbers: int, run: str = "run-1") -> None:
    """Let the backend lose some events of a run, and what it knew of its state."""
    lost = [e for e in marquez.events if e["run"]["runId"] == run and e["number"] in numbers]
    marquez.events = [event for event in marquez.events if event not in lost]
    if lost:
        marquez.runs.pop(run, None)


def test_what_the_backend_lost_is_named(journal: Journal, marquez: ContractServer, delivered: Worker) -> None:
    assert delivered.delivery.pending() == 0
    forget(marquez, 1, 3)
    found = reconcile(journal, EventReader(marquez.url))
    assert [(one.seq, one.run_id, one.event_type) for one in found.missing] == [
        (6, "run-1", "RUNNING"),
        (8, "run-1", "COMPLETE"),
    ]


@pytest.mark.parametrize("lost", [(0,), (1, 2), (3,), (0, 1, 2, 3)])
def test_after_a_repair_each_runs_state_is_as_after_the_first_delivery(
    journal: Journal, marquez: ContractServer, delivered: Worker, lost: tuple[int, ...]
) -> None:
    before = dict(marquez.runs)
    forget(marquez, *lost)
    repair(journal, reconcile(journal, EventReader(marquez.url)).missing)
    delivered.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()
    assert marquez.runs == before
    assert delivered.delivery.pending() == 0


def test_a_summary_stands_for_the_events_in_it_and_is_repaired_as_they_would_be(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    for number in range(4):
        facets = {"waybill_deltaFile": {"did": f"f{number}", "dataSource": "orders"}}
        keep(f"f{number}", number, eventType="COMPLETE", run={"runId": f"f{number}", "facets": facets})
    journal.mark(b"flush")
    worker = new_worker(journal, marquez.url, detail="summary")
    worker.run()
    assert [event["eventType"] for event in marquez.stored] == ["START", "COMPLETE"]
    before, run_id = dict(marquez.runs), marquez.stored[0]["run"]["runId"]
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())
    marquez.events.clear()
    marquez.runs.clear()
    (missing,) = reconcile(journal, EventReader(marquez.url)).missing
    assert missing.run_id == run_id
    repair(journal, [missing])
    worker.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()
    assert marquez.runs == before
    assert marquez.stored[:2] == marquez.stored[2:]


def test_what_is_set_aside_was_not_delivered_and_is_not_missing(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    _, poison, _ = (keep("run", at, eventTime=MOMENT.format(at, 0)) for at in range(3))
    journal.poison.set_aside("marquez", poison, "a test")
    worker.run()
    assert len(marquez.stored) == 2
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (2, ())


def test_what_is_new_is_compared_once_and_sent_again_where_it_is_missing(
    journal: Journal, marquez: ContractServer, delivered: Worker, keep: Keep
) -> None:
    before = dict(marquez.runs)
    forget(marquez, 1, 3)
    reader = EventReader(marquez.url)
    found = list(reconcile_new(journal, reader, entries_at_once=5))
    assert [(one.compared, len(one.missing)) for one in found] == [(5, 0), (5, 2), (2, 0)]
    delivered.run()
    assert marquez.runs == before
    assert reconcile(journal, reader).missing == ()
    assert list(reconcile_new(journal, reader)) == []
    marquez.refuse()
    keep("run-9")
    assert list(reconcile_new(journal, reader)) == [], "what waits is not asked for"


def test_dead_letters_and_what_still_waits_are_not_missing(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("refused", producer=...)
    keep("taken")
    worker.run()
    keep("waiting")
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())


def test_events_that_marquez_does_not_give_back_are_not_asked_for(
    journal: Journal, marquez: ContractServer, worker: Worker, event_of: Callable[..., bytes], keep: Keep
) -> None:
    schema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
    journal.append(Kind.OPENLINEAGE, event_of("", run=..., eventType=..., schemaURL=schema))
    journal.mark(b"flush")
    keep("run")
    worker.run()
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())


def test_only_what_was_accepted_since_then_is_compared(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    instants_ms = [1_000, 2_000, 3_000]
    for number, instant_ms in enumerate(instants_ms):
        worker.clock.set_ms(instant_ms)
        keep("run", number)
    worker.run()
    reader = EventReader(marquez.url)
    for since_ms, compared in ((0, 3), (1_000, 3), (1_001, 2), (2_000, 2), (3_000, 1), (3_001, 0)):
        assert reconcile(journal, reader, since_ms=since_ms).compared == compared


def test_events_that_share_an_instant_are_told_apart(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    for number in range(20):
        keep(f"run-{number}", eventTime=MOMENT.format(number // 8, 0))
    worker.run()
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (20, ())
    forget(marquez, 0, run="run-9")
    found = reconcile(journal, EventReader(marquez.url))
    assert [one.run_id for one in found.missing] == ["run-9"]


def test_an_event_beyond_what_marquez_shows_by_default_is_found(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("run", eventTime="2031-01-01T00:00:00Z")
    worker.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()


@pytest.mark.parametrize("fault", ["404", "401", "page"])
def test_a_backend_that_cannot_be_read_is_one_sentence(
    journal: Journal, marquez: ContractServer, delivered: Worker, fault: str
) -> None:
    assert delivered.delivery.pending() == 0
    marquez.fault = fault
    with pytest.raises(MarquezReadError, match="http://127"):
        reconcile(journal, EventReader(marquez.url))


def test_nothing_is_missing_of_what_was_just_sent(
    journal: Journal, url: str, new_worker: type[Worker], keep: Keep
) -> None:
    moment = datetime.now(UTC)
    for run in (str(uuid.uuid4()) for _ in range(3)):
        for number, kind in enumerate(("START", "RUNNING", "COMPLETE")):
            # Those of one place share an instant.
            when = moment + timedelta(milliseconds=number)
            keep(run, number, eventType=kind, eventTime=when.isoformat(timespec="microseconds"))
    new_worker(journal, url, draws=True, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    found = reconcile(journal, EventReader(url))
    assert (found.compared, found.missing) == (9, ())


@dataclass
class Runs:
    """Runs of two jobs, one of them with a parent, that were delivered; all in a namespace of their own."""

    namespace: str
    ids: dict[str, list[str]]
    """By the job's name at the backend."""
    keep: Keep
    begun: datetime
    """A time of their own, because a backend may keep what other tests sent."""

    def members(self, job: str, run: str, kind: str, second: int) -> dict[str, Any]:
        """The members of an event."""
        parent = {
            "run": {"runId": self.ids["plain"][0]},
            "job": {"namespace": self.namespace, "name": "above"},
        }
        facets = {"parent": FACET | parent} if job == "above.child" else {}
        return {
            "eventType": kind,
            "eventTime": (self.begun + timedelta(seconds=second)).isoformat(),
            "job": {"namespace": self.namespace, "name": job.removeprefix("above.")},
            "run": {"runId": run, "facets": facets},
        }


FACET = {"_producer": "https://example.com", "_schemaURL": "https://example.com/schema"}


@pytest.fixture
def runs(journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep) -> Runs:
    ids = {job: [str(uuid.uuid4()) for _ in range(3)] for job in ("plain", "above.child")}
    runs = Runs(f"tests-{uuid.uuid4()}", ids, keep, datetime.now(UTC))
    for job, run_ids in ids.items():
        for run in run_ids:
            for second, kind in enumerate(("START", "COMPLETE")):
                keep("", **runs.members(job, run, kind, second))
    new_worker(journal, marquez.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    return runs


def missing_of(journal: Journal, url: str, page_runs: int = 1000) -> list[tuple[str, str]]:
    """The run and the type of each missing event."""
    found = reconcile(journal, EventReader(url, page_runs=page_runs))
    return [(one.run_id, one.event_type) for one in found.missing]


def test_a_job_that_somebody_deleted_comes_back_with_its_runs(
    journal: Journal, marquez: ContractServer, url: str, runs: Runs, new_worker: type[Worker]
) -> None:
    assert missing_of(journal, url) == []
    at = f"{url}/api/v1/namespaces/{runs.namespace}/jobs/above.child"
    assert requests.delete(at, timeout=60).status_code == 200
    expected = [(run, kind) for run in runs.ids["above.child"] for kind in ("START", "COMPLETE")]
    assert missing_of(journal, url) == expected
    repair(journal, reconcile(journal, EventReader(url)).missing)
    new_worker(journal, marquez.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    assert missing_of(journal, url) == []
    shown = requests.get(f"{at}/runs", timeout=60).json()["runs"]
    assert {one["id"]: one["state"] for one in shown} == dict.fromkeys(runs.ids["above.child"], "COMPLETED")


@pytest.mark.parametrize("job", ["plain", "above.child"])
def test_a_run_in_a_lesser_state_gets_its_end_again(
    journal: Journal,
    marquez: ContractServer,
    url: str,
    runs: Runs,
    new_worker: type[Worker],
    event_of: Callable[..., bytes],
    job: str,
) -> None:
    run = runs.ids[job][1]
    assert send(url, event_of("", **runs.members(job, run, "RUNNING", 9))) == 201
    assert missing_of(journal, url) == [(run, "START"), (run, "COMPLETE")], "its start is another, too"
    found = list(reconcile_new(journal, EventReader(url)))
    assert [[one.run_id for one in part.missing] for part in found] == [[], [run, run]]
    assert list(reconcile_new(journal, EventReader(url))) == []
    new_worker(journal, marquez.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    assert missing_of(journal, url) == []


def test_an_inferred_end_closes_an_open_run_and_gives_way_to_any_other(
    journal: Journal,
    marquez: ContractServer,
    url: str,
    runs: Runs,
    new_worker: type[Worker],
    event_of: Callable[..., bytes],
) -> None:
    run = str(uuid.uuid4())
    start, abort = (runs.members("plain", run, kind, at) for at, kind in enumerate(("START", "ABORT")))
    runs.keep("", **start)
    runs.keep("", **abort | {"run": {"runId": run, "facets": {"waybill_inferred": FACET}}})
    new_worker(journal, marquez.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    for kind, missing in (("RUNNING", [(run, "START"), (run, "ABORT")]), ("COMPLETE", [])):
        assert send(url, event_of("", **runs.members("plain", run, kind, 9))) == 201
        assert missing_of(journal, url) == missing


@pytest.mark.parametrize("job", ["plain", "above.child"])
def test_a_run_with_a_later_start_or_an_earlier_end_gets_its_own_again(
    journal: Journal,
    marquez: ContractServer,
    url: str,
    runs: Runs,
    new_worker: type[Worker],
    event_of: Callable[..., bytes],
    job: str,
) -> None:
    def shown(run: str) -> list[tuple[str, str]]:
        pages = list(EventReader(url).runs(FlowNode(runs.namespace, job)) or ())
        return [(str(one.started_at), str(one.ended_at)) for page in pages for one in page if one.id == run]

    began_late, ended_early = runs.ids[job][1:]
    right = shown(began_late), shown(ended_early)
    for run, *kinds in ((began_late, ("RUNNING", 9), ("COMPLETE", 1)), (ended_early, ("COMPLETE", -1))):
        for kind, second in kinds:
            assert send(url, event_of("", **runs.members(job, run, kind, second))) == 201
    assert missing_of(journal, url) == [
        (began_late, "START"),
        (began_late, "COMPLETE"),
        (ended_early, "COMPLETE"),
    ]
    repair(journal, reconcile(journal, EventReader(url)).missing)
    new_worker(journal, marquez.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    assert missing_of(journal, url) == []
    assert (shown(began_late), shown(ended_early)) == right


def test_an_end_that_counts_for_more_is_left_alone(
    journal: Journal, url: str, runs: Runs, event_of: Callable[..., bytes]
) -> None:
    assert send(url, event_of("", **runs.members("plain", runs.ids["plain"][0], "FAIL", 9))) == 201
    assert missing_of(journal, url) == []


@pytest.mark.parametrize("page_runs", [1, 2, 1000])
def test_a_run_that_is_gone_while_its_events_are_there_gets_its_first_event_and_its_end_again(
    journal: Journal, marquez: ContractServer, runs: Runs, new_worker: type[Worker], page_runs: int
) -> None:
    before = dict(marquez.runs)
    gone = [run_ids[1] for run_ids in runs.ids.values()]
    for run in gone:
        del marquez.runs[run]
    expected = [(run, kind) for run in gone for kind in ("START", "COMPLETE")]
    assert missing_of(journal, marquez.url, page_runs=page_runs) == expected
    repair(journal, reconcile(journal, EventReader(marquez.url)).missing)
    new_worker(journal, marquez.url).run()
    assert missing_of(journal, marquez.url) == []
    assert marquez.runs == before


def test_a_run_whose_uuid_was_sent_without_hyphens_has_no_page_and_is_not_missing(
    journal: Journal, marquez: ContractServer, runs: Runs, new_worker: type[Worker]
) -> None:
    runs.keep("", **runs.members("plain", uuid.uuid4().hex, "COMPLETE", 0))
    new_worker(journal, marquez.url).run()
    assert missing_of(journal, marquez.url) == []


def test_only_a_marquez_can_be_asked(home: Path) -> None:
    hub = {"backend": "datahub", "endpoint": "http://hub:8080"}
    second = {"backend": "marquez", "name": "second", "endpoint": "http://second:5000"}
    settings = Settings.load({"home": home, "backends": [hub, second]}, env={})
    open_reader(settings, "second").close()
    for name in ("marquez", "datahub", "nobody"):
        with pytest.raises(NotFoundError, match="is not a Marquez"):
            open_reader(settings, name)
