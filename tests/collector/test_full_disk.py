"""A collector whose disk is nearly full, where this user may mount one."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from served import event

from waybill.collector.endpoints.health import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Start


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only root may mount a disk")
    command = [mount, "-t", "tmpfs", "-o", "size=24m", "waybill-tests", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run([umount, "--lazy", place], check=True)


def test_a_collector_is_ready_exactly_while_its_disk_takes_a_batch(start: Start, disk: Path) -> None:
    collector = start("--runner", "none", home=disk / "home")
    assert collector.get("/health/ready").status == 200
    filler, sent = disk / "filler", 0
    with filler.open("wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - 8 * BATCH_BYTES))
    while (ready := collector.get("/health/ready")).status == 200:
        assert (
            collector.post("/api/v1/lineage", event(producer=secrets.token_hex(BATCH_BYTES // 2))).status
            == 201
        )
        sent += 1
    assert sent > 2
    assert "make room there" in ready.json["problems"]["journal"]
    filler.unlink()
    assert collector.get("/health/ready").status == 200
