"""`waybill flush`."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport import Settings, Tracker
from waybill.transport.files import Files

if TYPE_CHECKING:
    import pytest
    from conftest import Run


def track(settings: Settings, filename: str = "orders.csv") -> None:
    with Tracker(settings=settings) as tracker, tracker.file(filename, data_source="sftp-in") as file:
        file.egress("warehouse")


def test_a_full_disk_is_told_with_its_folder_and_that_nothing_is_lost(
    called: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    track(settings)

    def refuse(_: Files, path: Path, __: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Files, "write", refuse)
    done = called("flush", "--home", settings.home)
    assert done.returncode == 1
    (line, *_) = [one for one in done.stderr.splitlines() if "layout" in one]
    assert f"the layout below {settings.root} cannot be written (the disk is full); free space there" in line
    assert line.endswith("nothing that was acknowledged is lost")
    assert "Errno" not in done.stderr


def test_verbose_shows_the_runner_s_log_and_changes_no_result(called: Run, settings: Settings) -> None:
    track(settings)
    done = called("flush", "--home", settings.home, "--verbose", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["files"]
