"""What goes wrong, and where: calls that could fail are counted, and one of them is chosen to.

A program that makes the same calls in the same order every time can be stopped or failed at each of them in
turn; the number of the call and the act are all that is needed to see the same thing again.
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
"""Calls that a full disk can fail; it fails no deletion."""


class Act(StrEnum):
    """What happens at the chosen call."""

    KILL = "kill"
    """The process is killed in front of it: what was done before stays, nothing else is done."""
    TEAR = "tear"
    """The first half of what is written is; then the process is killed."""
    ENOSPC = "ENOSPC"
    """This one call finds the disk full."""
    FULL = "FULL"
    """The disk is full from this call on, a write having got its first half in, until the fault ends."""
    EIO = "EIO"
    """This one call fails."""
    DEAD = "DEAD"
    """Every call from this one on fails, a write having got its first half in, until the fault ends."""
    POWER = "power"
    """The process is killed in front of it, and the disk forgets what was not fsynced."""

    @property
    def is_death(self) -> bool:
        """Whether the process does not live through it."""
        return self in {Act.KILL, Act.TEAR, Act.POWER}


@dataclass(frozen=True)
class Call:
    """A call that changes a disk: what it does, and to which file."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    def can(self, act: Act) -> bool:
        """Whether an act makes sense at this call."""
        if act is Act.TEAR:
            return self.name == "write"
        return self.name in TAKES_ROOM if act in {Act.ENOSPC, Act.FULL} else True


class Disk(Protocol):
    """Keeps note of the changes that were made; see `seam.disk`."""

    def created(self, path: Path) -> None: ...
    def wrote(self, path: Path, offset: int | None, data: bytes) -> None: ...
    def truncated(self, path: Path, size_bytes: int) -> None: ...
    def synced(self, path: Path) -> None: ...
    def renamed(self, source: Path, target: Path) -> None: ...
    def linked(self, source: Path, target: Path) -> None: ...
    def removed(self, path: Path) -> None: ...
    def lose_power(self) -> None: ...


class _NoDisk:
    """Keeps no note."""

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
    """Which call is hit and by what; with neither, all calls are only counted.

    Attributes:
        at: the number of the call, from 0.
        act: what happens there.
        calls: every call so far.
        ended: set to True when the fault ends; from then on nothing fails.
        on_strike: told of the chosen call just before it is hit.
        disk: told of every change once it is made.
    """

    at: int | None = None
    act: Act | None = None
    calls: list[Call] = field(default_factory=list)
    ended: bool = False
    on_strike: Callable[[Call], object] = lambda _: None
    disk: Disk | None = None

    def reach(self, name: str, path: Path, half: Callable[[], object] = lambda: None) -> None:
        """Count a call, and be killed or fail if it is the chosen one.

        Args:
            name: what the call does.
            path: the file that it does it to.
            half: does the first half of it, for an act that cuts a write.

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
        """Where a change that was made is noted."""
        return self.disk if self.disk is not None and not self.ended else _NO_DISK

    def lose_power(self) -> NoReturn:
        """Turn the power off: the process is gone, and so is what was not fsynced."""
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
    """A path's last two parts without what is random in them, so that two runs call a file the same."""
    return "/".join(path.parts[-2:])


def fail(number: int, path: Path) -> NoReturn:
    """Raise what the system call would."""
    raise OSError(number, os.strerror(number), str(path))


def die() -> NoReturn:
    """End this process at once, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")
