"""A small disk, if this user may mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE_BYTES = 24 * 2**20
INODES = 2_000
UMOUNT = shutil.which("umount") or "/usr/bin/umount"
ROOM_BYTES = 2 * 2**20


def mount(kind: str, place: Path, image: Path) -> list[list[str]]:
    """The commands that make a small disk."""
    if kind == "tmpfs":
        options = f"size={SIZE_BYTES},nr_inodes={INODES}"
        return [["mount", "-t", "tmpfs", "-o", options, "waybill-faults", str(place)]]
    return [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]]


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes and a few thousand files."""
    place, image = tmp_path / "disk", tmp_path / "image"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    for command in mount(request.param, place, image):
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not on this machine")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a {request.param} cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run([UMOUNT, "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    """Take almost all space."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        left = os.statvfs(disk)
        file.write(bytes(left.f_bavail * left.f_frsize - ROOM_BYTES))
        os.fsync(file.fileno())
    return filler
