"""A collector whose disk is nearly full, where this user may mount one."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from served import event

from waybill.collector.endpoints.health import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Start


PATH = "/api/v1/lineage"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only root may mount a disk")
    command = [mount, "-t", "tmpfs", "-o", "size=24m", "waybill-tests", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run([umount, "--lazy", place], check=True)


def fill(disk: Path, *, but_bytes: int) -> Path:
    """Leave no more room than this, and return the file that takes it."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - but_bytes))
    return filler


def large_event() -> bytes:
    """An event that is as large as a batch, and does not get smaller when it is packed."""
    return event(producer=secrets.token_hex(BATCH_BYTES // 2))


def test_a_collector_is_ready_exactly_while_its_disk_takes_a_batch(start: Start, disk: Path) -> None:
    collector = start("--runner", "none", home=disk / "home")
    assert collector.get("/health/ready").status == 200
    filler, sent = fill(disk, but_bytes=8 * BATCH_BYTES), 0
    while (ready := collector.get("/health/ready")).status == 200:
        assert collector.post(PATH, large_event()).status == 201
        sent += 1
    assert sent > 2
    assert "free space there" in ready.json["problems"]["journal"]
    command = [sys.executable, "-m", "waybill.cli", "status", "--home", str(collector.home)]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (status.returncode, "free space there" in status.stdout) == (1, True), status.stderr
    filler.unlink()
    assert collector.get("/health/ready").status == 200


def test_a_full_disk_is_busy_and_it_goes_on_by_itself_when_there_is_room(start: Start, disk: Path) -> None:
    collector = start("--runner", "none", home=disk / "home")
    filler, acknowledged = fill(disk, but_bytes=BATCH_BYTES), []
    while (reply := collector.post(PATH, body := large_event())).status == 201:
        acknowledged.append(body)
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    assert collector.get("/health/live").status == 200
    filler.unlink()
    assert collector.post(PATH, event()).status == 201
    assert collector.get("/health/ready").json["ready"] is True
    assert collector.bodies() == [*acknowledged, event()]
