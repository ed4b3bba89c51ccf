"""A machine that has never seen Waybill: the wheel, a fresh environment, and the page of the quick start."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pasting import paste

pytestmark = pytest.mark.ecosystem

REPOSITORY = Path(__file__).parents[2]
FIVE_MINUTES_S = 300.0


def run(*command: str | Path) -> None:
    """Run a command that has to succeed."""
    done = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """What a machine without the checkout gets."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "dist")
    (made,) = (tmp_path / "dist").glob("*.whl")
    return made


def test_the_quick_start_leads_to_an_error_its_reason_and_its_proof_within_five_minutes(
    wheel: Path, tmp_path: Path
) -> None:
    began_s = time.monotonic()
    fresh, reader = tmp_path / "fresh", tmp_path / "reader"
    run(sys.executable, "-m", "uv", "venv", "--no-python-downloads", "--python", sys.executable, fresh)
    run(sys.executable, "-m", "uv", "pip", "install", "--python", fresh / "bin" / "python", wheel)
    reader.mkdir()
    page = (REPOSITORY / "docs" / "quickstart.md").read_text(encoding="utf-8")
    pasted = {one.command: one for one in paste(page, reader, programs=fresh / "bin")}
    took_s = time.monotonic() - began_s
    assert [one.printed for one in pasted.values() if not one.is_as_shown] == []
    assert "errorCause=ValueError" in pasted["waybill find --state ERROR"].printed
    (proof,) = (one for command, one in pasted.items() if command.startswith("waybill explain"))
    assert proof.code == 0
    assert ": as folded" in proof.printed
    assert pasted["waybill verify"].code == 0
    assert took_s < FIVE_MINUTES_S
