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
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from manual_clock import ManualClock
from shown_runs import running_runs

from waybill.transport import Journal, Kind, Settings, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    from contract_server import ContractServer
    from delivering import Worker

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]

UNSTORED = ["500", "502", "503", "504", "429", "429:7", "503:7", "close", "cut", "408", "507"]
HANGING = ["hang", "drip"]
STORED = ["500-stored", "close-stored", "503-stored"]


def fill(keep: Keep, runs: int = 4, events: int = 5) -> None:
    for number in range(events):
        for run in range(runs):
            keep(f"run-{run}", number)


@pytest.mark.parametrize("fault", HANGING)
def test_a_backend_that_lets_one_wait_gets_everything_in_order_when_it_is_well(
    marquez: ContractServer, hasty_worker: Worker, keep: Keep, numbers_of: Numbers, fault: str
) -> None:
    fill(keep)
    marquez.fault = fault
    hasty_worker.run(at_most_s=10)
    assert marquez.stored == []
    assert hasty_worker.delivery.pending() == 20
    marquez.fault = None
    hasty_worker.run()
    for run in range(4):
        # One that a busy machine was too slow to answer comes again, and may be stored late as well.
        assert list(dict.fromkeys(numbers_of(marquez.stored, f"run-{run}"))) == [0, 1, 2, 3, 4]


