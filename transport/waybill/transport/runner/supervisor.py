"""The keeper: an emitter's side of the runner. It starts one as a child process where there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from waybill.transport import locks
from waybill.transport.config import conflicts, environment_of, joined
from waybill.transport.errors import JournalError
from waybill.transport.fork_safety import without_forks

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.transport")

_LOOK_EVERY_S: Final = 1.0
_LOOK_EVERY_S_MAX: Final = 60.0
_LOG_BYTES_MAX: Final = 2**20


class Supervisor:
    """Sees to it that the home has a runner while events are emitted.

    Raises:
        SettingsConflictError: a live runner works with other settings.
        JournalError: the home cannot be locked.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        """Agree on the settings and start a runner where one is wanted and missing."""
        self._journal = journal
        self._given = settings
        self._child: _Child | None = None
        self._pid = os.getpid()
        self._pause_s = _LOOK_EVERY_S
        self._next_look_s = 0.0
        self._has_warned = False
        with joined(journal, settings) as (self.settings, held):
            if held is not None and self.settings.runner == "child":
                self._start(held)
        if not self.settings.provenance_enabled:
            log.warning(
                "provenance_enabled is off: events are kept in %s and become provenance files once it is on",
                journal.path,
            )

    def keep(self) -> None:
        """Look after the runner, at most once a second; costs a clock reading otherwise."""
        now_s = time.monotonic()
        if now_s < self._next_look_s or self.settings.runner == "none":
            return
        # Set first, so that threads that come meanwhile do not each start one.
        self._next_look_s = now_s + self._pause_s
        if self._pid != os.getpid():
            # The child process belongs to the parent of this fork.
            self._pid, self._child = os.getpid(), None
        # No descriptor may be left, say. The event is kept, and that is all that an emitter has to hear.
        with contextlib.suppress(OSError, JournalError):
            if locks.is_held(self._journal.home):
                self._pause_s = _LOOK_EVERY_S
            elif self._child is None or self._child.has_ended():
                self._replace()
            self._warn()

    def _replace(self) -> None:
        with without_forks():
            held = locks.reserve(self._journal.home)
            if held is not None:
                try:
                    self._start(held)
                finally:
                    held.release()

    def _start(self, held: locks.Lease) -> None:
        self._child = _start_runner(self._journal.home, self.settings, held)
        # A runner that keeps dying is started ever more rarely; its log says why.
        self._pause_s = min(self._pause_s * 2, _LOOK_EVERY_S_MAX)
        self._next_look_s = time.monotonic() + self._pause_s

    def _warn(self) -> None:
        """Say once that somebody has changed the agreement since, while no runner was alive."""
        if self._has_warned:
            return
        for conflict in conflicts(self._journal, self._given):
            self._has_warned = True
            log.warning("events are kept, and what becomes of them is by another's settings: %s", conflict)


class _Child:
    """A runner that this process has started and need not outlive.

    `subprocess` takes one that nobody waits for to be forgotten, and warns of it.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._pid = process.pid
        self._ended = False
        process.returncode = 0

    def has_ended(self) -> bool:
        """Whether it is gone; the system keeps what is left of it until somebody asks."""
        if not self._ended:
            try:
                self._ended = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # of the parent of this fork, or somebody waits for every child
                self._ended = True
        return self._ended


_children: list[_Child] = []
"""The runners that may not have ended, those of keepers that are gone too."""


def _start_runner(home: Path, settings: Settings, held: locks.Lease) -> _Child | None:
    """Start a home's runner as a process that outlives this one; None when it cannot be started.

    A pipeline never fails for the lack of a runner: its events wait in the journal for the next one.
    """
    log = home / "runner.log"
    environment = dict(os.environ) | environment_of(settings.backends)
    if settings.marquez_api_key:
        environment["WAYBILL_MARQUEZ_API_KEY"] = settings.marquez_api_key
    try:
        too_long = log.exists() and log.stat().st_size > _LOG_BYTES_MAX
        with log.open("wb" if too_long else "ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "waybill.transport", str(home), str(held.descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env=environment,
                start_new_session=True,
                pass_fds=(held.descriptor,),
            )
    except OSError:
        return None
    held.hand_over()
    started = _Child(child)
    _children[:] = [*(one for one in _children if not one.has_ended()), started]
    return started
