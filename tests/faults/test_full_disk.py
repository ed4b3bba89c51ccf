"""A real disk with really no space or inode left, if this user may mount one."""

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

from waybill.transport import Journal, JournalError, JournalFullError, Settings, flush

SIZE_BYTES = 24 * 2**20
INODES = 2_000
UMOUNT = shutil.which("umount") or "/usr/bin/umount"
ROOM_BYTES = 2 * 2**20
EMISSIONS_MAX = 50_000


def mount(kind: str, place: Path, image: Path) -> list[list[str]]:
    """The commands that make a small disk."""
    if kind == "tmpfs":
        options = f"size={SIZE_BYTES},nr_inodes={INODES}"
        return [["mount", "-t", "tmpfs", "-o", options, "waybill-faults", str(place)]]
    return [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]]


@pytest.fixture(params=["tmpfs", pytest.param("ext4", marks=pytest.mark.exhaustive)])
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


def take_inodes(disk: Path) -> Path:
    """Take all inodes, with empty files in the returned folder."""
    fillers = disk / "fillers"
    fillers.mkdir()
    with pytest.raises(OSError, match="No space left"):
        for at in itertools.count():
            (fillers / str(at)).touch()
    assert shutil.disk_usage(disk).free > ROOM_BYTES
    return fillers


class Emitter:
    """A process that emits with one durability, and its results."""

    def __init__(self, settings: Settings, durability: str) -> None:
        self.ledger, self.numbers = Ledger(), itertools.count(1)
        self._journal = Journal(settings.home)
        self._durable = durability == "power"

    def emit(self) -> None:
        one = emission(next(self.numbers))
        self.ledger.offered.append(one.number)
        self._journal.append_many(one.items, durable=self._durable)
        self.ledger.acknowledged.add(one.number)

    def close(self) -> None:
        self._journal.close()


@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(disk: Path, durability: str) -> None:
    settings = settings_in(disk)
    emitter = Emitter(settings, durability)
    for _ in range(20):
        emitter.emit()
    flush(settings)
    filler = fill(disk)
    with pytest.raises(JournalFullError, match="free space"):
        for _ in range(EMISSIONS_MAX):
            emitter.emit()
    for _ in range(20):
        try:
            emitter.emit()
            report = flush(settings)
        except JournalError:
            continue
        assert report.problems.keys() <= {"keys", "layout"}
    filler.unlink()
    emitter.emit()
    emitter.close()
    recover_and_check(settings, emitter.ledger, fresh_number=next(emitter.numbers))


@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_disk_without_inodes_is_said_and_nothing_acknowledged_is_lost(disk: Path, durability: str) -> None:
    """The journal's files already exist, so it needs no inode for more entries."""
    settings = settings_in(disk)
    emitter = Emitter(settings, durability)
    for _ in range(20):
        emitter.emit()
    flush(settings)
    fillers = take_inodes(disk)
    for _ in range(20):
        emitter.emit()
        report = flush(settings)
        assert report.problems.keys() == {"archive", "index", "layout"}
        assert all("disk is full" in problem for problem in report.problems.values())
    with pytest.raises(JournalError):
        Journal(disk / "another home")
    shutil.rmtree(fillers)
    Journal(disk / "another home").close()
    emitter.emit()
    emitter.close()
    recover_and_check(settings, emitter.ledger, fresh_number=next(emitter.numbers))
