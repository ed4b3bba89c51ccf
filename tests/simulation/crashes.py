"""Faults of the disk: a process dies at any call, the power is lost, a call fails, there is no room."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import apsw
from seam.disk import ForgetfulDisk
from seam.files import FaultyFiles
from seam.plan import TAKES_ROOM, Plan, fail
from seam.sqlite import FaultySqlite
from seam.system import FaultySystem

from waybill.transport.files import Files

if TYPE_CHECKING:
    import pytest

# Once a class has had a `__new__` that is taken away again, Python refuses its subclasses' arguments.
# So `Files` keeps this one when a simulation has ended.
setattr(Files, "__new__", lambda kind, *_, **__: object.__new__(kind))  # noqa: B010 - mypy allows no assignment

LOG: Final = "journal.db-wal"
WRITES: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class Disk(ForgetfulDisk):
    """The disk of a home and its root, which says when the journal's log was fsynced."""

    def __init__(self, folders: list[Path], chance: Random, on_sync: Callable[[], object]) -> None:
        super().__init__(folders, chance)
        self._on_sync = on_sync

    def synced(self, path: Path) -> None:
        super().synced(path)
        if path.name == LOG:
            self._on_sync()


class Faults(Plan):
    """What every call asks that changes the home or the root.

    A process that dies is one whose calls all fail from some call on, so that nothing it does on its way out
    reaches the disk; then all that it had open is closed.

    Attributes:
        is_dead: whether the process has died.
        is_full: whether the disk has turned out to be full.
        has_failed: whether the call that was to fail has failed.
    """

    def __init__(
        self, folder: Path, chance: Random, patch: pytest.MonkeyPatch, on_sync: Callable[[], object]
    ) -> None:
        self.is_dead = self.is_full = self.has_failed = False
        self._on_sync = on_sync
        self._folders = [folder / name for name in ("home", "root", "shipped", "rebuilt")]
        self._chance = chance
        self._calls_to_death: int | None = None
        self._calls_to_full: int | None = None
        self._calls_to_failure: int | None = None
        self._is_torn = False
        self.write_back()
        FaultySystem(self, folder / "home").install(patch.setattr)
        self._sqlite = FaultySqlite(self, f"simulated {id(self)}")
        plan, name = self, self._sqlite.name

        class Connection(apsw.Connection):
            def __init__(self, path: str, flags: int = WRITES, vfs: str | None = None) -> None:
                writes = flags & apsw.SQLITE_OPEN_READWRITE and Path(path).is_absolute()
                super().__init__(path, flags, vfs or (name if writes else None))

        patch.setattr(apsw, "Connection", Connection)

        class AllFiles(FaultyFiles):
            def __init__(self) -> None:
                super().__init__(plan)

        patch.setattr(Files, "__new__", lambda _: object.__new__(AllFiles))

    @property
    def are_there(self) -> bool:
        """Whether a call has failed, and what follows from that may be said."""
        return self.is_dead or self.is_full or self.has_failed

    def close(self) -> None:
        """Leave SQLite its own file system; nothing is open any more."""
        self._sqlite.unregister()

    def kill_after(self, calls: int) -> None:
        """Have the process die after so many calls; of a write, some let half of it happen."""
        self._calls_to_death, self._is_torn = calls, self._chance.random() < 0.5

    def fail_after(self, calls: int) -> None:
        """Have one call fail after so many."""
        self._calls_to_failure, self.has_failed = calls, False

    def end_failure(self) -> None:
        """Have no call fail."""
        self._calls_to_failure, self.has_failed = None, False

    def fill_after(self, calls: int) -> None:
        """Have the disk full after so many calls that take room."""
        self._calls_to_full = calls

    def make_room(self) -> None:
        """Have the disk take everything again."""
        self._calls_to_full, self.is_full = None, False

    def revive(self, *, loses_power: bool) -> None:
        """Let a process begin that finds what the last one left, or what the disk had to keep of that."""
        self.is_dead, self._calls_to_death = False, None
        if loses_power:
            disk, self.disk = self.disk, Disk([], self._chance, lambda: None)  # which notes in vain
            disk.lose_power()
            self.write_back()

    def reach(self, name: str, path: Path, half: Callable[[], object] = lambda: None) -> None:
        if self._calls_to_death is not None:
            self._calls_to_death -= 1
            if self._calls_to_death < 0:
                if not self.is_dead and self._is_torn:
                    half()
                self.is_dead = True
                fail(errno.EIO, path)
        if self._calls_to_failure is not None and not self.has_failed:
            self._calls_to_failure -= 1
            if self._calls_to_failure < 0:
                self.has_failed = True
                fail(errno.EIO, path)
        if self._calls_to_full is not None and name in TAKES_ROOM:
            self._calls_to_full -= 1
            if self._calls_to_full < 0:
                if not self.is_full:
                    half()
                self.is_full = True
                fail(errno.ENOSPC, path)

    def write_back(self) -> None:
        """Have the disk keep all that is there, as any does of itself within a minute."""
        self.disk = Disk(self._folders, self._chance, self._on_sync)
