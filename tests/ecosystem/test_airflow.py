"""Airflow's OpenLineage provider, by configuration alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from clients import call, events_of, program_of, run_package, started_by

from waybill.transport import Settings, locks
from waybill.transport.home import Home

pytestmark = pytest.mark.ecosystem

GUIDE = Path(__file__).parents[2] / "docs" / "airflow.md"
DAGS = Path(__file__).with_name("dags")


@pytest.fixture
def airflow(tmp_path: Path) -> dict[str, str | Path]:
    """The variables of an Airflow with a database."""
    folder = tmp_path / "airflow"
    folder.mkdir()
    variables: dict[str, str | Path] = {
        "AIRFLOW_HOME": folder,
        "AIRFLOW__CORE__DAGS_FOLDER": DAGS,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    made = call(program_of("airflow", "airflow"), "db", "migrate", cwd=folder, **variables)
    assert made.returncode == 0, made.stderr
    return variables


def run_dag(home: Path, root: Path, airflow: dict[str, str | Path]) -> str:
    """Run the DAG once, by the guide's transport, as `airflow dags test` does; returns what was logged."""
    (written,) = re.findall(r"^transport = (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    transport = {**json.loads(written), "home": home, "root": root, "runner": "none"}
    told = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport, default=str)}
    test = ("dags", "test", "shop", "2026-01-01")
    done = call(program_of("airflow", "airflow"), *test, cwd=home.parent, **airflow, **told)
    return done.stdout + done.stderr


def test_all_events_of_mapped_retried_and_failing_tasks_are_kept_though_the_home_agreed_on_another_root(
    home: Path, root: Path, tmp_path: Path, airflow: dict[str, str | Path]
) -> None:
    agreed = {"home": home, "root": root, "runner": "none"}
    Home.open(Settings.load(agreed, env={}, cwd=tmp_path)).close()
    lease = locks.take(home)
    assert lease
    said = run_dag(home, tmp_path / "another", airflow)
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


def test_the_runs_of_a_dag_in_a_package_are_below_its_run(
    home: Path, tmp_path: Path, airflow: dict[str, str | Path]
) -> None:
    program = ["airflow", "dags", "test", "nightly", "2026-01-01"]
    manifest = {"metadata": {"name": "night", "namespace": "shop"}, "runtime": {"command": program}}
    (tmp_path / "dk.yaml").write_text(json.dumps(manifest))  # which is YAML, too
    above = run_package("airflow", tmp_path, home, **airflow)
    assert above == {"nightly": "night", "nightly.orders": "nightly", "nightly.total": "nightly"}
    assert started_by("night", home) == ["default/nightly"]
