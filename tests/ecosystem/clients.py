"""Clients in environments of their own, which `make test-ecosystem` makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.lineage import find
from waybill.transport import Settings, flush

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
