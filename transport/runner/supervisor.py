"""The supervisor: the part of an emitter that starts a runner, as a child process, if there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .. import locks
from ..clock import SYSTEM_CLOCK
from ..config import API_KEY_VARIABLES, agreeing, apply_command, warn_of_conflicts
from ..errors import JournalError
from ..fork_safety import without_forks
from ..permissions import open_private

if TYPE_CHECKING:
    from ..config import Settings
    from ..journal import Journal

log = logging.getLogger("waybill.transport")

LOG_NAME: Final = "runner.log"

_COMMAND: Final = ("-m", "waybill.transport")
_LOOK_EVERY_S: Final = 1.0
_LOOK_EVERY_S_MAX: Final = 60.0
_LOG_BYTES_MAX: Final = 2**20


class Supervisor:
    """Makes sure that the home has a runner while events are emitted; made by `Supervisor.open`.

    It follows the agreed settings, and warns if they come to differ from the given ones.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        *,
        given: Settings | None = None,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self.settings = settings
        self._journal = journal
        self._given = given or settings
        self._look_every_s = self._pause_s = look_every_s
        self._look_due_s = 0.0
        self._runner: _Child | None = None
        self._pid = os.getpid()

    @classmethod
    def open(cls, journal: Journal, given: Settings, *, look_every_s: float = _LOOK_EVERY_S) -> Supervisor:
        """Agree on the home's settings (see `agreeing`); start a runner if one is wanted and missing."""
        with agreeing(journal, given) as (settings, lease):
            supervisor = cls(journal, settings, given=given, look_every_s=look_every_s)
            if lease is not None:
                supervisor.start(lease)
        if not settings.provenance_enabled:
            log.warning(
                "provenance_enabled is off: events are kept in %s and become provenance files once it is on, "
                "as after `%s`",
                journal.path,
                apply_command(journal.home, {"provenance_enabled": True}),
            )
        return supervisor

    def start(self, lease: locks.Lease) -> None:
        """Hand the lease to a new runner, if one is wanted."""
        if self.settings.runner == "child":
            self._start(lease)

    def ensure_runner(self) -> None:
        """Start a runner if the last one has ended; checks at most once a second, and is cheap otherwise."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        if now_s < self._look_due_s or self.settings.runner == "none":
            return
        # Set first, so that other threads do not start one as well.
        self._look_due_s = now_s + self._pause_s
        if self._pid != os.getpid():
            # This process is a fork; the runner is its parent's child.
            self._pid, self._runner = os.getpid(), None
        # There may be no file descriptor left, for example. An emitter only needs the event to be kept, and
        # it is.
        with contextlib.suppress(OSError, JournalError):
            if locks.is_held(self._journal.home):
                self._pause_s = self._look_every_s
            elif self._runner is None or self._runner.has_ended():
                self._replace_runner()
            warn_of_conflicts(self._journal, self._given)

    def _replace_runner(self) -> None:
        with without_forks():
            lease = locks.reserve(self._journal.home)
            if lease is not None:
                try:
                    self._start(lease)
                finally:
                    lease.release()

    def _start(self, lease: locks.Lease) -> None:
        self._runner = _start_runner(self._journal.home, self.settings, lease)
        # A runner that keeps dying is restarted less and less often; its log says why it dies.
        self._pause_s = min(self._pause_s * 2, _LOOK_EVERY_S_MAX)
        self._look_due_s = SYSTEM_CLOCK.monotonic_s() + self._pause_s


class _Child:
    """A runner that this process started; either of the two may end first.

    `subprocess` warns about a child that nobody waited for, so it is made to believe that the child has
    ended.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._pid = process.pid
        self._ended = False
        process.returncode = 0

    def has_ended(self) -> bool:
        """Whether it has ended; the check lets the system remove a zombie."""
        if not self._ended:
            try:
                self._ended = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # the child of a parent process, or somebody else has waited for it
                self._ended = True
        return self._ended


_children: list[_Child] = []
"""Runners that may still be running, including those of supervisors that no longer exist."""


def _start_runner(home: Path, settings: Settings, lease: locks.Lease) -> _Child | None:
    """Start a home's runner as a process that outlives this one; None if it cannot be started.

    A missing runner never fails a pipeline: its events wait in the journal for the next one.
    """
    log_file = home / LOG_NAME
    try:
        too_long = log_file.exists() and log_file.stat().st_size > _LOG_BYTES_MAX
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if too_long else os.O_APPEND)
        with os.fdopen(open_private(log_file, flags), "wb") as output:
            process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(home), str(lease.descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env=_environment(settings),
                start_new_session=True,
                pass_fds=(lease.descriptor,),
            )
    except OSError:
        return None
    lease.hand_over()
    child = _Child(process)
    _children[:] = [*(one for one in _children if not one.has_ended()), child]
    return child


def is_runner(pid: int) -> bool:
    """Whether a process is the runner of a home; only Linux can tell."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return [os.fsdecode(part) for part in command[1 : 1 + len(_COMMAND)]] == [*_COMMAND]


def _environment(settings: Settings) -> dict[str, str]:
    """A runner's environment: this process's variables, without keys that are not for the home's backend."""
    own = dict(os.environ)
    if settings.marquez_api_key is None:
        for variable in API_KEY_VARIABLES:
            own.pop(variable, None)
    return own | settings.environment
