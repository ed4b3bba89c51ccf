"""Disks that can be filled."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted_tmpfs(place: Path) -> Iterator[Path]:
    """A disk of 24 MiB, where this user may mount one; else the test is skipped."""
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


def fill_disk(disk: Path, *, but_bytes: int) -> Path:
    """Leave no more room than this, and return the file that takes it."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - but_bytes))
    return filler
