"""A real disk that is really full, where this user may mount one."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from seam.emissions import emission
from seam.homes import settings_in
from seam.ledger import Ledger
from seam.oracle import recover_and_check

from waybill.transport import Journal, JournalError, JournalFullError, flush
from waybill.transport.journal import Spool

SIZE_BYTES = 24 * 2**20
UMOUNT = shutil.which("umount") or "/usr/bin/umount"
ROOM_BYTES = 2 * 2**20
EMISSIONS_MAX = 50_000


def mount(kind: str, place: Path, image: Path) -> list[list[str]]:
    """The commands that make a small disk."""
    if kind == "tmpfs":
        return [["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "waybill-faults", str(place)]]
    return [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]]


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
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
    """Take all room but a little."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        left = os.statvfs(disk)
        file.write(bytes(left.f_bavail * left.f_frsize - ROOM_BYTES))
        os.fsync(file.fileno())
    return filler


@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(disk: Path, durability: str) -> None:
    settings = settings_in(disk)
    journal = Journal(settings.home)
    spool = Spool(journal).open() if durability == "process" else None
    ledger, numbers = Ledger(), itertools.count(1)

    def emit() -> None:
        one = emission(next(numbers))
        ledger.offered.append(one.number)
        if spool is None:
            journal.append_many(one.items)
        else:
            for item in one.items:
                spool.append(*item)
        ledger.acknowledged.add(one.number)

    for _ in range(20):
        emit()
    flush(settings)
    filler = fill(disk)
    with pytest.raises(JournalFullError, match="make room"):
        for _ in range(EMISSIONS_MAX):
            emit()
    for _ in range(20):
        try:
            emit()
            report = flush(settings)
        except JournalError:
            continue
        assert report.problems.keys() <= {"layout"}
    filler.unlink()
    emit()
    if spool is not None:
        spool.close()
    journal.close()
    recover_and_check(settings, ledger, fresh_number=next(numbers))
