"""What goes wrong, and where: calls that could fail are counted, and one of them is chosen to.

A workload that makes the same calls in the same order every time can be stopped or failed at each of them in turn;
the number of the call and the act are all that is needed to see the same thing again.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn

TAKES_ROOM: Final = frozenset({"write", "make folder", "create", "rename"})
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

    @property
    def is_death(self) -> bool:
        """Whether the process does not live through it."""
        return self in {Act.KILL, Act.TEAR}


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


@dataclass
class Plan:
    """Which call is hit and by what; with neither, all calls are only counted.

    Attributes:
        at: the number of the call, from 0.
        act: what happens there.
        calls: every call so far.
        ended: set to True when the fault ends; from then on nothing fails.
        on_strike: told of the chosen call just before it is hit.
    """

    at: int | None = None
    act: Act | None = None
    calls: list[Call] = field(default_factory=list)
    ended: bool = False
    on_strike: Callable[[Call], object] = lambda _: None

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

    def _strike(self, act: Act, path: Path, half: Callable[[], object]) -> None:
        if act in {Act.TEAR, Act.FULL, Act.DEAD}:
            half()
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
