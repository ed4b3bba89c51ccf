"""The plan of a fault: counts the calls that could fail, and makes one of them fail.

A program that makes the same calls in the same order every time can be stopped or failed at each of them in
turn. The number of the call and the act are all that is needed to reproduce a case.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn, Protocol

TAKES_ROOM: Final = frozenset({"write", "make folder", "create", "rename", "link"})
"""The calls that fail on a full disk; deletions do not."""


class Act(StrEnum):
    """What happens at the chosen call."""

    KILL = "kill"
    """The process is killed before the call: earlier changes stay, and nothing else happens."""
    TEAR = "tear"
    """The first half of the data is written; then the process is killed."""
    ENOSPC = "ENOSPC"
    """This one call finds the disk full."""
    FULL = "FULL"
    """The disk is full from this call on, until the fault ends; a write here writes its first half."""
    EIO = "EIO"
    """This one call fails."""
    DEAD = "DEAD"
    """Every call from this one on fails, until the fault ends; a write here writes its first half."""
    POWER = "power"
    """The process is killed before the call, and the disk forgets what was not fsynced."""

    @property
    def is_death(self) -> bool:
        """Whether the process dies from it."""
        return self in {Act.KILL, Act.TEAR, Act.POWER}


@dataclass(frozen=True)
class Call:
    """A call that changes a disk: the operation, and the file."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    def can(self, act: Act) -> bool:
        """Whether an act applies to this call."""
        if act is Act.TEAR:
            return self.name == "write"
        return self.name in TAKES_ROOM if act in {Act.ENOSPC, Act.FULL} else True


class Disk(Protocol):
    """Notes the changes that were made; see `seam.disk`."""

    def created(self, path: Path) -> None: ...
    def wrote(self, path: Path, offset: int | None, data: bytes) -> None: ...
    def truncated(self, path: Path, size_bytes: int) -> None: ...
    def synced(self, path: Path) -> None: ...
    def renamed(self, source: Path, target: Path) -> None: ...
    def linked(self, source: Path, target: Path) -> None: ...
    def removed(self, path: Path) -> None: ...
    def lose_power(self) -> None: ...


class _NoDisk:
    """Notes nothing."""

    def created(self, path: Path) -> None: ...
    def wrote(self, path: Path, offset: int | None, data: bytes) -> None: ...
    def truncated(self, path: Path, size_bytes: int) -> None: ...
    def synced(self, path: Path) -> None: ...
    def renamed(self, source: Path, target: Path) -> None: ...
    def linked(self, source: Path, target: Path) -> None: ...
    def removed(self, path: Path) -> None: ...
    def lose_power(self) -> None: ...


_NO_DISK: Final = _NoDisk()


@dataclass
class Plan:
    """The call that fails, and how; without them, all calls are only counted.

    Attributes:
        at: the number of the call, from 0.
        act: what happens there.
        calls: every call so far.
        ended: set to True when the fault ends; from then on nothing fails.
        on_strike: called just before the chosen call fails.
        disk: notes every change once it is made.
    """

    at: int | None = None
    act: Act | None = None
    calls: list[Call] = field(default_factory=list)
    ended: bool = False
    on_strike: Callable[[Call], object] = lambda _: None
    disk: Disk | None = None

    def reach(self, name: str, path: Path, half: Callable[[], object] = lambda: None) -> None:
        """Count a call; if it is the chosen one, kill the process or fail.

        Args:
            name: the operation.
            path: the file.
            half: does the first half of the operation, for an act that cuts a write.

        Raises:
            OSError: the call fails.
        """
        call = Call(name, stable_name(path))
        number = len(self.calls)
        self.calls.append(call)
        if self.act is None or self.at is None or self.ended or number < self.at:
            return
        if number == self.at:
            self.on_strike(call)
            self._strike(self.act, path, half)
        elif self.act is Act.DEAD or (self.act is Act.FULL and call.can(Act.FULL)):
            fail(errno.EIO if self.act is Act.DEAD else errno.ENOSPC, path)

    def noted(self) -> Disk:
        """The disk that notes changes."""
        return self.disk if self.disk is not None and not self.ended else _NO_DISK

    def lose_power(self) -> NoReturn:
        """Turn the power off: end the process, and lose everything that was not fsynced."""
        disk, self.ended = self.disk, True
        assert disk is not None
        disk.lose_power()
        die()

    def _strike(self, act: Act, path: Path, half: Callable[[], object]) -> None:
        if act in {Act.TEAR, Act.FULL, Act.DEAD}:
            half()
        if act is Act.POWER:
            self.lose_power()
        if act.is_death:
            die()
        fail(errno.EIO if act in {Act.EIO, Act.DEAD} else errno.ENOSPC, path)


def stable_name(path: Path) -> str:
    """A path's last two parts without random parts, so that two runs give a file the same name."""
    return "/".join(path.parts[-2:])


def fail(number: int, path: Path) -> NoReturn:
    """Raise the error that the system call would raise."""
    raise OSError(number, os.strerror(number), str(path))


def die() -> NoReturn:
    """End this process at once, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")
