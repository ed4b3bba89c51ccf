"""The keeper: an emitter's side of the runner. It starts one as a child process where there is none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from waybill.transport import lease
from waybill.transport.agreement import agree
from waybill.transport.backends import environment_of

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.journal import Journal
    from waybill.transport.settings import Settings

log = logging.getLogger("waybill.transport")

_LOOK_EVERY_S: Final = 1.0
_LOOK_EVERY_S_MAX: Final = 60.0
_LOG_BYTES_MAX: Final = 2**20


class Keeper:
    """Sees to it that the home has a runner while events are emitted.

    Raises:
        SettingsConflictError: a live runner works with other settings.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        """Agree on the settings and start a runner where one is wanted and missing."""
        self.settings = agree(journal, settings)
        if not self.settings.provenance_enabled:
            log.warning(
                "provenance_enabled is off: events are kept in %s and become provenance files once it is on",
                journal.path,
            )
        self._home = journal.home
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        self._pause_s = _LOOK_EVERY_S
        self._next_look_s = 0.0
        self.keep()

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
        try:
            held = lease.is_held(self._home)
        except OSError:
            # No descriptor is left, say. The event is kept, and that is all that an emitter has to hear.
            return
        if held:
            self._pause_s = _LOOK_EVERY_S
        elif self._child is None or self._child.poll() is not None:
            # A runner that keeps dying is started ever more rarely; its log says why.
            self._child = start_runner(self._home, self.settings)
            self._pause_s = min(self._pause_s * 2, _LOOK_EVERY_S_MAX)
            self._next_look_s = now_s + self._pause_s


def start_runner(home: Path, settings: Settings) -> subprocess.Popen[bytes] | None:
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
            return subprocess.Popen(
                [sys.executable, "-m", "waybill.transport", str(home)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env=environment,
                start_new_session=True,
            )
    except OSError:
        return None
