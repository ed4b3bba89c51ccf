"""What Marquez lacks of what was delivered is found, and after a repair all is as at the first delivery."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from delivering import event

from waybill.facets.flows import FlowNode
from waybill.marquez import EventReader, MarquezReadError, open_reader, reconcile, reconcile_new, repair
from waybill.transport import Journal, NotFoundError, Settings

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Site, Worker

MOMENT = "2026-01-01T00:00:{:02}.{:03}+00:00"


@pytest.fixture
def delivered(site: Site, worker: Worker) -> Worker:
    """Three runs of four events each, all delivered."""
    for run in range(3):
        for number, kind in enumerate(("START", "RUNNING", "RUNNING", "COMPLETE")):
            site.keep(f"run-{run}", number, eventType=kind, eventTime=MOMENT.format(number, run))
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


@pytest.mark.parametrize("lost", [(0,), (1, 3)])
def test_after_a_repair_each_runs_state_is_as_after_the_first_delivery(
    site: Site, delivered: Worker, lost: tuple[int, ...]
) -> None:
    before = dict(site.marquez.runs)
    forget(site.marquez, *lost)
    repair(site.journal, reconcile(site.journal, EventReader(site.marquez.url)).missing)
    delivered.run()
    assert reconcile(site.journal, EventReader(site.marquez.url)).missing == ()
    assert site.marquez.runs == before
    assert delivered.delivery.pending() == 0


def test_a_summary_stands_for_the_events_in_it_and_is_repaired_as_they_would_be(site: Site) -> None:
    for number in range(4):
        facets = {"waybill_deltaFile": {"did": f"f{number}", "dataSource": "orders"}}
        site.keep(f"f{number}", number, eventType="COMPLETE", run={"runId": f"f{number}", "facets": facets})
    site.journal.mark(b"flush")
    worker = site.worker(detail="summary")
    worker.run()
    assert [event["eventType"] for event in site.marquez.stored] == ["START", "COMPLETE"]
    before, run_id = dict(site.marquez.runs), site.marquez.stored[0]["run"]["runId"]
    found = reconcile(site.journal, EventReader(site.marquez.url))
    assert (found.compared, found.missing) == (1, ())
    site.marquez.events.clear()
    site.marquez.runs.clear()
    (missing,) = reconcile(site.journal, EventReader(site.marquez.url)).missing
    assert missing.run_id == run_id
    repair(site.journal, [missing])
    worker.run()
    assert reconcile(site.journal, EventReader(site.marquez.url)).missing == ()
    assert site.marquez.runs == before
    assert site.marquez.stored[:2] == site.marquez.stored[2:]


def test_what_is_new_is_compared_once_and_sent_again_where_it_is_missing(
    site: Site, delivered: Worker
) -> None:
    before = dict(site.marquez.runs)
    forget(site.marquez, 1, 3)
    reader = EventReader(site.marquez.url)
    found = list(reconcile_new(site.journal, reader, entries_at_once=5))
    assert [(one.compared, len(one.missing)) for one in found] == [(5, 0), (5, 2), (2, 0)]
    delivered.run()
    assert site.marquez.runs == before
    assert reconcile(site.journal, reader).missing == ()
    assert list(reconcile_new(site.journal, reader)) == []
    site.marquez.refuse()
    site.keep("run-9")
    assert list(reconcile_new(site.journal, reader)) == [], "what waits is not asked for"


def test_what_was_not_delivered_or_is_not_given_back_is_not_missing(site: Site, worker: Worker) -> None:
    schema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
    site.keep("", run=..., eventType=..., schemaURL=schema)
    site.journal.mark(b"flush")
    site.journal.poison.set_aside("marquez", site.keep("poison"), "a test")
    site.keep("refused", producer=...)
    site.keep("taken")
    worker.run()
    site.keep("waiting")
    found = reconcile(site.journal, EventReader(site.marquez.url))
    assert (found.compared, found.missing) == (1, ())


def test_only_what_was_accepted_since_then_is_compared(site: Site, worker: Worker) -> None:
    instants_ms = [1_000, 2_000, 3_000]
    for number, instant_ms in enumerate(instants_ms):
        worker.clock.set_ms(instant_ms)
        site.keep("run", number)
    worker.run()
    reader = EventReader(site.marquez.url)
    for since_ms, compared in ((0, 3), (1_000, 3), (1_001, 2), (2_000, 2), (3_000, 1), (3_001, 0)):
        assert reconcile(site.journal, reader, since_ms=since_ms).compared == compared


def test_events_that_share_an_instant_are_told_apart(site: Site, worker: Worker) -> None:
    for number in range(20):
        site.keep(f"run-{number}", eventTime=MOMENT.format(number // 8, 0))
    worker.run()
    found = reconcile(site.journal, EventReader(site.marquez.url))
    assert (found.compared, found.missing) == (20, ())
    forget(site.marquez, 0, run="run-9")
    found = reconcile(site.journal, EventReader(site.marquez.url))
    assert [one.run_id for one in found.missing] == ["run-9"]


@pytest.mark.parametrize("fault", ["404", "page"])
def test_a_backend_that_cannot_be_read_is_one_sentence(site: Site, delivered: Worker, fault: str) -> None:
    assert delivered.delivery.pending() == 0
    site.marquez.fault = fault
    with pytest.raises(MarquezReadError, match="http://127"):
        reconcile(site.journal, EventReader(site.marquez.url))


@dataclass
class Runs:
    """Runs of two jobs, one of them with a parent, that were delivered; all in a namespace of their own."""

    namespace: str
    ids: dict[str, list[str]]
    """By the job's name at the backend."""
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
def runs(site: Site) -> Runs:
    ids = {job: [str(uuid.uuid4()) for _ in range(3)] for job in ("plain", "above.child")}
    runs = Runs(f"tests-{uuid.uuid4()}", ids, datetime.now(UTC))
    for job, run_ids in ids.items():
        for run in run_ids:
            for second, kind in enumerate(("START", "COMPLETE")):
                site.keep("", **runs.members(job, run, kind, second))
    site.deliver()
    return runs


