"""A key that a backend refuses: delivery stops, says what to correct, and goes on with another key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manual_clock import ManualClock

from waybill.marquez import Backend
from waybill.marquez.backend import Verdict
from waybill.marquez.delivery.circuit import DENIED_IN_A_ROW, DENIED_RETRY_S
from waybill.marquez.delivery.schedule import KEY_EVERY_S
from waybill.marquez.targets import open_deliveries
from waybill.transport import Settings
from waybill.transport.config import agree

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Site, Worker


def test_a_key_that_is_refused_is_said_and_stops_the_delivery(site: Site, worker: Worker) -> None:
    for number in range(20):
        site.keep(f"run-{number % 4}", number)
    site.marquez.fault = "401"
    step = worker.delivery.step()
    assert step.problem is not None
    assert step.problem.startswith(f"{site.marquez.url} wants a key and none is given, it answers 401 (")
    assert ("; set marquez_api_key: " in step.problem, step.to_correct) == (True, "marquez_api_key")
    worker.run(at_most_s=60)
    heard = len(site.marquez.received)
    assert heard <= DENIED_IN_A_ROW + 2, "those that were on their way, and two to be sure"
    assert worker.problem is not None
    assert "}), so nothing is sent any more; set marquez_api_key: " in worker.problem
    worker.run(at_most_s=DENIED_RETRY_S / 2 - 120)
    assert len(site.marquez.received) == heard
    worker.run(at_most_s=DENIED_RETRY_S)
    assert heard < len(site.marquez.received) <= heard + 3, "perhaps it was wrong over there"
    site.marquez.fault = None
    worker.run()
    assert len(site.marquez.stored) == 20
    assert [worker.problem, worker.delivery.pending()] == [None, 0]


def test_one_namespace_that_is_closed_to_us_stops_nothing(site: Site, worker: Worker) -> None:
    for number in range(20):
        site.keep("open", number)
        site.keep(f"closed-{number % 2}", number)
    site.marquez.fault_of = lambda body: "403" if b"closed-" in body else None
    worker.run(at_most_s=60)
    assert site.numbers("open") == list(range(20))


@pytest.fixture
def settings_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user's own file of settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "waybill" / "config.yaml"
    file.parent.mkdir(parents=True)
    return file


def test_a_rotated_key_is_taken_from_the_settings_file_without_a_restart(
    site: Site, settings_file: Path
) -> None:
    given = {
        "home": site.journal.home,
        "marquez_url": site.marquez.url,
        "marquez_api_key": "old",
        "runner": "none",
    }
    (delivery,) = open_deliveries(site.journal, agree(site.journal, Settings.load(given, env={})))
    settings_file.write_text("marquez_api_key: old\n", encoding="utf-8")
    site.marquez.api_key = "old"
    site.keep("run", 0)
    while delivery.pending():
        delivery.step()
    site.marquez.api_key = "new"
    site.keep("run", 1)
    while (step := delivery.step()).problem is None or step.applied:
        assert delivery.pending() == 1
    assert step.to_correct == "marquez_api_key"
    assert "old" not in str(step.problem)
    settings_file.write_text("marquez_api_key: [\n", encoding="utf-8")
    delivery.step()
    settings_file.write_text("marquez_api_key: new\n", encoding="utf-8")
    assert isinstance(site.journal.clock, ManualClock)
    deadline_s = site.journal.clock.monotonic_s() + 3 * KEY_EVERY_S
    while delivery.pending():
        assert site.journal.clock.monotonic_s() < deadline_s
        site.journal.clock.move(min(delivery.step().retry_s or 0.0, 0.2))
    assert [event["number"] for event in site.marquez.stored] == [0, 1]
    assert {r.headers["authorization"] for r in site.marquez.received} == {"Bearer old", "Bearer new"}
    delivery.close()


def test_a_file_s_older_key_takes_the_place_of_the_given_one_only_for_a_look(marquez: ContractServer) -> None:
    """The given one is the nearest: it is what is tried when all have been refused."""
    backend = Backend(marquez.url, "given", read_key=lambda: "older")
    marquez.api_key = "later"
    assert backend.deliver(b"{}").verdict is Verdict.DENIED
    assert backend.renewed()
    assert backend.deliver(b"{}").verdict is Verdict.DENIED
    assert not backend.renewed()
    backend.deliver(b"{}")
    tried = [received.headers["authorization"] for received in marquez.received]
    assert tried == ["Bearer given", "Bearer older", "Bearer given"]
    backend.close()
