"""Several events on their way at a time: runs do not wait for each other, and within a run order holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from waybill.marquez.delivery.circuit import PROBE_EVERY_MAX_S

if TYPE_CHECKING:
    from delivering import Site, Worker


@pytest.fixture
def parallel(site: Site) -> Iterator[Worker]:
    yield site.worker(connections=4)
    site.marquez.release()


def test_as_many_events_are_on_their_way_as_there_are_connections_and_one_of_each_run(
    site: Site, parallel: Worker
) -> None:
    for number in range(10):
        for run in range(6):
            site.keep(f"run-{run}", number)
    now, most, lock = [], [], threading.Lock()

    def note(body: bytes) -> None:
        with lock:
            now.append(body)
            most.append(len(now))
        time.sleep(0.005)
        with lock:
            now.remove(body)

    site.marquez.fault_of = note
    parallel.run()
    assert max(most) == site.marquez.connections == 4
    for run in range(6):
        assert [e["number"] for e in site.marquez.stored if e["run"]["runId"] == f"run-{run}"] == list(
            range(10)
        )


def test_a_run_whose_answer_does_not_come_holds_up_no_other(site: Site, parallel: Worker) -> None:
    site.keep("slow", 0)
    site.marquez.faults.append("hang")
    parallel.delivery.step()
    for number in range(5):
        site.keep("slow", number + 1)
        site.keep("quick", number)
    parallel.run(until=lambda: len(site.numbers("quick")) == 5)
    assert site.numbers("slow") == []
    site.marquez.release()
    parallel.run()
    assert site.numbers("slow") == [0, 1, 2, 3, 4, 5]
    assert site.journal.cursor("marquez") == site.journal.last_seq()


def test_a_backend_that_is_down_is_tried_with_one_event_at_a_time(site: Site, parallel: Worker) -> None:
    for run in range(200):
        site.keep(f"run-{run}")
    site.marquez.fault = "503"
    parallel.run(at_most_s=600)
    assert 200 < len(site.marquez.received) < 800
    site.marquez.fault = None
    parallel.run()
    assert len(site.marquez.stored) == 200


def test_a_probe_that_hangs_does_not_hide_that_the_backend_is_well_again(
    site: Site, parallel: Worker
) -> None:
    for run in range(20):
        site.keep(f"run-{run}")
    site.marquez.fault = "close"
    parallel.run(at_most_s=60)
    assert parallel.problem is not None
    site.marquez.faults.append("hang")
    site.marquez.fault = None
    well_s = parallel.clock.monotonic_s()
    while not site.marquez.stored:
        parallel.delivery.step()
        parallel.clock.move(0.5)
    assert parallel.clock.monotonic_s() - well_s <= 2 * PROBE_EVERY_MAX_S + 1
    site.marquez.release()
    parallel.run()
    assert len({event["run"]["runId"] for event in site.marquez.stored}) == 20


def test_what_is_on_its_way_when_the_runner_ends_is_heard_and_not_repeated(
    site: Site, parallel: Worker
) -> None:
    for run in range(3):
        site.keep(f"run-{run}")
    site.marquez.fault_of = lambda _: time.sleep(0.2)
    parallel.delivery.step()
    parallel.delivery.finish()
    assert site.journal.cursor("marquez") == 3
    site.worker().run()
    assert len(site.marquez.received) == 3
