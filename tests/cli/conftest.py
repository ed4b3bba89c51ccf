"""The command as a user runs it: the installed script, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from calling import call

from waybill.transport import Journal, Settings, Tracker

HOUR_S = 3_600
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def script() -> Path:
    """The installed ``waybill``."""
    return Path(sys.executable).parent / "waybill"


class Kept(NamedTuple):
    """A flushed home, and the files in it."""

    home: Path
    year: str
    first: str
    second: str


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory, script: Path) -> Kept:
    """One file split in two, all in one hour: the first fans out, the second fails."""
    while True:
        hour = time.time() // HOUR_S
        made = _make_kept(tmp_path_factory.mktemp("kept") / "home", script)
        if time.time() // HOUR_S == hour:
            return made


def _make_kept(home: Path, script: Path) -> Kept:
    given = {
        "home": home,
        "system_name": "tests",
        "provenance_enabled": True,
        "provenance_annotations_allowed": "customer",
        "runner": "none",
    }
    with (
        Tracker(settings=Settings.load(given, origin="tests", env={}, cwd=home.parent)) as tracker,
        tracker.file("year.csv", data_source="sftp-in", annotations={"customer": "acme=1"}) as year,
    ):
        first, second = year.split(["first.csv", "second.csv"], data_source="halves")
        with first, first.transform("enrich"):
            first.egress("lake")
            first.egress("report")
        with second:
            second.error("no header\nin the file")
    done = subprocess.run(
        [script, "flush", "--home", home, "--json"], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"]
    return Kept(home, year.did, first.did, second.did)


@pytest.fixture
def made_home(home: Path) -> None:
    """Make the home, with nothing in it yet."""
    Journal(home).close()


@pytest.fixture
def waybill(tmp_path: Path, script: Path) -> Run:
    """Run ``waybill`` with these arguments in an empty folder."""
    folder = tmp_path / "working folder"
    folder.mkdir()

    def run(*arguments: str | Path, cwd: Path = folder) -> subprocess.CompletedProcess[str]:
        command = [str(script), *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=120)

    return run


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``waybill`` with these arguments in this process."""

    def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        if cwd is not None:
            monkeypatch.chdir(cwd)
        return call(*arguments)

    return run
