"""`waybill serve` compares once a day what was delivered with what Marquez has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from served import event
from waiting import wait_until

from waybill.collector.server.reconciling import DAY_MS, Reconciling
from waybill.marquez import Backend, Delivery
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from conftest import Start
    from contract_server import ContractServer


@pytest.fixture
def journal(home: Path, marquez: ContractServer) -> Iterator[Journal]:
    """A journal with a run that Marquez was told of and has lost."""
    journal = Journal(home)
    journal.append(Kind.OPENLINEAGE, event())
    work(journal, marquez)
    marquez.events.clear()
    yield journal
    journal.close()


def work(journal: Journal, marquez: ContractServer) -> None:
    delivery = Delivery(journal, Backend(marquez.url))
    while delivery.step().applied or delivery.pending():
        pass
    delivery.close()


def test_what_marquez_lost_is_sent_again(
    start: Start, home: Path, journal: Journal, marquez: ContractServer
) -> None:
    assert journal.cursor("marquez") == 1
    start("--marquez-url", marquez.url, home=home)
    wait_until(lambda: len(marquez.events) == 1, 60)


def test_it_is_compared_once_a_day(home: Path, journal: Journal, marquez: ContractServer) -> None:
    settings = Settings.load({"home": home, "marquez_url": marquez.url}, env={})
    now_ms = time.time_ns() // 1_000_000
    reconciling = Reconciling(journal, settings)
    for passed_ms in (0, 1, DAY_MS - 1):
        reconciling.compare_if_due("marquez", now_ms + passed_ms, lambda: False)
    work(journal, marquez)
    assert len(marquez.events) == 1
    journal.append(Kind.OPENLINEAGE, event(eventType="COMPLETE"))
    work(journal, marquez)
    marquez.events.clear()
    Reconciling(journal, settings).compare_if_due("marquez", now_ms + DAY_MS, lambda: False)
    work(journal, marquez)
    assert len(marquez.events) == 1, "what was compared the day before is not compared again"


def test_a_marquez_that_is_down_is_asked_again_an_hour_later(
    home: Path, journal: Journal, marquez: ContractServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings.load({"home": home, "marquez_url": marquez.url}, env={})
    now_ms = time.time_ns() // 1_000_000
    reconciling = Reconciling(journal, settings)
    marquez.fault = "403"
    for minute in range(60):
        reconciling.compare_if_due("marquez", now_ms + minute * 60_000, lambda: False)
    assert len(caplog.records) == 1
    marquez.fault = None
    reconciling.compare_if_due("marquez", now_ms + 3_600_000, lambda: False)
    work(journal, marquez)
    assert len(marquez.events) == 1
