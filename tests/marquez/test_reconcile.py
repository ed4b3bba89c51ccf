"""What Marquez lacks of what was delivered is found, and after a repair all is as at the first delivery."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.marquez import EventReader, MarquezReadError, open_reader, reconcile, reconcile_new, repair
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from conftest import Worker
    from contract_server import ContractServer

Keep = Callable[..., int]
Numbers = Callable[[list[dict[str, Any]], str], list[int]]
MOMENT = "2026-01-01T00:00:{:02}.{:03}+00:00"


@pytest.fixture
def delivered(worker: Worker, keep: Keep) -> Worker:
    """Three runs of four events each, all delivered."""
    for run in range(3):
        for number, kind in enumerate(("START", "RUNNING", "RUNNING", "COMPLETE")):
            keep(f"run-{run}", number, eventType=kind, eventTime=MOMENT.format(number, run))
    worker.run()
    return worker


def forget(marquez: ContractServer, *numbers: int, run: str = "run-1") -> None:
    """Let the backend lose some events of a run, and what it knew of its state."""
    lost = [e for e in marquez.events if e["run"]["runId"] == run and e["number"] in numbers]
    marquez.events = [event for event in marquez.events if event not in lost]
    if lost:
        marquez.runs.pop(run, None)


def test_nothing_is_missing_after_a_delivery(
    journal: Journal, marquez: ContractServer, delivered: Worker
) -> None:
    assert delivered.delivery.pending() == 0
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (12, ())


def test_what_the_backend_lost_is_named(journal: Journal, marquez: ContractServer, delivered: Worker) -> None:
    assert delivered.delivery.pending() == 0
    forget(marquez, 1, 3)
    found = reconcile(journal, EventReader(marquez.url))
    assert [(one.seq, one.run_id, one.event_type) for one in found.missing] == [
        (6, "run-1", "RUNNING"),
        (8, "run-1", "COMPLETE"),
    ]


@pytest.mark.parametrize("lost", [(0,), (1, 2), (3,), (0, 1, 2, 3)])
def test_after_a_repair_each_runs_state_is_as_after_the_first_delivery(
    journal: Journal, marquez: ContractServer, delivered: Worker, lost: tuple[int, ...]
) -> None:
    before = dict(marquez.runs)
    forget(marquez, *lost)
    repair(journal, reconcile(journal, EventReader(marquez.url)).missing)
    delivered.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()
    assert marquez.runs == before
    assert delivered.delivery.pending() == 0


def test_a_summary_stands_for_the_events_in_it_and_is_repaired_as_they_would_be(
    journal: Journal, marquez: ContractServer, new_worker: type[Worker], keep: Keep
) -> None:
    for number in range(4):
        facets = {"waybill_deltaFile": {"did": f"f{number}", "dataSource": "orders"}}
        keep(f"f{number}", number, eventType="COMPLETE", run={"runId": f"f{number}", "facets": facets})
    journal.mark(b"flush")
    worker = new_worker(journal, marquez.url, detail="summary")
    worker.run()
    assert len(marquez.stored) == 1
    before, run_id = dict(marquez.runs), marquez.stored[0]["run"]["runId"]
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())
    marquez.events.clear()
    marquez.runs.clear()
    (missing,) = reconcile(journal, EventReader(marquez.url)).missing
    assert missing.run_id == run_id
    repair(journal, [missing])
    worker.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()
    assert marquez.runs == before
    assert marquez.stored[0] == marquez.stored[1]


def test_what_is_set_aside_was_not_delivered_and_is_not_missing(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    _, poison, _ = (keep("run", at, eventTime=MOMENT.format(at, 0)) for at in range(3))
    journal.poison.set_aside("marquez", poison, "a test")
    worker.run()
    assert len(marquez.stored) == 2
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (2, ())


def test_what_is_new_is_compared_once_and_sent_again_where_it_is_missing(
    journal: Journal, marquez: ContractServer, delivered: Worker, keep: Keep
) -> None:
    before = dict(marquez.runs)
    forget(marquez, 1, 3)
    reader = EventReader(marquez.url)
    found = list(reconcile_new(journal, reader, entries_at_once=5))
    assert [(one.compared, len(one.missing)) for one in found] == [(5, 0), (5, 2), (2, 0)]
    delivered.run()
    assert marquez.runs == before
    assert reconcile(journal, reader).missing == ()
    assert list(reconcile_new(journal, reader)) == []
    marquez.refuse()
    keep("run-9")
    assert list(reconcile_new(journal, reader)) == [], "what waits is not asked for"


def test_a_second_repair_finds_nothing_to_do(
    journal: Journal, marquez: ContractServer, delivered: Worker
) -> None:
    forget(marquez, 2)
    repair(journal, reconcile(journal, EventReader(marquez.url)).missing)
    delivered.run()
    sent = len(marquez.received)
    repair(journal, reconcile(journal, EventReader(marquez.url)).missing)
    delivered.run()
    assert len(marquez.received) == sent


def test_dead_letters_and_what_still_waits_are_not_missing(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("refused", producer=...)
    keep("taken")
    worker.run()
    keep("waiting")
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())


def test_events_that_marquez_does_not_give_back_are_not_asked_for(
    journal: Journal, marquez: ContractServer, worker: Worker, event_of: Callable[..., bytes], keep: Keep
) -> None:
    schema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
    journal.append(Kind.OPENLINEAGE, event_of("", run=..., eventType=..., schemaURL=schema))
    journal.mark(b"flush")
    keep("run")
    worker.run()
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (1, ())


def test_only_what_was_accepted_since_then_is_compared(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants_ms = [1_000, 2_000, 3_000]
    for number, instant_ms in enumerate(instants_ms):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda ms=instant_ms: ms * 1_000_000)
            keep("run", number)
    worker.run()
    reader = EventReader(marquez.url)
    for since_ms, compared in ((0, 3), (1_000, 3), (1_001, 2), (2_000, 2), (3_000, 1), (3_001, 0)):
        assert reconcile(journal, reader, since_ms=since_ms).compared == compared


def test_events_that_share_an_instant_are_told_apart(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    for number in range(20):
        keep(f"run-{number}", eventTime=MOMENT.format(number // 8, 0))
    worker.run()
    found = reconcile(journal, EventReader(marquez.url))
    assert (found.compared, found.missing) == (20, ())
    forget(marquez, 0, run="run-9")
    found = reconcile(journal, EventReader(marquez.url))
    assert [one.run_id for one in found.missing] == ["run-9"]


def test_an_event_beyond_what_marquez_shows_by_default_is_found(
    journal: Journal, marquez: ContractServer, worker: Worker, keep: Keep
) -> None:
    keep("run", eventTime="2031-01-01T00:00:00Z")
    worker.run()
    assert reconcile(journal, EventReader(marquez.url)).missing == ()


@pytest.mark.parametrize("fault", ["404", "401", "page"])
def test_a_backend_that_cannot_be_read_is_one_sentence(
    journal: Journal, marquez: ContractServer, delivered: Worker, fault: str
) -> None:
    assert delivered.delivery.pending() == 0
    marquez.fault = fault
    with pytest.raises(MarquezReadError, match="http://127"):
        reconcile(journal, EventReader(marquez.url))


def test_nothing_is_missing_of_what_was_just_sent(
    journal: Journal, url: str, new_worker: type[Worker], keep: Keep
) -> None:
    moment = datetime.now(UTC)
    for run in (str(uuid.uuid4()) for _ in range(3)):
        for number, kind in enumerate(("START", "RUNNING", "COMPLETE")):
            # Those of one place share an instant.
            when = moment + timedelta(milliseconds=number)
            keep(run, number, eventType=kind, eventTime=when.isoformat(timespec="microseconds"))
    new_worker(journal, url, connect_timeout_s=5.0, answer_timeout_s=60.0).run()
    found = reconcile(journal, EventReader(url))
    assert (found.compared, found.missing) == (9, ())


def test_only_a_marquez_can_be_asked(home: Path) -> None:
    hub = {"backend": "datahub", "endpoint": "http://hub:8080"}
    second = {"backend": "marquez", "name": "second", "endpoint": "http://second:5000"}
    settings = Settings.load({"home": home, "backends": [hub, second]}, env={})
    open_reader(settings, "second").close()
    for name in ("marquez", "datahub", "nobody"):
        with pytest.raises(MarquezReadError, match="is no Marquez"):
            open_reader(settings, name)
