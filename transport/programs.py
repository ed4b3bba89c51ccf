"""Programs: which process wrote an entry, and whether that process is gone.

A process is identified by its host, the host's boot, its PID namespace, its id and its start time, because
ids are reused. Programs on another host, or in another namespace on this one (a container's), cannot be
checked, so they never count as gone. Only Linux provides all these values; on other systems programs are not
noted.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_MACHINE_ID: Final = Path("/etc/machine-id")
_ENDED: Final = frozenset("ZX")
"""The states of a process that has ended but has not been reaped by its parent."""
_STATE_AT: Final = 0
_STARTED_AT: Final = 19


class Program(NamedTuple):
    """The unique identity of a process."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def parse(cls, text: str) -> Program:
        """Parse the result of `str`; raise `ValueError` for any other text."""
        host, boot, namespace, pid, started = text.split(".")
        return cls(host, boot, namespace, int(pid), int(started))

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @property
    def is_of_here(self) -> bool:
        """Whether its end can be checked: it is on this host, and in this namespace or from another boot."""
        here = this_program()
        if here is None or self.host != here.host:
            return False
        return self.boot != here.boot or self.namespace == here.namespace

    @property
    def is_gone(self) -> bool:
        """Whether it has certainly ended."""
        here = this_program()
        if here is None or not self.is_of_here:
            return False
        return self.boot != here.boot or not _is_alive(self.pid, self.started)


def this_program() -> Program | None:
    """This process; None if the system does not provide its identity."""
    return _program_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _program_of(pid: int) -> Program | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes().decode()
        namespace = (_PROC / "self/ns/pid").stat().st_ino
        found = _state_and_start(pid)
    except (OSError, ValueError):
        return None
    return None if found is None else Program(_host(), _short(boot), f"{namespace:x}", pid, found[1])


def _host() -> str:
    machine = b""
    with contextlib.suppress(OSError):
        machine = _MACHINE_ID.read_bytes()
    return _short(f"{machine!r} {socket.gethostname()}")


def _short(text: str) -> str:
    return blake2b(text.strip().encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


def _is_alive(pid: int, started: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process, which may be hidden in /proc
    try:
        found = _state_and_start(pid)
    except (OSError, ValueError):
        return True
    return found is None or (found[1] == started and found[0] not in _ENDED)


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """A process's state, and its start time in ticks since the boot; None if the process is not visible."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of its executable is in parentheses, and may contain any character.
    fields = stat.rpartition(")")[2].split()
    return fields[_STATE_AT], int(fields[_STARTED_AT])
