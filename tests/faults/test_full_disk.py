"""A real disk with really no space or inode left, if this user may mount one."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from seam.disks import ROOM_BYTES, fill
from seam.emissions import emission
from seam.homes import settings_in
from seam.ledger import Ledger
from seam.oracle import recover_and_check

from waybill.transport import Journal, JournalError, JournalFullError, Settings, flush

pytestmark = pytest.mark.faults

EMISSIONS_MAX = 50_000


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
    """A process that emits, and its results."""

    def __init__(self, settings: Settings) -> None:
        self.ledger, self.numbers = Ledger(), itertools.count(1)
        self._journal = Journal(settings.home)

    def emit(self) -> None:
        one = emission(next(self.numbers))
        self.ledger.offered.append(one.number)
        self._journal.append_many(one.items)
        self.ledger.acknowledged.add(one.number)

    def close(self) -> None:
        self._journal.close()


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(disk: Path) -> None:
    """First it has no inodes, which a journal that is there does not need; then it has no room."""
    settings = settings_in(disk)
    emitter = Emitter(settings)
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
