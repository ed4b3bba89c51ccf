"""An outage of any kind: nothing is lost, and what was answered is not repeated."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from delivering import HASTY_S
from shown_runs import running_runs

if TYPE_CHECKING:
    from pathlib import Path

    from delivering import Site, Worker

UNSTORED = ["500", "502", "503", "504", "429", "429:7", "503:7", "close", "cut", "408", "507"]
STORED = ["500-stored", "close-stored", "503-stored"]


def fill(site: Site, runs: int = 4, events: int = 5) -> None:
    for number in range(events):
        for run in range(runs):
            site.keep(f"run-{run}", number)


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_backend_that_lets_one_wait_gets_everything_in_order_when_it_is_well(
    site: Site, fault: str
) -> None:
    fill(site, runs=2, events=2)
    site.marquez.fault = fault
    worker = site.deliver(timeout_s=HASTY_S, at_most_s=5)
    assert site.marquez.stored == []
    assert worker.delivery.pending() == 4
    site.marquez.fault = None
    worker.run()
    for run in range(2):
        # One that a busy machine was too slow to answer comes again, and may be stored late as well.
        assert list(dict.fromkeys(site.numbers(f"run-{run}"))) == [0, 1]


def test_while_nobody_listens_events_wait_and_then_arrive_once(site: Site, worker: Worker) -> None:
    fill(site)
    site.marquez.refuse()
    worker.run(at_most_s=200)
    assert worker.problem == (
        f"{site.marquez.url} does not answer: Connection refused, and events wait in the journal until it "
        "does; start it, or correct marquez_url: write `marquez_url: URL` into waybill.yaml"
    )
    site.marquez.start()
    worker.run()
    assert worker.problem is None
    assert [site.numbers(f"run-{run}") for run in range(4)] == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.parametrize(
    ("quiet", "at_least_s", "at_most_s"), [("429:200", 199, 210), ("503:31536000", 0, 400)]
)
def test_a_backend_that_asks_for_quiet_is_left_alone_for_that_long_and_not_for_ever(
    site: Site, worker: Worker, quiet: str, at_least_s: float, at_most_s: float
) -> None:
    site.keep("run")
    site.marquez.faults.append(quiet)
    worker.delivery.step()
    worker.run(at_most_s=at_least_s)
    assert len(site.marquez.received) == 1
    worker.run(at_most_s=at_most_s)
    assert len(site.marquez.stored) == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("404", "takes no events, it answers 404 ({"),
        ("page", "takes no events, it answers 200 (a web page)"),
    ],
)
def test_a_wrong_address_is_said_and_tried_slowly(site: Site, worker: Worker, fault: str, words: str) -> None:
    fill(site)
    site.marquez.fault = fault
    step = worker.delivery.step()
    assert step.problem is not None
    assert step.problem.startswith(f"{site.marquez.url} {words}")
    assert "correct marquez_url to where its API is: " in step.problem
    assert step.to_correct == "marquez_url"
    worker.run(at_most_s=900)
    assert 15 <= len(site.marquez.received) <= 35
    site.marquez.fault = None
    worker.run()
    assert len(site.marquez.stored) == 20
    assert worker.problem is None


def test_a_certificate_that_nobody_vouches_for_is_said_and_nothing_is_sent(
    site: Site, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    making = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command = ["openssl", *making, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received: list[bytes] = []

    def shake_hands(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            received.append(secured.recv(1))

    site.keep("run")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=shake_hands, args=(listening,))
        thread.start()
        worker = site.worker(url=f"https://localhost:{listening.getsockname()[1]}")
        problem = worker.delivery.step().problem
        thread.join()
    assert problem is not None
    assert "certificate verify failed" in problem
    assert problem.endswith("correct the certificate, or REQUESTS_CA_BUNDLE")
    assert received in ([], [b""])
    assert worker.delivery.pending() == 1


@pytest.mark.parametrize(
    ("address", "key", "says", "ends"),
    [
        ("https://127.0.0.1:{port}", None, " cannot be used: ", "certificate, or REQUESTS_CA_BUNDLE"),
        ("http://127.0.0.1:{port}", "two\nlines", "its address or key cannot be sent", "correct them"),
        ("http://user:lines@127.0.0.1:{port}", None, "answers 401 (", "set OPENLINEAGE_API_KEY"),
    ],
    ids=["no TLS there", "no key", "a secret in the address"],
)
def test_an_address_or_a_key_that_cannot_be_used_is_said_without_secrets(
    site: Site, address: str, key: str | None, says: str, ends: str
) -> None:
    site.keep("run")
    site.marquez.fault = "401"
    worker = site.worker(key, url=address.format(port=site.marquez.port))
    problem = None
    while problem is None:
        problem = worker.delivery.step().problem
    assert says in problem
    assert problem.endswith(ends)
    assert "lines" not in problem
    assert worker.delivery.pending() == 1


def test_a_key_in_any_script_can_be_sent(site: Site) -> None:
    site.keep("run")
    site.worker("ключ").run()
    assert site.marquez.received[0].headers["authorization"].encode("latin-1") == "Bearer ключ".encode()


def test_a_backend_that_takes_a_connection_but_reads_nothing_is_given_up_in_time(site: Site) -> None:
    site.keep("run", padding=secrets.token_urlsafe(16 * 2**20))  # more than the sockets' buffers hold
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        worker = site.worker(url=f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout_s=HASTY_S)
        started_s = time.monotonic()
        worker.run(until=lambda: worker.problem is not None)
        assert time.monotonic() - started_s < 20
    assert worker.problem is not None
    assert "the connection broke off (timed out)" in worker.problem
    assert worker.delivery.pending() == 1


def test_one_hiccup_is_no_problem_worth_a_word(site: Site, worker: Worker) -> None:
    fill(site)
    site.marquez.faults.extend(["503", None, "429", None, "close"])
    problems = []
    while worker.delivery.pending():
        step = worker.delivery.step()
        problems.append(step.problem)
        worker.clock.move(step.retry_s or 0.0)
    assert set(problems) == {None}
    assert len(site.marquez.stored) == 20


def test_after_outages_no_run_is_running_whose_end_is_known(site: Site, seed: int) -> None:
    system = f"outages-{uuid.uuid4()}"
    with site.tracker(system) as tracker:
        for number in range(5):
            with tracker.file(f"{number}.csv", data_source="orders") as file:
                with file.transform("load"):
                    file.egress("lake")
                if number == 2:
                    file.error("torn")
    task, application, write, lost, left = (str(uuid.uuid4()) for _ in range(5))
    facet = {"_producer": "x", "_schemaURL": "https://example.com/x"}
    of_task, of_application = (
        {"parent": {"run": {"runId": run}, "job": {"namespace": system, "name": job}} | facet}
        for run, job in ((task, "dag.task"), (application, "app"))
    )
    inferred = of_application | {"waybill_inferred": {"reason": "its application has ended"} | facet}
    sent: list[tuple[str, str, str, dict[str, Any]]] = [
        ("START", task, "dag.task", {}),
        ("START", application, "app", of_task),
        ("START", write, "app.write", of_application),
        ("START", lost, "app.read", of_application),
        ("START", left, "left", {}),
        ("FAIL", write, "app.write", of_application),
        ("COMPLETE", write, "app.write", of_application),
        ("COMPLETE", application, "app", of_task),
        ("RUNNING", application, "app", of_task),
        ("RUNNING", write, "app.write", of_application),
        ("ABORT", lost, "app.read", inferred),
        ("START", lost, "app.read", of_application),
        ("COMPLETE", task, "dag.task", {}),
    ]
    for kind, run, job, facets in sent:
        named = {"run": {"runId": run, "facets": facets}, "job": {"namespace": system, "name": job}}
        site.keep(run, eventType=kind, **named)
    chosen = Random(seed)  # noqa: S311 - no secret
    site.marquez.faults.extend(chosen.choice([*UNSTORED, *STORED, None, None, None]) for _ in range(100))
    for stored in itertools.count(5, 5):
        worker = site.worker(draws=True)
        worker.run(until=lambda stored=stored: len(site.marquez.stored) >= stored)  # type: ignore[misc]
        worker.delivery.finish()
        if not worker.delivery.pending():
            break
    assert running_runs(site.marquez) == {left}
