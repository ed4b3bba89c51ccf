"""Clients in environments of their own, which `make test-ecosystem` makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.lineage import find
from waybill.transport import Journal, Settings, flush

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

ENVIRONMENTS = Path(__file__).parents[2] / ".venv/ecosystem"


def program_of(client: str, name: str) -> Path:
    """A program of a client's environment."""
    path = ENVIRONMENTS / client / "bin" / name
    if not path.exists():
        pytest.skip(f"{client} is not installed: make test-ecosystem")
    return path


def call(*command: str | Path, cwd: Path, **variables: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a client in a folder, with these variables and its own environment's programs first."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    environment["PATH"] = f"{Path(command[0]).parent}:{environment['PATH']}"
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )


def records_of(home: Path, root: Path) -> list[ProvenanceRecord]:
    """What is recorded once everything has been flushed."""
    given = {"home": home, "root": root, "provenance_enabled": True}
    report = flush(Settings.load(given, env={}, cwd=home.parent))
    assert (report.problems, report.poison) == ({}, {})
    return find(root)


def events_of(home: Path) -> list[dict[str, Any]]:
    """The events that a home has kept."""
    return [json.loads(entry.body) for entry in Journal(home).read(0, limit=10_000)]


def run_package(client: str, package: Path, home: Path, **variables: str | Path) -> dict[str, str]:
    """Run a package around a client that knows nothing of OpenLineage but what the package's run tells it.

    Returns:
        Of each job, all of which have run with success, the job of its parent; the package's, which is in
        the namespace `shop`, has none.
    """
    waybill = program_of(client, "waybill")
    assert not [name for name in os.environ if name.startswith(("OPENLINEAGE", "AIRFLOW__OPENLINEAGE"))]
    done = call(waybill, "run", package, "--home", home, cwd=home.parent, WAYBILL_RUNNER="none", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    events = events_of(home)
    names = {event["run"]["runId"]: event["job"]["name"] for event in events}
    ended = {event["run"]["runId"] for event in events if event["eventType"] == "COMPLETE"}
    assert ended == names.keys(), done.stdout + done.stderr
    below = [event for event in events if event["job"]["namespace"] != "shop"]
    told = {(one["job"]["name"], names[one["run"]["facets"]["parent"]["run"]["runId"]]) for one in below}
    assert len(told) == len(names) - 1
    return dict(told)


def started_by(job: str, home: Path) -> list[str]:
    """What `waybill lineage` says that a job starts."""
    waybill = Path(sys.executable).parent / "waybill"
    done = call(waybill, "lineage", job, "--home", home, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nStarts:\n")[2].partition("\n\n")[0].split()
