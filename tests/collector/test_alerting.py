"""What a level or a dataset in breach tells its owners: by a command or a webhook, once, and its end once."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from events import members

from waybill.collector.endpoints import Readings
from waybill.collector.server.measuring import record_levels
from waybill.lineage.levels import Served, read_plan
from waybill.pipelines import YamlFileError
from waybill.transport import Journal, Kind, Settings

SERVED = Served("boot", 0, 0, (), {})
TIERS = "tiers: [{datasets: lake/*, tier: critical}, {datasets: '*', tier: optional}]\n"
ONLY_FRESHNESS = (
    "objectives: {completeness: {}, missing_provenance: {}, ingestion_lag: null, error_rate: null}\n"
)
NOTES = "import sys; open('told', 'ab').write(sys.stdin.buffer.read() + b'\\n')"


class Kept:
    """A home with a dataset that nobody has written for a day, and what was told."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.home.mkdir(mode=0o700, exist_ok=True)
        self.wrote(timedelta(days=1))

    def wrote(self, ago: timedelta) -> None:
        owned = {"ownership": {"owners": [{"name": "ada"}]}}
        report = {"namespace": "lake", "name": "orders", "facets": owned}
        bob = {"ownership": {"owners": [{"name": "bob"}]}}
        at = (datetime.now(UTC) - ago).isoformat()
        told = [
            members(f"load {at}", at=at, job="etl/load", inputs=["ftp/raw"], outputs=[report]),
            members(f"mail {at}", at=at, job={"namespace": "etl", "name": "mail", "facets": bob},
                    inputs=["lake/orders"]),
        ]  # fmt: skip
        with closing(Journal(self.settings.home)) as journal:
            journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "tests") for one in told)

    def plan(self, on_alert: str, more: str = "") -> None:
        text = f"{TIERS}{ONLY_FRESHNESS}on_alert: {on_alert}\n{more}"
        (self.settings.home / "slis.yaml").write_text(text, encoding="utf-8")

    def record(self) -> list[dict[str, Any]]:
        """Record the levels as a collector does that has just begun; returns all that was told so far."""
        with closing(Journal(self.settings.home)) as journal:
            readings = Readings(journal, self.settings)
            record_levels(readings, journal, self.settings, SERVED)
            readings.close()
        told = self.settings.home / "told"
        return [json.loads(line) for line in told.read_bytes().splitlines()] if told.exists() else []


@pytest.fixture
def kept(settings: Settings) -> Kept:
    return Kept(settings)


def command(code: str) -> str:
    return json.dumps({"command": [sys.executable, "-c", code], "timeout": "1s"})


def test_a_breach_is_told_once_and_its_end_once_over_restarts(kept: Kept) -> None:
    kept.plan(command(NOTES))
    (alert,) = kept.record()
    (dataset,) = alert.pop("datasets")
    assert alert.pop("value") == pytest.approx(86_400, abs=60)
    assert alert.pop("at_ms") == dataset.pop("since_ms")
    assert alert == {
        "status": "breached", "sli": "freshness", "tier": "critical", "objective": 3_600, "unit": "seconds",
        "owners": ["ada", "bob"],
    }  # fmt: skip
    assert dataset.pop("value") == pytest.approx(86_400, abs=60)
    assert dataset == {
        "namespace": "lake", "name": "orders", "owner": "ada", "objective": 3_600,
        "consumers": [{"kind": "job", "namespace": "etl", "name": "mail", "owners": ["bob"]}],
    }  # fmt: skip
    assert len(kept.record()) == 1
    kept.wrote(timedelta())
    _, over = kept.record()
    assert (over["status"], over["datasets"][0]["name"]) == ("over", "orders")
    assert len(kept.record()) == 2


def test_who_cannot_be_told_is_told_the_next_time(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    kept.plan(command("import sys; sys.exit('no such team')"))
    assert kept.record() == []
    assert "ended with 1: no such team" in caplog.text
    kept.plan(json.dumps({"command": ["/nowhere/at/all"]}))
    assert kept.record() == []
    assert "/nowhere/at/all cannot be run" in caplog.text
    kept.plan(command(NOTES))
    assert [one["status"] for one in kept.record()] == ["breached"]


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    late = "import time; time.sleep(1.5); open('late', 'w')"
    kept.plan(command(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {late!r}])"))
    began_s = time.monotonic()
    assert kept.record() == []
    assert "took longer than 1 s, and was ended" in caplog.text
    time.sleep(max(began_s + 3 - time.monotonic(), 0))
    assert not (kept.settings.home / "late").exists()


def test_within_a_window_about_it_neither_its_begin_nor_its_end_is_told(kept: Kept) -> None:
    now = datetime.now(UTC)
    begins, ends = (now - timedelta(hours=1)).isoformat(), (now + timedelta(hours=1)).isoformat()
    window = f"maintenance: [{{begins: {begins}, ends: {ends}, datasets: ['lake/*']}}]\n"
    kept.plan(command(NOTES), window)
    assert kept.record() == []
    kept.plan(command(NOTES), window.replace("lake/", "pond/"))
    assert [one["status"] for one in kept.record()] == ["breached"]
    kept.wrote(timedelta())
    kept.plan(command(NOTES), window)
    assert [one["status"] for one in kept.record()] == ["breached"]
    kept.plan(command(NOTES))
    assert [one["status"] for one in kept.record()] == ["breached", "over"]


@pytest.fixture
def hook() -> Iterator[tuple[str, list[bytes], list[int]]]:
    """A webhook: its address, what it got, and what it answers in turn."""
    got: list[bytes] = []
    answers: list[int] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answers.pop(0))
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got, answers
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_it_until_it_takes_it(kept: Kept, hook: tuple[str, list[bytes], list[int]]) -> None:
    url, got, answers = hook
    answers += [500, 307, 204]
    kept.plan(json.dumps({"webhook": url}))
    for _ in range(4):
        kept.record()
    assert answers == []
    assert [json.loads(body)["status"] for body in got] == ["breached"] * 3


@pytest.mark.parametrize("given", ["{}", '{command: ["x"], webhook: "http://x"}'])
def test_one_way_has_to_be_given(kept: Kept, given: str) -> None:
    kept.plan(given)
    with pytest.raises(YamlFileError, match="give one"):
        read_plan(kept.settings)


def test_nothing_is_told_or_remembered_without_a_way(kept: Kept) -> None:
    (kept.settings.home / "slis.yaml").write_text(TIERS + ONLY_FRESHNESS, encoding="utf-8")
    assert kept.record() == []
    kept.plan(command(NOTES))
    assert len(kept.record()) == 1


def test_a_relative_command_begins_at_the_folder_of_the_file(kept: Kept) -> None:
    script = kept.settings.home / "tell"
    script.write_text("#!/bin/sh\ncat >>told\n", encoding="utf-8")
    script.chmod(0o700)
    kept.plan(json.dumps({"command": ["./tell"]}))
    assert len(kept.record()) == 1
    assert Path("told").exists() is False
