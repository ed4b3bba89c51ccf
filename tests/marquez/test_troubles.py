"""Troubles in a row, on the stand-in and on a real Marquez behind it: what the backend has in the end.

The faults are made in front of the real one: it never sees the request, or its answer never gets back.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

EventOf = Callable[..., bytes]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]

TYPES = ("START", "RUNNING", "COMPLETE")
RUNS = 6
TROUBLES = ["500", "500-stored", "502", "503", "503-stored", "429:3", "close", "close-stored", "cut", "404"]
CHILD = """
import sys, time
from pathlib import Path
from waybill.marquez import open_deliveries
from waybill.transport import Journal, Settings
settings = Settings.load({"home": Path(sys.argv[1]), "marquez_url": sys.argv[2]}, env={})
(delivery,) = open_deliveries(Journal(settings.home), settings)
while delivery.pending():
    step = delivery.step()
    if not step.applied:
        time.sleep(min(step.retry_s or 0.0, 0.05))
"""


@pytest.fixture
def runs(journal: Journal, event_of: EventOf) -> list[str]:
    """Runs whose events wait in the journal, one event of each after the other."""
    runs = [str(uuid.uuid4()) for _ in range(RUNS)]
    for number, kind in enumerate(TYPES):
        for run in runs:
            journal.append(Kind.OPENLINEAGE, event_of(run, number, eventType=kind))
    return runs


def state_of(server: ContractServer, run: str) -> str:
    """What the backend itself says of a run."""
    url = server.upstream or server.url
    answer = requests.get(f"{url}/api/v1/jobs/runs/{run}", timeout=60)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["state"])


def check(server: ContractServer, runs: list[str], numbers_of: Numbers) -> None:
    """Everything arrived, in order, and the last word counts."""
    for run in runs:
        arrived = numbers_of(server.stored, run)
        assert set(arrived) == set(range(len(TYPES)))
        assert arrived == sorted(arrived)
    assert {state_of(server, run) for run in runs} == {"COMPLETED"}


@pytest.mark.timeout(600)
def test_after_troubles_of_every_kind_and_an_outage_all_runs_are_complete_and_only_poison_is_parked(
    marquez: ContractServer,
    journal: Journal,
    new_worker: type[Worker],
    event_of: EventOf,
    runs: list[str],
    numbers_of: Numbers,
    seed: int,
) -> None:
    poison = journal.append(Kind.OPENLINEAGE, event_of(str(uuid.uuid4()), eventType=...))
    troubles = [*TROUBLES, *[None] * len(TROUBLES)]
    random.Random(seed).shuffle(troubles)  # noqa: S311 - the order of troubles is no secret
    marquez.faults.extend(troubles)
    worker = new_worker(journal, marquez.url, connect_timeout_s=10.0, answer_timeout_s=60.0)
    worker.run(until=lambda: len(marquez.stored) >= RUNS)
    marquez.refuse()
    worker.run(at_most_s=30)
    marquez.start()
    for number in range(20):
        worker.run(at_most_s=15)
        journal.append(Kind.OPENLINEAGE, event_of(str(uuid.uuid4()), eventType="COMPLETE", number=number))
        if dead_letters(journal):
            break
    worker.run()
    worker.delivery.close()
    assert [letter.seq for letter in dead_letters(journal)] == [poison]
    assert journal.cursor("marquez") == journal.last_seq()
    check(marquez, runs, numbers_of)


@pytest.mark.timeout(600)
def test_a_delivery_that_is_killed_again_and_again_leaves_every_run_complete(
    marquez: ContractServer, home: Path, runs: list[str], numbers_of: Numbers, seed: int
) -> None:
    choose = random.Random(seed)  # noqa: S311 - when to kill is no secret
    marquez.fault_of = lambda _: choose.choices([None, "500", "503-stored", "close"], [10, 1, 1, 1])[0]
    command = [sys.executable, "-c", CHILD, str(home), marquez.url]
    for _ in range(4):
        child = subprocess.Popen(command)
        enough = len(marquez.received) + choose.randrange(1, 6)
        while len(marquez.received) < enough and child.poll() is None:
            time.sleep(0.001)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    marquez.fault_of = None
    subprocess.run(command, check=True, timeout=400)
    check(marquez, runs, numbers_of)
