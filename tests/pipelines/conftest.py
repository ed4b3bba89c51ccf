"""A package to be run, and the home that its runs are kept in."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from events import events_in

from waybill.cli.app import main

Events = Callable[[], list[dict[str, Any]]]
RunPackage = Callable[..., "subprocess.CompletedProcess[str]"]
WriteManifest = Callable[..., Path]


@pytest.fixture(scope="session")
def script() -> Path:
    """The installed ``waybill``."""
    return Path(sys.executable).parent / "waybill"


@pytest.fixture
def write_manifest(tmp_path: Path) -> WriteManifest:
    """Write the manifest of a package whose program is a shell's text; returns its folder."""

    def write(
        shell: str = "true",
        *,
        name: str = "nightly",
        folder: str = "package",
        metadata: dict[str, object] | None = None,
        runtime: dict[str, object] | None = None,
        **more: object,
    ) -> Path:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        run_by = {"command": ["sh", "-c", shell], **(runtime or {})}
        about = {"name": name, **(metadata or {})}
        manifest = {"metadata": about, "runtime": run_by, **more}
        (place / "dk.yaml").write_text(json.dumps(manifest))  # which is YAML, too
        return place

    return write


@pytest.fixture
def run_package(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunPackage:
    """Run a package in this process, with its events kept in the home."""

    def run(package: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["waybill", "run", str(package), "--home", str(home), *arguments]
        monkeypatch.setattr(sys, "argv", words)
        capfd.readouterr()
        with monkeypatch.context() as here, pytest.raises(SystemExit) as ended:
            for name, value in {"WAYBILL_RUNNER": "none", **environment}.items():
                here.setenv(name, value)
            main()
        printed = capfd.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def events(home: Path) -> Events:
    """The events that the home has kept, in their order."""

    return functools.partial(events_in, home)