def missing_of(journal: Journal, url: str, page_runs: int = 1000) -> list[tuple[str, str]]:
    """The run and the type of each missing event."""
    found = reconcile(journal, EventReader(url, page_runs=page_runs))
    return [(one.run_id, one.event_type) for one in found.missing]


def test_a_job_that_somebody_deleted_comes_back_with_its_runs(site: Site, runs: Runs) -> None:
    assert missing_of(site.journal, site.url) == []
    at = f"{site.url}/api/v1/namespaces/{runs.namespace}/jobs/above.child"
    assert requests.delete(at, timeout=60).status_code == 200
    expected = [(run, kind) for run in runs.ids["above.child"] for kind in ("START", "COMPLETE")]
    assert missing_of(site.journal, site.url) == expected
    repair(site.journal, reconcile(site.journal, EventReader(site.url)).missing)
    site.deliver()
    assert missing_of(site.journal, site.url) == []
    shown = requests.get(f"{at}/runs", timeout=60).json()["runs"]
    assert {one["id"]: one["state"] for one in shown} == dict.fromkeys(runs.ids["above.child"], "COMPLETED")


@pytest.mark.parametrize("job", ["plain", "above.child"])
def test_a_run_in_a_lesser_state_gets_its_end_again(site: Site, runs: Runs, job: str) -> None:
    run = runs.ids[job][1]
    assert send(site.url, event("", **runs.members(job, run, "RUNNING", 9))) == 201
    assert missing_of(site.journal, site.url) == [(run, "START"), (run, "COMPLETE")], (
        "its start is another, too"
    )
    found = list(reconcile_new(site.journal, EventReader(site.url)))
    assert [[one.run_id for one in part.missing] for part in found] == [[], [run, run]]
    assert list(reconcile_new(site.journal, EventReader(site.url))) == []
    site.deliver()
    assert missing_of(site.journal, site.url) == []


def test_an_inferred_end_closes_an_open_run_and_gives_way_to_any_other(site: Site, runs: Runs) -> None:
    run = str(uuid.uuid4())
    start, abort = (runs.members("plain", run, kind, at) for at, kind in enumerate(("START", "ABORT")))
    site.keep("", **start)
    site.keep("", **abort | {"run": {"runId": run, "facets": {"waybill_inferred": FACET}}})
    site.deliver()
    for kind, missing in (("RUNNING", [(run, "START"), (run, "ABORT")]), ("COMPLETE", [])):
        assert send(site.url, event("", **runs.members("plain", run, kind, 9))) == 201
        assert missing_of(site.journal, site.url) == missing


