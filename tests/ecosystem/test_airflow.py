"""Airflow's OpenLineage provider, by configuration alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from clients import call, program_of

from waybill.transport import Journal, Settings, locks
from waybill.transport.home import Home

pytestmark = pytest.mark.ecosystem

GUIDE = Path(__file__).parents[2] / "docs" / "airflow.md"
DAGS = Path(__file__).with_name("dags")


def run_dag(home: Path, root: Path, folder: Path) -> str:
    """Run the DAG once, by the guide's transport, as `airflow dags test` does; returns what was logged."""
    (written,) = re.findall(r"^transport = (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    transport = {**json.loads(written), "home": home, "root": root, "runner": "none"}
    variables: dict[str, str | Path] = {
        "AIRFLOW_HOME": folder,
        "AIRFLOW__CORE__DAGS_FOLDER": DAGS,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport, default=str),
    }
    airflow = program_of("airflow", "airflow")
    folder.mkdir()
    made = call(airflow, "db", "migrate", cwd=folder, **variables)
    assert made.returncode == 0, made.stderr
    done = call(airflow, "dags", "test", "shop", "2026-01-01", cwd=folder, **variables)
    return done.stdout + done.stderr


def events_of(home: Path) -> list[dict[str, Any]]:
    return [json.loads(entry.body) for entry in Journal(home).read(0, limit=10_000)]


def test_all_events_of_mapped_retried_and_failing_tasks_are_kept_though_the_home_agreed_on_another_root(
    home: Path, root: Path, tmp_path: Path
) -> None:
    agreed = {"home": home, "root": root, "runner": "none"}
    Home.open(Settings.load(agreed, env={}, cwd=tmp_path)).close()
    lease = locks.take(home)
    assert lease
    said = run_dag(home, tmp_path / "another", tmp_path / "airflow")
    lease.release()
    events = events_of(home)
    told = Counter((event["job"]["name"], event["eventType"]) for event in events)
    assert told == {
        # That a DAG starts is told by the scheduler, which there is none of here.
        ("shop", "FAIL"): 1,
        ("shop.orders", "START"): 1,
        ("shop.orders", "COMPLETE"): 1,
        ("shop.load", "START"): 40,
        ("shop.load", "COMPLETE"): 40,
        ("shop.flaky", "START"): 2,
        ("shop.flaky", "FAIL"): 1,
        ("shop.flaky", "COMPLETE"): 1,
        ("shop.broken", "START"): 1,
        ("shop.broken", "FAIL"): 1,
    }, said[-5000:]
    assert len({event["run"]["runId"] for event in events if event["job"]["name"] == "shop.load"}) == 40
    assert "waybill settings apply" in said
