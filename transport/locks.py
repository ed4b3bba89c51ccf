"""The lease: an OS lock that makes one process the runner of a home, or gives it another exclusive role.

The lock is on ``<home>/<name>.lock``, ``runner.lock`` for the runner. It is released when the process that
holds it ends, however that happens. The file's content names the holder, for people to read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .clock import SYSTEM_CLOCK
from .permissions import open_private

RUNNER: Final = "runner"
COLLECTOR: Final = "collector"
"""The name of the lock that limits a home to one collector."""

_WANTED: Final = "runner-wanted"
_RESERVE_WITHIN_S: Final = 1.0
_POLL_S: Final = 0.001
_TAKE_OVER_POLL_S: Final = 0.05


class Lease:
    """A lease held by this process; made by `take`, `reserve` and `inherit`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor: Final = descriptor
        self._held = True

    def sign(self) -> None:
        """Write this process's id into the lock file, as the holder."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def hand_over(self) -> None:
        """Leave it to a child process that has the descriptor."""
        self._held = False
        os.close(self.descriptor)

    def release(self) -> None:
        """Release it for other processes; does nothing if it was handed over."""
        if not self._held:
            return
        self._held = False
        with contextlib.suppress(OSError):  # the content is only for people
            os.ftruncate(self.descriptor, 0)
        # A child forked in the meantime has the descriptor too, so closing it here is not enough.
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)


def take(home: Path, name: str = RUNNER) -> Lease | None:
    """Become the runner of a home; None if another process already is."""
    lease = reserve(home, name)
    if lease is not None:
        try:
            lease.sign()
        except OSError:
            lease.release()
            raise
    return lease


def take_over(home: Path, timeout_s: float) -> Lease | None:
    """Become the runner of a home after asking a live one to end; None if it does not end in time."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    with locked(home / f"{_WANTED}.lock"):
        while (lease := take(home)) is None and SYSTEM_CLOCK.monotonic_s() < deadline_s:
            SYSTEM_CLOCK.sleep(_TAKE_OVER_POLL_S)
    return lease


def is_wanted(home: Path) -> bool:
    """Whether a process waits in `take_over` for the runner to end."""
    return is_held(home, _WANTED)


def reserve(home: Path, name: str = RUNNER) -> Lease | None:
    """Take the lease for a process that is about to start; None if another process has it."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _RESERVE_WITHIN_S
    while (descriptor := _locked(home, name, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)) is None:
        # A process that only checks for a runner also holds the lock for a moment.
        if is_held(home, name) or SYSTEM_CLOCK.monotonic_s() > deadline_s:
            return None
        SYSTEM_CLOCK.sleep(_POLL_S)
    try:
        os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return Lease(descriptor)


def inherit(descriptor: int) -> Lease:
    """Take over the lease that the parent process has reserved for this one."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes no keywords
    lease = Lease(descriptor)
    lease.sign()
    return lease


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock while the block runs; other threads and processes wait for it."""
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_held(home: Path, name: str = RUNNER) -> bool:
    """Whether some process is the runner of a home."""
    try:
        # Shared, so that two processes that check at once do not take each other for the runner.
        descriptor = _locked(home, name, os.O_RDONLY, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def holder(home: Path, name: str = RUNNER) -> int | None:
    """The process id of a home's runner; None if there is none or it has not signed its lease yet."""
    if not is_held(home, name):
        return None
    text = (home / f"{name}.lock").read_text(encoding="ascii").strip()
    return int(text) if text.isdigit() else None


def is_in_use(home: Path) -> bool:
    """Whether a home has a runner, or a collector that is not this process."""
    return is_held(home) or (is_held(home, COLLECTOR) and holder(home, COLLECTOR) != os.getpid())


def _locked(home: Path, name: str, flags: int, lock: int) -> int | None:
    descriptor = open_private(home / f"{name}.lock", flags)
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
