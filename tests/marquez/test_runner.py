"""Delivery as the runner works it: found by its entry point, on the real clock, with the real flush."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delivering import event

from waybill.transport import Kind, Settings, flush

if TYPE_CHECKING:
    from delivering import Site


def settings_for(site: Site) -> Settings:
    given = {"home": site.journal.home, "marquez_url": site.marquez.url, "runner": "none"}
    return Settings.load(given, env={})


def test_a_flush_says_that_marquez_is_down_and_a_later_one_delivers(site: Site) -> None:
    site.journal.append_many((Kind.OPENLINEAGE, event("run", n), "") for n in range(10))
    site.marquez.refuse()
    settings = settings_for(site)
    started_s = time.monotonic()
    report = flush(settings, timeout_s=60)
    assert time.monotonic() - started_s < 30
    assert report.left["marquez"] == 10
    assert "does not answer: Connection refused" in report.problems["marquez"]
    site.marquez.start()
    assert flush(settings, timeout_s=60).problems == {}
    assert [event["number"] for event in site.marquez.stored] == list(range(10))


def test_a_flush_does_not_wait_for_an_event_that_marquez_cannot_digest(site: Site) -> None:
    site.journal.append_many(
        (Kind.OPENLINEAGE, event(run, n), "") for run in ("ill", "well") for n in range(5)
    )
    site.marquez.fault_of = lambda body: "500" if b'"ill"' in body else None
    report = flush(settings_for(site), timeout_s=60)
    assert [event["run"]["runId"] for event in site.marquez.stored] == ["well"] * 5
    assert "answers 500 (" in report.problems["marquez"]
