"""A package's program as a process: started, watched, stopped, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, Self

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.runner import is_runner

FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals that a program gets, too."""
TIMED_OUT: Final = 124
"""The exit code after a timeout, as of coreutils' ``timeout``."""
_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_BY_SIGNAL: Final = 128

_TAIL_BYTES: Final = 8_192
_TAIL_LINES: Final = 20
_READ_BYTES: Final = 2**16
_LOOK_EVERY_S: Final = 0.02
_LAST_WORDS_S: Final = 1.0
_GIVEN_UP_S: Final = 5.0
_SET_CHILD_SUBREAPER: Final = 36


class Ended(NamedTuple):
    """How a program ended.

    Attributes:
        code: the exit code, as a shell has it: of a program that a signal ended, 128 and its number.
        tail: the last lines that it wrote to stderr; or why it could not be started.
    """

    code: int
    tail: str = ""


class Child:
    """Runs a program, which is the first of a process group and a session of its own.

    Within its ``with``, the signals that this process gets go on to the group. What is still running when
    the program has ended is stopped.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        environment: its variables.
        grace_s: how long it may take to end when it is stopped.

    Attributes:
        stopped: why it was stopped, as a sentence; empty: it was not.
        timed_out: whether that was because it took too long.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], grace_s: float
    ) -> None:
        self.stopped = ""
        self.timed_out = False
        self._command = command
        self._folder = folder
        self._environment = environment
        self._grace_s = grace_s
        self._leader: int | None = None
        self._stopped_by = 0
        self._kill_due_s = math.inf
        self._tail: deque[bytes] = deque()
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._handlers.callback(os.close, self._woken)
        self._handlers.callback(os.close, self._wake)
        for number in FORWARDED:
            self._handlers.callback(signal.signal, number, signal.signal(number, self._pass_on))
        waking = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._handlers.callback(signal.set_wakeup_fd, waking)
        _adopt_orphans(is_on=True)
        self._handlers.callback(_adopt_orphans, is_on=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.close()

    def run(self, *, timeout_s: float, beat: Callable[[], None], beat_every_s: float) -> Ended:
        """Run the program until it has ended; a program that was stopped is not run again.

        Whatever `beat` raises, the program is stopped first.

        Args:
            timeout_s: after which it is stopped; 0: never.
            beat: called while it runs.
            beat_every_s: how often; 0: never.
        """
        others = _list_left(None)
        self._tail.clear()
        try:
            process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            why = f"{self._command[0]} cannot be run: {error.strerror}"
            return Ended(_NOT_FOUND if missing else _NOT_EXECUTABLE, why)
        except ValueError as error:  # a NUL in an argument
            return Ended(_NOT_EXECUTABLE, f"{self._command[0]!r} cannot be run: {error}")
        self._leader = process.pid
        echo = threading.Thread(target=self._echo, args=(process,), daemon=True)
        try:
            if self.stopped:  # while it was being started
                self._stop(self._stopped_by, self.stopped)
            echo.start()
            threading.Thread(target=self._wait, args=(process,), daemon=True).start()
            self._watch(process, timeout_s, beat, beat_every_s)
        finally:
            self._leader = None
            _stop_left(process.pid, others, self._grace_s)
        echo.join(_LAST_WORDS_S)
        code = process.returncode
        return Ended(code if code >= 0 else _BY_SIGNAL - code, self._last_lines())

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        timeout_s: float,
        beat: Callable[[], None],
        beat_every_s: float,
    ) -> None:
        began_s = SYSTEM_CLOCK.monotonic_s()
        stop_due_s = began_s + timeout_s if timeout_s else math.inf
        beat_due_s = began_s + beat_every_s if beat_every_s else math.inf
        while process.returncode is None:
            due_s = min(stop_due_s, beat_due_s, self._kill_due_s)
            pause_s = None if due_s == math.inf else max(due_s - SYSTEM_CLOCK.monotonic_s(), 0)
            if select.select([self._woken], [], [], pause_s)[0]:
                os.read(self._woken, _READ_BYTES)
            now_s = SYSTEM_CLOCK.monotonic_s()
            if now_s >= self._kill_due_s:
                self._kill_due_s = math.inf
                _signal_group(process.pid, signal.SIGKILL)
            if now_s >= stop_due_s:
                stop_due_s = math.inf
                self.timed_out = not self.stopped
                self._stop(signal.SIGTERM, f"it took longer than {timeout_s:g} s")
            if now_s >= beat_due_s:
                beat_due_s = now_s + beat_every_s
                beat()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._stop(number, f"it was stopped by {signal.Signals(number).name}")

    def _stop(self, number: int, why: str) -> None:
        self.stopped, self._stopped_by = self.stopped or why, self._stopped_by or number
        if self._leader is not None:
            self._kill_due_s = min(self._kill_due_s, SYSTEM_CLOCK.monotonic_s() + self._grace_s)
            _signal_group(self._leader, number)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with contextlib.suppress(OSError):  # a full pipe wakes, too
            os.write(self._wake, b"\0")

    def _echo(self, process: subprocess.Popen[bytes]) -> None:
        """Write what a program writes to stderr to this one's, and keep the end."""
        source, kept = process.stderr, 0
        if source is None:
            return
        with source:
            while part := os.read(source.fileno(), _READ_BYTES):
                with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                    sys.stderr.buffer.write(part)
                    sys.stderr.buffer.flush()
                self._tail.append(part[-_TAIL_BYTES:])
                kept += len(self._tail[-1])
                while kept - len(self._tail[0]) >= _TAIL_BYTES:
                    kept -= len(self._tail.popleft())

    def _last_lines(self) -> str:
        text = b"".join(self._tail)[-_TAIL_BYTES:].decode(errors="replace")
        return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _adopt_orphans(*, is_on: bool) -> None:
    """Be the parent of the processes whose own parent ends, also of those that leave the group, or not.

    Only Linux can do that (prctl(2)); elsewhere, a process that leaves the group is not found.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


def _stop_left(leader: int, others: set[int], grace_s: float) -> None:
    """Stop what is still running of a program that has ended; `others` are children from before it."""
    if sys.platform != "linux":
        _signal_group(leader, signal.SIGTERM)
        return
    number, kill_due_s = signal.SIGTERM, SYSTEM_CLOCK.monotonic_s() + grace_s
    told: set[int] = set()
    while left := _list_left(leader) - others:
        if number is signal.SIGTERM and SYSTEM_CLOCK.monotonic_s() >= kill_due_s:
            number = signal.SIGKILL
            told.clear()
        elif SYSTEM_CLOCK.monotonic_s() >= kill_due_s + _GIVEN_UP_S:
            return  # the kernel does not let it go, or it belongs to somebody else
        for pid in left - told:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= left
        SYSTEM_CLOCK.sleep(_LOOK_EVERY_S)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _list_left(leader: int | None) -> set[int]:
    """The processes of a group, and this one's children, some of them adopted; but no runner of a home."""
    own, left = os.getpid(), set[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            state, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if state != "Z" and (int(parent) == own or int(group) == leader):
                left.add(int(folder.name))
    return {pid for pid in left if not is_runner(pid)}
