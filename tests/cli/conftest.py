"""The command as a user has it: the installed script, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def script() -> Path:
    """The installed ``waybill``."""
    return Path(sys.executable).parent / "waybill"


@pytest.fixture
def waybill(tmp_path: Path, script: Path) -> Run:
    """Run ``waybill`` with these arguments in an empty folder."""
    folder = tmp_path / "working folder"
    folder.mkdir()

    def run(*arguments: str | Path, cwd: Path = folder) -> subprocess.CompletedProcess[str]:
        command = [str(script), *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=120)

    return run
