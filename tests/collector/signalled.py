"""Collectors that get signals at chosen lines: python signalled.py HOME WORKERS EVERY SIGNALS

Each line is one start, in a fork of this process, which has loaded everything already: every so many of the
lines of the server and of granian that a start and a stop execute. SIGNALS come at the line, one after the
other without a pause; the first comes in any case once it listens. For each line whose collector does not end
within `BOUND_S` and free the lease, there is a line on stdout; the last has their number.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import granian.server.embed
import pyarrow as pa  # noqa: F401 - so that it is not loaded at each start

from waybill.collector import server
from waybill.collector.app import Application  # noqa: F401 - loaded once for all
from waybill.collector.server import serve
from waybill.transport import Settings, locks

BOUND_S = 10.0
TRACED = (str(Path(server.__file__).parent), granian.server.embed.__file__)

Line = tuple[str, int]


class Tracer:
    """Notes each line the first time it is executed; at one of them it sends the signals."""

    def __init__(self, at: Line | None, signals: list[int]) -> None:
        self.lines: dict[Line, None] = {}
        self.sent = False
        self._at = at
        self._signals = signals

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
        path = frame.f_code.co_filename
        if not path.startswith(TRACED):
            return None
        line = (path, frame.f_lineno)
        if event == "line" and line not in self.lines:
            self.lines[line] = None
            if line == self._at:
                self.send()
        return self

    def send(self) -> None:
        self.sent = True
        for number in self._signals:
            os.kill(os.getpid(), number)


def be(settings: Settings, workers: int, at: Line | None, signals: list[int], told: int = -1) -> None:
    """Serve until a signal comes at a line, or once it listens; tell a descriptor of the lines until then."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        tracer = Tracer(at, signals)
        me = os.getpid()
        sys.settrace(tracer)

        def on_listening(_: str) -> None:
            # A line of the stop is met only if something begins it.
            os.kill(me, signals[0])

        serve(settings, on_listening=on_listening, workers=workers)
        sys.settrace(None)
        if told >= 0:
            os.write(told, "".join(f"{path}:{line}\n" for path, line in tracer.lines).encode())
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def ended(pid: int, home: Path) -> str:
    """What is wrong with the end of a process; empty if nothing is."""
    deadline_s = time.monotonic() + BOUND_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"still there after {BOUND_S:g} s"
        time.sleep(0.002)
    # Workers whose parent was killed end by themselves.
    while locks.is_held(home, "collector"):
        if time.monotonic() > deadline_s:
            return f"it still holds its lease after {BOUND_S:g} s"
        time.sleep(0.002)
    return ""


def lines_of(settings: Settings, workers: int) -> list[Line]:
    """The lines that a start and a stop execute."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        be(settings, workers, None, [signal.SIGTERM], write)
    os.close(write)
    with open(read, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        said = file.read().splitlines()
    os.waitpid(pid, 0)
    return [(path, int(line)) for path, _, line in (one.rpartition(":") for one in said)]


def main() -> None:
    home, workers, every, words = sys.argv[1:]
    signals = [int(word) for word in words.split(",")]
    logging.getLogger("waybill").addHandler(logging.NullHandler())
    given = {"home": home, "listen": "127.0.0.1:0", "runner": "none", "system_name": "tests"}
    settings = Settings.load(given)
    assert threading.active_count() == 1
    # Whatever started this, `nohup` or a shell's background, may have had them ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lines = lines_of(settings, int(workers))[:: int(every)]
    for line in lines:
        # Python would swallow a KeyboardInterrupt from within the fork itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        pid = os.fork()
        if not pid:
            be(settings, int(workers), line, signals)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        fault = ended(pid, Path(home))
        if fault:
            sys.stdout.write(f"{line}: {fault}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(lines)} lines\n")


if __name__ == "__main__":
    main()