@pytest.mark.parametrize("job", ["plain", "above.child"])
def test_a_run_with_a_later_start_or_an_earlier_end_gets_its_own_again(
    site: Site, runs: Runs, job: str
) -> None:
    def shown(run: str) -> list[tuple[str, str]]:
        pages = list(EventReader(site.url).runs(FlowNode(runs.namespace, job)) or ())
        return [(str(one.started_at), str(one.ended_at)) for page in pages for one in page if one.id == run]

    began_late, ended_early = runs.ids[job][1:]
    right = shown(began_late), shown(ended_early)
    for run, *kinds in ((began_late, ("RUNNING", 9), ("COMPLETE", 1)), (ended_early, ("COMPLETE", -1))):
        for kind, second in kinds:
            assert send(site.url, event("", **runs.members(job, run, kind, second))) == 201
    assert missing_of(site.journal, site.url) == [
        (began_late, "START"),
        (began_late, "COMPLETE"),
        (ended_early, "COMPLETE"),
    ]
    repair(site.journal, reconcile(site.journal, EventReader(site.url)).missing)
    site.deliver()
    assert missing_of(site.journal, site.url) == []
    assert (shown(began_late), shown(ended_early)) == right


def test_an_end_that_counts_for_more_is_left_alone(site: Site, runs: Runs) -> None:
    assert send(site.url, event("", **runs.members("plain", runs.ids["plain"][0], "FAIL", 9))) == 201
    assert missing_of(site.journal, site.url) == []


@pytest.mark.parametrize("page_runs", [1, 1000])
def test_a_run_that_is_gone_while_its_events_are_there_gets_its_first_event_and_its_end_again(
    site: Site, runs: Runs, page_runs: int
) -> None:
    before = dict(site.marquez.runs)
    gone = [run_ids[1] for run_ids in runs.ids.values()]
    for run in gone:
        del site.marquez.runs[run]
    expected = [(run, kind) for run in gone for kind in ("START", "COMPLETE")]
    assert missing_of(site.journal, site.marquez.url, page_runs=page_runs) == expected
    repair(site.journal, reconcile(site.journal, EventReader(site.marquez.url)).missing)
    site.deliver()
    assert missing_of(site.journal, site.marquez.url) == []
    assert site.marquez.runs == before


def test_of_a_run_whose_start_has_left_the_journal_only_what_is_still_there_is_missing(
    site: Site, runs: Runs
) -> None:
    late, early = (str(uuid.uuid4()) for _ in range(2))
    start = site.keep("", **runs.members("plain", late, "START", 20))
    for run, kind, second in ((early, "START", 21), (late, "COMPLETE", 22), (early, "COMPLETE", 23)):
        site.keep("", **runs.members("plain", run, kind, second))
    site.deliver()
    site.journal.prune(start, 2**62)
    assert missing_of(site.journal, site.marquez.url) == []
    for run in (late, early):
        del site.marquez.runs[run]
    expected = [(early, "START"), (late, "COMPLETE"), (early, "COMPLETE")]
    assert missing_of(site.journal, site.marquez.url) == expected
    repair(site.journal, reconcile(site.journal, EventReader(site.marquez.url)).missing)
    site.deliver()
    assert missing_of(site.journal, site.marquez.url) == [], "a start that is gone is not asked for again"


def test_an_end_that_waits_to_be_sent_again_is_not_missing(site: Site, runs: Runs) -> None:
    run = runs.ids["plain"][1]
    site.keep("", **runs.members("plain", run, "RUNNING", 9))
    site.marquez.fault_of = lambda body: "503" if b'"COMPLETE"' in body else None
    site.deliver(at_most_s=1.0, draws=True)
    assert site.marquez.runs[run] == "RUNNING"
    assert missing_of(site.journal, site.marquez.url) == []
    site.marquez.fault_of = None
    site.deliver(draws=True)
    assert site.marquez.runs[run] == "COMPLETED"
    assert missing_of(site.journal, site.marquez.url) == []


def test_a_run_whose_uuid_was_sent_without_hyphens_has_no_page_and_is_not_missing(
    site: Site, runs: Runs
) -> None:
    site.keep("", **runs.members("plain", uuid.uuid4().hex, "COMPLETE", 0))
    site.deliver()
    assert missing_of(site.journal, site.marquez.url) == []


def test_only_a_marquez_can_be_asked(home: Path) -> None:
    hub = {"backend": "datahub", "endpoint": "http://hub:8080"}
    second = {"backend": "marquez", "name": "second", "endpoint": "http://second:5000"}
    settings = Settings.load({"home": home, "backends": [hub, second]}, env={})
    open_reader(settings, "second").close()
    for name in ("marquez", "datahub", "nobody"):
        with pytest.raises(NotFoundError, match="is not a Marquez"):
            open_reader(settings, name)
