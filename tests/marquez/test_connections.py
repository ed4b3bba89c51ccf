"""Several events on their way at a time: runs do not wait for each other, and within a run order holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from waybill.marquez.delivery.circuit import PROBE_EVERY_MAX_S

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

    from waybill.transport import Journal

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]


@pytest.fixture
def parallel(journal: Journal, marquez: ContractServer, new_worker: type[Worker]) -> Iterator[Worker]:
    worker = new_worker(journal, marquez.url, connections=4, connect_timeout_s=10.0, answer_timeout_s=10.0)
    yield worker
    marquez.release()
    worker.delivery.close()


def test_as_many_events_are_on_their_way_as_there_are_connections_and_one_of_each_run(
    marquez: ContractServer, parallel: Worker, keep: Keep
) -> None:
    for number in range(10):
        for run in range(6):
            keep(f"run-{run}", number)
    now, most, lock = [], [], threading.Lock()

    def note(body: bytes) -> None:
        with lock:
            now.append(body)
            most.append(len(now))
        time.sleep(0.005)
        with lock:
            now.remove(body)

    marquez.fault_of = note
    parallel.run()
    assert max(most) == 4
    for run in range(6):
        assert [e["number"] for e in marquez.stored if e["run"]["runId"] == f"run-{run}"] == list(range(10))


def test_a_run_whose_answer_does_not_come_holds_up_no_other(
    journal: Journal, marquez: ContractServer, parallel: Worker, keep: Keep, numbers_of: Numbers
) -> None:
    keep("slow", 0)
    marquez.faults.append("hang")
    parallel.delivery.step()
    for number in range(5):
        keep("slow", number + 1)
        keep("quick", number)
    parallel.run(until=lambda: len(numbers_of(marquez.stored, "quick")) == 5)
    assert numbers_of(marquez.stored, "slow") == []
    marquez.release()
    parallel.run()
    assert numbers_of(marquez.stored, "slow") == [0, 1, 2, 3, 4, 5]
    assert journal.cursor("marquez") == journal.last_seq()


def test_a_backend_that_is_down_is_tried_with_one_event_at_a_time(
    marquez: ContractServer, parallel: Worker, keep: Keep
) -> None:
    for run in range(200):
        keep(f"run-{run}")
    marquez.fault = "503"
    parallel.run(at_most_s=600)
    assert 200 < len(marquez.received) < 800
    marquez.fault = None
    parallel.run()
    assert len(marquez.stored) == 200


def test_a_probe_that_hangs_does_not_hide_that_the_backend_is_well_again(
    marquez: ContractServer, parallel: Worker, keep: Keep
) -> None:
    for run in range(20):
        keep(f"run-{run}")
    marquez.fault = "close"
    parallel.run(at_most_s=60)
    assert parallel.problem is not None
    marquez.faults.append("hang")
    marquez.fault = None
    well_s = parallel.clock.monotonic_s()
    while not marquez.stored:
        parallel.delivery.step()
        parallel.clock.move(0.5)
    assert parallel.clock.monotonic_s() - well_s <= 2 * PROBE_EVERY_MAX_S + 1
    marquez.release()
    parallel.run()
    assert len({event["run"]["runId"] for event in marquez.stored}) == 20


def test_what_is_on_its_way_when_the_runner_ends_is_heard_and_not_repeated(
    journal: Journal, marquez: ContractServer, parallel: Worker, new_worker: type[Worker], keep: Keep
) -> None:
    for run in range(3):
        keep(f"run-{run}")
    marquez.fault_of = lambda _: time.sleep(0.2)
    parallel.delivery.step()
    parallel.delivery.finish()
    assert journal.cursor("marquez") == 3
    new_worker(journal, marquez.url).run()
    assert len(marquez.received) == 3


def test_connections_are_used_again(marquez: ContractServer, parallel: Worker, keep: Keep) -> None:
    for number in range(20):
        for run in range(4):
            keep(f"run-{run}", number)
    parallel.run()
    assert len(marquez.stored) == 80
    assert marquez.connections <= 4
