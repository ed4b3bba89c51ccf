"""The lease: which process, if any, is the one runner of a home, or the one of another kind.

An OS lock on ``<home>/<name>.lock``, for the runner ``runner.lock``; it ends with the process that holds it,
however that ends. The file's content names the holder for people.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


RUNNER: Final = "runner"


class Lease:
    """The held lease of a home; made by `take`."""

    def __init__(self, descriptor: int) -> None:
        """Keep the locked descriptor."""
        self._descriptor = descriptor

    def release(self) -> None:
        """Let another process be the runner."""
        os.ftruncate(self._descriptor, 0)
        # Closing alone leaves the lock to a child that was forked meanwhile and has the descriptor too.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def take(home: Path, name: str = RUNNER) -> Lease | None:
    """Become the runner of a home; None when another process is."""
    descriptor = _locked(home, name, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
    if descriptor is None:
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return Lease(descriptor)


def is_held(home: Path, name: str = RUNNER) -> bool:
    """Whether some process is the runner of a home."""
    try:
        # Shared, so that two who look at once do not take each other for the runner.
        descriptor = _locked(home, name, os.O_RDONLY, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def holder(home: Path, name: str = RUNNER) -> int | None:
    """The process id of a home's runner; None when there is none or it has not said yet."""
    if not is_held(home, name):
        return None
    text = (home / f"{name}.lock").read_text(encoding="ascii").strip()
    return int(text) if text.isdigit() else None


def _locked(home: Path, name: str, flags: int, lock: int) -> int | None:
    descriptor = os.open(home / f"{name}.lock", flags | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
