"""What an application's end leaves open, and what it ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import requests
from sayings import START_MS, event_of

from waybill.facets import EventType, RunEvent, decode_event
from waybill.spark.tracking.application import Application
from waybill.transport import Journal, Settings

WRITE = "01a1fec3-768d-7069-a2a1-b2454eb72dad"


@pytest.fixture
def application(tmp_path: Path) -> Application:
    given = {"home": tmp_path, "runner": "none", "system_name": "tests"}
    return Application(Settings.load(given, origin="tests", env={}), "orders")


def hear(application: Application, run: str, kind: str, output: str | None = None) -> None:
    body = event_of(run, kind, START_MS, output=output)
    url, headers = f"{application.url}/api/v1/lineage", {"Content-Type": "application/json"}
    requests.post(url, body, headers=headers, timeout=10).raise_for_status()


def ends_of_the_write(home: Path) -> list[EventType]:
    journal = Journal(home)
    events = [decode_event(entry.body) for entry in journal.read(0, limit=100)]
    journal.close()
    runs = [event for event in events if isinstance(event, RunEvent) and event.run.runId == WRITE]
    return [event.eventType for event in runs if event.eventType and event.eventType is not EventType.START]


def test_a_listener_that_tells_the_end_after_spark_has_stopped_has_told_all(
    application: Application, tmp_path: Path
) -> None:
    hear(application, application.run_id, "START")
    hear(application, WRITE, "START", "/out/a")
    late = threading.Timer(0.3, hear, (application, application.run_id, "COMPLETE"))
    late.start()
    application.stopped()
    application.close()
    late.join()
    assert ends_of_the_write(tmp_path) == [EventType.ABORT]


def test_a_write_stays_open_where_the_listener_never_tells_the_end(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.spark.tracking.application.TELLS_WITHIN_S", 0.0)
    hear(application, application.run_id, "START")
    hear(application, WRITE, "START", "/out/a")
    application.stopped()
    application.close()
    assert ends_of_the_write(tmp_path) == []
