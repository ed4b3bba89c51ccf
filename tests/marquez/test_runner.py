"""Delivery as the runner works it: found by its entry point, on the real clock, with the real flush."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delivering import event

from waybill.transport import Kind, Settings, flush
from waybill.transport.config import agree

if TYPE_CHECKING:
    from contract_server import ContractServer
    from delivering import Site


@pytest.fixture
def settings_for(home: Path) -> Callable[[ContractServer], Settings]:
    def settings_for(marquez: ContractServer) -> Settings:
        given = {"home": home, "marquez_url": marquez.url, "runner": "none"}
        return Settings.load(given, env={})

    return settings_for


def test_a_flush_says_that_marquez_is_down_and_a_later_one_delivers(
    site: Site, settings_for: Callable[..., Settings]
) -> None:
    site.journal.append_many((Kind.OPENLINEAGE, event("run", n), "") for n in range(10))
    site.marquez.refuse()
    settings = settings_for(site.marquez)
    started_s = time.monotonic()
    report = flush(settings, timeout_s=60)
    assert time.monotonic() - started_s < 30
    assert report.left["marquez"] == 10
    assert "does not answer: Connection refused" in report.problems["marquez"]
    site.marquez.start()
    assert flush(settings, timeout_s=60).problems == {}
    assert [event["number"] for event in site.marquez.stored] == list(range(10))


def test_a_flush_does_not_wait_for_an_event_that_marquez_cannot_digest(
    site: Site, settings_for: Callable[..., Settings]
) -> None:
    site.journal.append_many(
        (Kind.OPENLINEAGE, event(run, n), "") for run in ("ill", "well") for n in range(5)
    )
    site.marquez.fault_of = lambda body: "500" if b'"ill"' in body else None
    report = flush(settings_for(site.marquez), timeout_s=60)
    assert [event["run"]["runId"] for event in site.marquez.stored] == ["well"] * 5
    assert "answers 500 (" in report.problems["marquez"]


def test_of_two_processes_with_one_home_one_delivers_and_nothing_is_repeated(
    site: Site, home: Path, settings_for: Callable[..., Settings]
) -> None:
    agree(site.journal, settings_for(site.marquez))
    site.journal.append_many((Kind.OPENLINEAGE, event(f"run-{n % 5}", n), "") for n in range(60))
    command = [sys.executable, "-m", "waybill.transport", str(home)]
    runners = [subprocess.Popen(command) for _ in range(2)]
    try:
        deadline_s = time.monotonic() + 60
        while site.journal.cursor("marquez") < 60 and time.monotonic() < deadline_s:
            time.sleep(0.05)
    finally:
        for runner in runners:
            runner.terminate()
            assert runner.wait(30) == 0
    assert sorted(event["number"] for event in site.marquez.stored) == list(range(60))
