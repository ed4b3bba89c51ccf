"""A package's run is told truly on a full disk, after SIGKILL, and if there is much on stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from seam.disks import fill
from seam.homes import settings_in

from waybill.facets import FinalState
from waybill.lineage import Lineage
from waybill.transport import Journal, flush

if TYPE_CHECKING:
    from subprocess import CompletedProcess

pytestmark = pytest.mark.faults

WAYBILL = Path(sys.executable).parent / "waybill"
STDERR_BYTES = 200_000_000
RSS_MAX_BYTES = 120 * 2**20


def package(folder: Path, shell: str) -> Path:
    folder.mkdir()
    manifest = {"metadata": {"name": "nightly"}, "runtime": {"command": ["sh", "-c", shell]}}
    (folder / "dk.yaml").write_text(json.dumps(manifest))
    return folder


def run(folder: Path, home: Path, **options: object) -> CompletedProcess[str]:
    environment = {**os.environ, "WAYBILL_RUNNER": "none"}
    command = [str(WAYBILL), "run", str(folder), "--home", str(home)]
    return subprocess.run(command, env=environment, check=False, text=True, timeout=120, **options)  # type: ignore[call-overload, no-any-return]


def test_on_a_full_disk_the_program_runs_and_what_is_lost_is_said(disk: Path, tmp_path: Path) -> None:
    home = disk / "home"
    Journal(home).close()
    work = package(tmp_path / "package", f"head -c 999999999 /dev/zero > {disk}/more; touch {tmp_path}/ran")
    fill(disk)
    done = run(work, home, capture_output=True)
    assert (tmp_path / "ran").exists()
    assert done.returncode == 0
    (disk / "more").unlink()
    journal = Journal(home, to_read=True)
    kept = [entry.run_event.eventType for entry in journal.read(0, limit=10) if entry.run_event]
    journal.close()
    lost = "1 events of the run are not kept" in done.stderr
    assert kept == (["START"] if lost else ["START", "COMPLETE"])
    assert lost, done.stderr


def test_a_run_whose_watcher_is_killed_is_ended_by_inference(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    work = package(tmp_path / "package", f"touch {tmp_path}/up; exec sleep 60")
    command = [str(WAYBILL), "run", str(work), "--home", str(settings.home)]
    with subprocess.Popen(command, env={**os.environ, "WAYBILL_RUNNER": "none"}) as process:
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    flush(settings)
    [record] = Lineage.open(settings.home).find()
    assert record.final_state is FinalState.CANCELLED
    assert "inferred" in (record.annotations or {}).get("waybill.evidence", "")


def test_much_on_stderr_takes_little_memory_and_all_of_it_is_passed_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    peak = "grep VmHWM /proc/$PPID/status > peak"
    shell = f"head -c {STDERR_BYTES} /dev/zero >&2; echo last >&2; {peak}; exit 1"
    work = package(tmp_path / "package", shell)
    with (tmp_path / "err").open("wb") as file:
        assert run(work, home, stderr=file).returncode == 1
    assert (tmp_path / "err").stat().st_size > STDERR_BYTES
    assert int((work / "peak").read_text().split()[1]) * 1024 < RSS_MAX_BYTES
    journal = Journal(home, to_read=True)
    end = json.loads(journal.read(0, limit=10)[-1].body)
    journal.close()
    message = end["run"]["facets"]["errorMessage"]["message"]
    assert message.endswith("last")
    assert len(message) < 100_000
