"""The demo's folder, which is emptied before each demo and never holds anything else."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from waybill.transport import WaybillError, locks

_MARKER: Final = ".waybill-demo"
_ENDS_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.05


class DemoFolderError(WaybillError):
    """The demo cannot use this folder."""


def prepare(home: Path, *, keep: bool) -> None:
    """Create the demo's folder, or empty an earlier demo's unless `keep` is true.

    Raises:
        DemoFolderError: the demo cannot use this folder.
    """
    marker = home / _MARKER
    if home.exists() and not home.is_dir():
        raise DemoFolderError(f"{home} is not a folder; give another one with --home")
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()) and not marker.is_file():
        raise DemoFolderError(
            f"{home} holds files that are not from an earlier demo; give another folder with --home"
        )
    # Create the marker first, so that a demo that is interrupted here can be started again.
    marker.touch()
    if not keep:
        _end_runner(home)
        for left in home.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            elif left != marker:
                left.unlink()


def _end_runner(home: Path) -> None:
    """End an earlier demo's runner before its journal is deleted."""
    deadline_s = time.monotonic() + _ENDS_WITHIN_S
    while locks.is_held(home):
        runner = locks.holder(home)
        if time.monotonic() > deadline_s:
            raise DemoFolderError(
                f"an earlier demo still works in {home} (process {runner}); end it, or give another --home"
            )
        if runner is not None:
            os.kill(runner, signal.SIGTERM)
        time.sleep(_POLL_S)
