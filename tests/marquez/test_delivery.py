"""What reaches the backend, in which order, and how often."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
from delivering import Worker, event

from waybill.marquez import Delivery, open_deliveries
from waybill.transport import Journal, Kind, Projection, Settings

if TYPE_CHECKING:
    from delivering import Site


def test_every_event_arrives_once_with_the_bytes_that_were_accepted(site: Site, worker: Worker) -> None:
    bodies = [event(f"run-{n % 3}", n) for n in range(30)]
    site.journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    worker.run()
    assert [received.body for received in site.marquez.received] == bodies
    assert worker.delivery.pending() == 0
    assert site.journal.cursor("marquez") == site.journal.last_seq()
    kept = {key.partition(":")[0] for key in site.journal.state("marquez")}
    assert kept == {"end", "figures", "held"}, "what is known of runs, and no more of any event"


def test_marks_and_records_are_passed_over(site: Site, worker: Worker) -> None:
    site.journal.mark(b"settle")
    site.keep("run")
    site.journal.append(Kind.PROVENANCE, b"[]")
    site.journal.mark(b"flush")
    worker.run()
    assert len(site.marquez.received) == 1
    assert site.journal.cursor("marquez") == site.journal.last_seq()
    assert worker.delivery.pending() == 0


def test_job_and_dataset_events_are_delivered_in_the_order_of_their_subject(
    site: Site, worker: Worker
) -> None:
    spec = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
    subject = {"namespace": "n", "name": "x"}
    without_run = {"run": ..., "eventType": ...}
    for number in range(3):
        for kind, members in (
            ("JobEvent", {"job": subject}),
            ("DatasetEvent", {"job": ..., "dataset": subject}),
        ):
            body = event("", number, schemaURL=f"{spec}{kind}", **without_run, **members)
            site.journal.append(Kind.OPENLINEAGE, body)
    first_job_event = event("", 0, schemaURL=f"{spec}JobEvent", job=subject, **without_run)
    failures = iter(["500"] * 3)
    site.marquez.fault_of = lambda body: next(failures, None) if body == first_job_event else None
    worker.run()
    numbers = [(e["schemaURL"].rpartition("/")[2], e["number"]) for e in site.marquez.stored]
    assert [n for kind, n in numbers if kind == "JobEvent"] == [0, 1, 2]
    assert [n for kind, n in numbers if kind == "DatasetEvent"] == [0, 1, 2]
    assert numbers[0] == ("DatasetEvent", 0)
    assert site.marquez.others == 6


def test_an_entry_that_names_nothing_is_sent_all_the_same(site: Site, worker: Worker) -> None:
    for body in (b"{", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"run":5}'):
        site.journal.append(Kind.OPENLINEAGE, body)
    site.keep("run")
    worker.run(at_most_s=5)
    assert len({received.body for received in site.marquez.received}) == 7
    assert len(site.marquez.stored) == 1


def test_a_larger_body_travels_compressed(site: Site, worker: Worker) -> None:
    site.keep("small")
    site.keep("large", padding="x" * 100_000)
    worker.run()
    small, large = site.marquez.received
    assert "content-encoding" not in small.headers
    assert large.headers["content-encoding"] == "gzip"
    assert int(large.headers["content-length"]) < 2_000
    assert large.event["padding"] == "x" * 100_000


def test_a_backend_that_reads_no_gzip_gets_plain_bodies(site: Site, worker: Worker) -> None:
    site.marquez.reads_gzip = False
    for number in range(3):
        site.keep("large", number, padding="x" * 100_000)
    worker.run()
    assert [event["number"] for event in site.marquez.stored] == [0, 1, 2]
    assert [received.headers.get("content-encoding") for received in site.marquez.received] == [
        "gzip",
        None,
        None,
        None,
    ]


def test_the_api_key_is_sent_as_a_bearer_token_and_not_replaced_by_netrc(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    site.marquez.api_key = "key"
    site.keep("run")
    site.worker("key").run()
    assert site.marquez.received[0].headers["authorization"] == "Bearer key"
    assert len(site.marquez.stored) == 1


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/api/v1/lineage", "/api/v1/lineage/"])
def test_the_address_may_have_the_path_of_the_endpoint_or_not(site: Site, path: str) -> None:
    site.keep("run")
    Worker(site.journal, site.marquez.url + path).run()
    assert len(site.marquez.stored) == 1


def test_without_an_address_there_is_no_delivery(journal: Journal, settings: Settings) -> None:
    assert open_deliveries(journal, settings) == []


def test_with_an_address_there_is_one_that_keeps_nothing_itself(journal: Journal, home: Path) -> None:
    settings = Settings.load({"home": home, "marquez_url": "http://localhost:5000"}, env={})
    (delivery,) = open_deliveries(journal, settings)
    assert isinstance(delivery, Delivery)
    assert isinstance(delivery, Projection)
    assert (delivery.name, delivery.stores) == ("marquez", False)
    delivery.close()


def test_entries_that_the_journal_let_go_of_hold_up_nothing(site: Site, worker: Worker) -> None:
    for number in range(5):
        site.keep("run", number, pad="x" * 3 * 2**20)
    site.marquez.fault = "500"
    worker.run(at_most_s=1)  # all five are in view by now
    site.journal.prune(4, 2**62)
    site.marquez.fault = None
    worker.run()
    # Those that came into view last are still in memory.
    assert [event["number"] for event in site.marquez.stored] == [3, 4]
    assert site.journal.cursor("marquez") == 5


def test_a_journal_that_begins_late_is_no_trouble(site: Site, worker: Worker) -> None:
    for number in range(10):
        site.keep("run", number)
    site.journal.prune(8, 2**62)
    worker.run()
    assert [event["number"] for event in site.marquez.stored] == [8, 9]
    assert worker.delivery.pending() == 0


def test_a_run_is_there_in_its_last_state(site: Site) -> None:
    run = str(uuid.uuid4())
    for number, kind in enumerate(("START", "RUNNING", "COMPLETE")):
        site.keep(run, number, eventType=kind, eventTime=f"2026-01-01T00:00:0{number}+00:00")
    Worker(site.journal, site.url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    assert site.journal.cursor("marquez") == site.journal.last_seq()
    found = requests.get(f"{site.url}/api/v1/jobs/runs/{run}", timeout=30)
    assert json.loads(found.content)["state"] == "COMPLETED"


def test_proxies_of_the_environment_are_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", site.marquez.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site.keep("run")
    site.marquez.faults.append("503")
    worker = Worker(site.journal, "http://marquez.invalid")
    worker.delivery.step()
    assert site.marquez.received[0].headers["host"] == "marquez.invalid"
