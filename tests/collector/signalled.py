"""Collectors that get signals at chosen moments: python signalled.py HOME WORKERS MOMENTS SIGNALS

Each moment is one start, in a fork of this process, which has loaded everything already. MOMENTS is
`lines`, `lines/N` (each line of the server and of granian that a start and a stop execute, or every Nth),
`ms:FIRST:LAST:STEP` after the start, or `stop:FIRST:LAST:STEP`, in milliseconds after the first signal, which
comes once it listens. SIGNALS are sent one after another, without a further pause. For each moment that does
not end within `BOUND_S` and free the lease, there is a line on stdout; the last has their number.
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


def be(
    settings: Settings,
    workers: int,
    at: Line | None,
    signals: list[int],
    told: int = -1,
    listens: int = -1,
) -> None:
    """Serve until a signal comes: at a line, once it listens, or from outside, which is told of that."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        tracer = Tracer(at, signals)
        me = os.getpid()
        if at is not None or told >= 0:
            sys.settrace(tracer)

        def on_listening(_: str) -> None:
            # A line of the stop is met only if something begins it.
            if told >= 0 or at is not None:
                os.kill(me, signals[0])
            if listens >= 0:
                os.write(listens, b"1")

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


def lines_of(settings: Settings, workers: int, number: int) -> list[Line]:
    """The lines that a start and a stop execute."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        be(settings, workers, None, [number], write)
    os.close(write)
    with open(read, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        said = file.read().splitlines()
    os.waitpid(pid, 0)
    return [(path, int(line)) for path, _, line in (one.rpartition(":") for one in said)]


def main() -> None:
    home, workers, moments, words = sys.argv[1:]
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
    kind, _, rest = moments.partition(":")
    if kind in {"ms", "stop"}:
        first, last, step = map(float, rest.split(":"))
        whens: list[Any] = [first + step * at for at in range(round((last - first) / step) + 1)]
    else:
        whens = lines_of(settings, int(workers), signals[0])[:: int(kind.partition("/")[2] or 1)]
    for when in whens:
        at = when if isinstance(when, tuple) else None
        read, write = os.pipe()
        # Python would swallow a KeyboardInterrupt from within the fork itself.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        pid = os.fork()
        if not pid:
            os.close(read)
            be(settings, int(workers), at, signals, listens=write if kind == "stop" else -1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.close(write)
        if kind == "stop" and os.read(read, 1):
            os.kill(pid, signals[0])
        os.close(read)
        if at is None:
            time.sleep(when / 1000)
            for number in signals[kind == "stop" :]:
                os.kill(pid, number)
        fault = ended(pid, Path(home))
        if fault:
            sys.stdout.write(f"{when}: {fault}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(whens)} moments\n")


if __name__ == "__main__":
    main()
