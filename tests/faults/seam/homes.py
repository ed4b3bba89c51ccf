"""The homes for fault tests."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from waybill.transport import Settings, locks


def settings_in(folder: Path, **given: object) -> Settings:
    """The settings of a home and a root below a folder, with the layout on and no automatic runner."""
    usual = {
        "home": folder / "home",
        "root": folder / "root",
        "system_name": "tests",
        "provenance_enabled": True,
        "runner": "none",
    }
    return Settings.load({**usual, **given}, origin="tests", env={}, cwd=folder.parent)


def kill_runner(home: Path) -> None:
    """End a home's runner, if it has one, as `kill -9` does."""
    pid = locks.holder(home) if (home / "runner.lock").exists() else None
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
