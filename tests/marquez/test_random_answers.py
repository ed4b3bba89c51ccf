"""Random answers over HTTP, with restarts in between: the promises hold for any script of a backend."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from delivering import Worker, event as event_of
from hypothesis import HealthCheck, given, settings, strategies as st
from manual_clock import ManualClock

from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from contract_server import ContractServer

STATUSES = ["401", "404", "408", "429:3", "500", "502", "503:7", "504", "507"]
SCRIPTED = st.sampled_from([None, None, None, *STATUSES, "500-stored", "close", "close-stored", "cut"])
REPEATS = {"500-stored", "close-stored"}


@given(
    runs=st.lists(st.sampled_from("abc"), min_size=1, max_size=25),
    refused=st.sets(st.integers(0, 24), max_size=3),
    script=st.lists(SCRIPTED, max_size=40),
    steps=st.lists(st.integers(1, 12), max_size=4),
)
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_order_holds_everything_arrives_and_only_what_was_refused_is_parked(
    marquez: ContractServer,
    refused_members: dict[str, object],
    runs: list[str],
    refused: set[int],
    script: list[str | None],
    steps: list[int],
) -> None:
    marquez.received.clear()
    marquez.faults.clear()
    marquez.faults.extend(script)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder), clock=ManualClock())
        for number, run in enumerate(runs):
            members = refused_members if number in refused else {}
            journal.append(Kind.OPENLINEAGE, event_of(run, number, **members))
        for count in steps:
            worker = Worker(journal, marquez.url)
            for _ in range(count):
                worker.clock.move(worker.delivery.step().retry_s or 0.0)
            worker.delivery.finish()
            worker.delivery.close()
        worker = Worker(journal, marquez.url)
        worker.run()
        worker.delivery.close()
        parked = {letter.seq - 1 for letter in dead_letters(journal)}
        assert journal.cursor("marquez") == journal.last_seq() == len(runs)
        journal.close()
    assert parked == {number for number in refused if number < len(runs)}
    arrived = [event["number"] for event in marquez.stored]
    assert set(arrived) == set(range(len(runs))) - parked
    for run in set(runs):
        sent = [
            json.loads(post.body)["number"] for post in marquez.received if f'"{run}"'.encode() in post.body
        ]
        assert sent == sorted(sent)
    repeats = sum(count - 1 for count in Counter(arrived).values())
    assert repeats <= sum(fault in REPEATS for fault in script)
