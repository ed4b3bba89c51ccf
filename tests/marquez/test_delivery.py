"""What reaches the backend, in which order, and how often."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delivering import event

from waybill.transport import Kind

if TYPE_CHECKING:
    import pytest
    from delivering import Site, Worker


def test_every_event_arrives_once_with_the_bytes_that_were_accepted(site: Site, worker: Worker) -> None:
    bodies = [event(f"run-{n % 3}", n) for n in range(30)]
    site.journal.mark(b"settle")
    site.journal.append(Kind.PROVENANCE, b"[]")
    site.journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    site.journal.mark(b"flush")
    worker.run()
    assert [received.body for received in site.marquez.received] == bodies
    assert worker.delivery.pending() == 0
    assert site.journal.cursor("marquez") == site.journal.last_seq()
    kept = {key.partition(":")[0] for key in site.journal.state("marquez")}
    assert kept == {"end", "figures", "held"}, "what is known of runs, and no more of any event"


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


def test_whatever_stands_in_the_journal_is_sent_as_it_is_and_draws_nothing(site: Site) -> None:
    bodies = [b"{", b"[]", b"{}", b"\xff", b'{"run":5}', b'{"job": 5, "run": {}}', b'{"inputs": [5]}']
    bodies += [b"[" * 100_000, b"waybill_deltaFile", b'"waybill_deltaFile":']
    bodies.append(b"[" * 100_000 + b"waybill_deltaFile")
    facets = {"waybill_deltaFile": {"did": "", "transforms": 5}}
    bodies.append(event("run", run={"runId": "run", "facets": facets}))
    site.journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    site.journal.append(Kind.PROVENANCE, b"[{}]")
    site.deliver(draws=True, at_most_s=5)
    assert {received.body for received in site.marquez.received} == set(bodies)
    assert len(site.marquez.stored) == 1


def test_a_larger_body_travels_compressed_unless_the_backend_reads_no_gzip(
    site: Site, worker: Worker
) -> None:
    site.keep("small")
    site.keep("large", padding="x" * 100_000)
    worker.run()
    small, large = site.marquez.received
    assert "content-encoding" not in small.headers
    assert large.headers["content-encoding"] == "gzip"
    assert int(large.headers["content-length"]) < 2_000
    assert large.event["padding"] == "x" * 100_000
    site.marquez.reads_gzip = False
    for number in (1, 2):
        site.keep("large", number, padding="x" * 100_000)
    worker.run()
    assert site.numbers("large") == [0, 1, 2]
    encodings = [received.headers.get("content-encoding") for received in site.marquez.received[2:]]
    assert encodings == ["gzip", None, None]


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


def test_proxies_of_the_environment_are_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", site.marquez.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site.keep("run")
    site.marquez.faults.append("503")
    site.worker(url="http://marquez.invalid").delivery.step()
    assert site.marquez.received[0].headers["host"] == "marquez.invalid"