def test_while_nobody_listens_events_wait_and_then_arrive_once(
    marquez: ContractServer, worker: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    fill(keep)
    marquez.refuse()
    worker.run(at_most_s=200)
    assert worker.problem == (
        f"{marquez.url} does not answer: Connection refused, and events wait in the journal until it does; "
        "start it, or correct marquez_url: write `marquez_url: URL` into waybill.yaml"
    )
    marquez.start()
    worker.run()
    assert worker.problem is None
    assert [numbers_of(marquez.stored, f"run-{run}") for run in range(4)] == [[0, 1, 2, 3, 4]] * 4


def test_while_nobody_listens_no_window_that_is_over_is_asked_for_again_and_again(
    marquez: ContractServer, journal: Journal, new_worker: type[Worker]
) -> None:
    def keep_files(first: int) -> None:
        with Tracker(home=journal.home, runner="none", provenance_enabled=False) as tracker:
            for number in range(first, first + 5):
                with tracker.file(f"f-{number}", data_source="in") as file:
                    file.egress("out")

    worker = new_worker(journal, marquez.url, draws=True)
    keep_files(0)
    worker.run(at_most_s=1)
    marquez.refuse()
    keep_files(5)
    worker.run(at_most_s=5)
    assert worker.problem
    worker.clock.move(120)
    waits_s = []
    for _ in range(100):
        step = worker.delivery.step()
        if not step.applied:
            waits_s.append(step.retry_s or 0.0)
            worker.clock.move(waits_s[-1])
    worker.delivery.close()
    assert [pair for pair in itertools.pairwise(waits_s) if max(pair) < 0.005] == []


def test_a_name_that_does_not_resolve_is_an_outage(
    journal: Journal, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run")
    worker = new_worker(journal, "http://nowhere.invalid:5000")
    worker.run(at_most_s=60)
    assert worker.problem is not None
    assert worker.problem.startswith("http://nowhere.invalid:5000 does not answer: ")
    assert worker.delivery.pending() == 1


def test_a_backend_that_asks_for_quiet_is_left_alone_for_that_long(
    marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    fill(keep)
    marquez.faults.append("429:200")
    worker.delivery.step()
    worker.run(at_most_s=199)
    assert len(marquez.received) == 1
    worker.run()
    assert len(marquez.stored) == 20


def test_nobody_can_ask_for_quiet_for_ever(marquez: ContractServer, worker: Worker, keep: Keep) -> None:
    keep("run")
    marquez.faults.append("503:31536000")
    worker.run(at_most_s=400)
    assert len(marquez.stored) == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("404", "takes no events, it answers 404 ({"),
        ("page", "takes no events, it answers 200 (a web page)"),
    ],
)
def test_a_wrong_address_is_said_and_tried_slowly(
    marquez: ContractServer, worker: Worker, keep: Keep, fault: str, words: str
) -> None:
    fill(keep)
    marquez.fault = fault
    step = worker.delivery.step()
    assert step.problem is not None
    assert step.problem.startswith(f"{marquez.url} {words}")
    assert "correct marquez_url to where its API is: " in step.problem
    assert step.to_correct == "marquez_url"
    worker.run(at_most_s=900)
    assert 15 <= len(marquez.received) <= 35
    marquez.fault = None
    worker.run()
    assert len(marquez.stored) == 20
    assert worker.problem is None


def test_a_certificate_that_nobody_vouches_for_is_said_and_nothing_is_sent(
    journal: Journal, new_worker: type[Worker], keep: Keep, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received: list[bytes] = []

    def shake_hands(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            received.append(secured.recv(1))

    keep("run")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=shake_hands, args=(listening,))
        thread.start()
        worker = new_worker(journal, f"https://localhost:{listening.getsockname()[1]}")
        step = worker.delivery.step()
        thread.join()
    assert step.problem is not None
    assert "certificate verify failed" in step.problem
    assert step.problem.endswith("correct the certificate, or REQUESTS_CA_BUNDLE")
    assert received in ([], [b""])
    assert worker.delivery.pending() == 1
    worker.delivery.close()


def test_a_server_without_tls_is_said(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run")
    worker = new_worker(journal, marquez.url.replace("http:", "https:"))
    step = worker.delivery.step()
    assert step.problem is not None
    assert " cannot be used: " in step.problem
    assert step.problem.endswith("correct the certificate, or REQUESTS_CA_BUNDLE")
    assert worker.delivery.pending() == 1


def test_a_key_that_cannot_be_sent_is_said_but_not_shown(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run")
    problem = new_worker(journal, marquez.url, "two\nlines").delivery.step().problem
    assert problem is not None
    assert problem.endswith(" cannot be used: its address or key cannot be sent; correct them")
    assert "lines" not in problem


def test_a_key_in_any_script_can_be_sent(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run")
    new_worker(journal, marquez.url, "ключ").run()
    assert marquez.received[0].headers["authorization"].encode("latin-1") == "Bearer ключ".encode()


def test_a_secret_in_the_address_is_not_shown(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run")
    marquez.fault = "401"
    worker = new_worker(journal, marquez.url.replace("://", "://user:hush@"))
    problem = worker.delivery.step().problem
    assert problem is not None
    assert "hush" not in problem
    assert marquez.received[0].headers["authorization"].startswith("Basic ")


def test_a_backend_that_takes_a_connection_but_reads_nothing_is_given_up_in_time(
    journal: Journal, new_worker: type[Worker], keep: Keep
) -> None:
    keep("run", padding=secrets.token_urlsafe(16 * 2**20))  # more than the sockets' buffers hold
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        worker = new_worker(
            journal, f"http://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout_s=0.3, answer_timeout_s=0.3
        )
        started_s = time.monotonic()
        worker.run(until=lambda: worker.problem is not None)
        assert time.monotonic() - started_s < 20
    assert worker.problem is not None
    assert "the connection broke off (timed out)" in worker.problem
    assert worker.delivery.pending() == 1


def test_one_hiccup_is_no_problem_worth_a_word(marquez: ContractServer, worker: Worker, keep: Keep) -> None:
    fill(keep)
    marquez.faults.extend(["503", None, "429", None, "close"])
    problems = []
    while worker.delivery.pending():
        step = worker.delivery.step()
        problems.append(step.problem)
        worker.clock.move(step.retry_s or 0.0)
    assert set(problems) == {None}
    assert len(marquez.stored) == 20


def test_after_outages_no_run_is_running_whose_end_is_known(
    home: Path,
    marquez: ContractServer,
    new_worker: type[Worker],
    event_of: Callable[..., bytes],
    seed: int,
) -> None:
    system = f"outages-{uuid.uuid4()}"
    with Tracker(settings=Settings.load({"home": home, "system_name": system, "runner": "none"})) as tracker:
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
    journal = Journal(home, clock=ManualClock())
    for kind, run, job, facets in sent:
        named = {"run": {"runId": run, "facets": facets}, "job": {"namespace": system, "name": job}}
        journal.append(Kind.OPENLINEAGE, event_of(run, eventType=kind, **named))
    chosen = Random(seed)  # noqa: S311 - no secret
    marquez.faults.extend(chosen.choice([*UNSTORED, *STORED, None, None, None]) for _ in range(100))
    for stored in itertools.count(5, 5):
        worker = new_worker(journal, marquez.url, draws=True)
        worker.run(until=lambda stored=stored: len(marquez.stored) >= stored)  # type: ignore[misc]
        is_done = not worker.delivery.pending()
        worker.delivery.finish()
        worker.delivery.close()
        if is_done:
            break
    journal.close()
    assert running_runs(marquez) == {left}
