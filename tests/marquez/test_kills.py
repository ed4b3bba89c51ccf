"""A delivery that is killed at each of its steps: before each thing that it does to journal and backend."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from manual_clock import ManualClock

from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Worker

EventOf = Callable[..., bytes]
Kill = Callable[[Path, int], bool]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from waybill.marquez import Backend, Delivery
from waybill.transport import Journal


def deliver(journal, url, steps):
    left = iter(range(steps - 1))

    def mortal(act):
        def do(*given, **named):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            return act(*given, **named)
        return do

    backend = Backend(url)
    journal.read, journal.commit = mortal(journal.read), mortal(journal.commit)
    backend.deliver = mortal(backend.deliver)
    delivery = Delivery(journal, backend, connections=1, draws=True)
    while delivery.pending():
        delivery.step()
    delivery.finish()


for line in sys.stdin:
    home, url, steps = line.rstrip().split(chr(9))
    child = os.fork()
    if not child:
        deliver(Journal(Path(home)), url, int(steps))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
STEPS_MAX = 200


@pytest.fixture
def kill(marquez: ContractServer) -> Iterator[Kill]:
    """Lets a process deliver from a home until it is killed at a step; whether it came so far."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None

        def kill(home: Path, step: int) -> bool:
            print(home, marquez.url, step, sep="\t", file=parent.stdin, flush=True)
            code = int(parent.stdout.readline()) if parent.stdout else 1
            assert code in {0, -signal.SIGKILL}
            return code != 0

        yield kill
        parent.stdin.close()


@pytest.fixture
def filled(tmp_path: Path, event_of: EventOf) -> Path:
    """A home with a file's run that has an event after its end, and a run that begins with poison."""
    facet = {"did": "d", "dataSource": "orders", "systemName": "east", "transforms": ["load"]}
    ends = facet | {"finalState": "COMPLETE", "dataSink": "lake", "completed": "2026-01-01T00:00:01Z"}

    def of_file(number: int, kind: str, facet: dict[str, Any]) -> bytes:
        run = {"runId": "file", "facets": {"waybill_deltaFile": facet}}
        return event_of("file", number, eventType=kind, run=run)

    bodies = [
        event_of("other", 0, eventType="START", producer=...),
        of_file(0, "START", facet),
        of_file(1, "COMPLETE", ends),
        of_file(2, "RUNNING", facet),
        event_of("other", 1, eventType="COMPLETE"),
    ]
    journal = Journal(tmp_path / "filled")
    journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])
    journal.close()
    return journal.home


def test_wherever_it_is_killed_all_arrives_in_order_and_only_what_was_on_its_way_comes_twice(
    tmp_path: Path, filled: Path, marquez: ContractServer, new_worker: type[Worker], kill: Kill
) -> None:
    killed = 0
    for step in range(1, STEPS_MAX):
        marquez.received.clear()
        home = shutil.copytree(filled, tmp_path / str(step))
        was_killed = kill(home, step)
        journal = Journal(home, clock=ManualClock(time.time_ns() // 1_000_000))
        worker = new_worker(journal, marquez.url, draws=True)
        worker.run()
        worker.delivery.close()
        assert [letter.seq for letter in dead_letters(journal)] == [1]
        assert journal.cursor("marquez") == journal.last_seq()
        journal.close()
        of_file = [event["number"] for event in marquez.stored if event.get("run", {}).get("runId") == "file"]
        assert [number for number, _ in itertools.groupby(of_file)] == [0, 1, 2, 1], step
        assert len(of_file) <= 4 + was_killed, "at most the one whose answer was not seen comes twice"
        assert set(marquez.runs.values()) == {"COMPLETED"}, "none is left running"
        ends = {event["run"]["runId"]: event for event in marquez.stored if event["eventType"] == "COMPLETE"}
        windows = [event for event in ends.values() if "waybill_summary" in event["run"]["facets"]]
        assert {event["job"]["name"] for event in windows} == {"load · orders"}
        assert sum(event["run"]["facets"]["waybill_summary"]["records"] for event in windows) == 1, step
        if not was_killed:
            break
        killed += 1
    assert killed > 2 * 6, "each event is at least one step in the journal, and one at the backend"
