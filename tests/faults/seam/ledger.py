"""A process's report before it died: what it offered, what was acknowledged, and what must never happen."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector

from seam.plan import Call


@dataclass
class Ledger:
    """The emissions of one or more processes.

    Attributes:
        offered: numbers of emissions about to be made, in order; they may have been kept or not.
        acknowledged: numbers of acknowledged emissions.
        shown: numbers of emissions that a flush has filed.
        refused: numbers of refused emissions, with the error's type.
        faults: events that must never happen, for example an error of a foreign type.
        calls: every call that could have failed, as counted by the process.
        spans: which calls count: the first, and the one after the last.
        struck: the call that failed; None if none has.
    """

    offered: list[int] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    shown: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    struck: Call | None = None

    def take(self, line: bytes) -> None:
        """Enter a process's message."""
        word, value = json.loads(line)
        if word == "offer":
            self.offered.append(value)
        elif word == "ack":
            self.acknowledged.add(value)
        elif word == "shown":
            self.shown.update(value)
        elif word == "refuse":
            self.refused[value[0]] = value[1]
        elif word == "call":
            self.calls.append(Call(*value))
        elif word == "span":
            self.spans.append((value[0], value[1]))
        elif word == "struck":
            self.struck = Call(*value)
        else:
            self.faults.append(value)


class Teller:
    """A process's end of the pipe to its ledger; messages survive even if the process dies next.

    Args:
        descriptor: the end to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._write = os.write  # before it can be made to fail

    def tell(self, word: str, value: object) -> None:
        """Send one message."""
        self._write(self._descriptor, json.dumps([word, value]).encode() + b"\n")


def run_in_process(
    work: Callable[[Teller], object],
    ledger: Ledger,
    *,
    timeout_s: float = 60,
    kill_after_s: float | None = None,
) -> int:
    """Do `work` in a fork of this process and keep its ledger.

    Args:
        work: the work to do.
        ledger: gets the process's messages.
        timeout_s: a process that takes longer is killed, and that is a fault.
        kill_after_s: kill it after this long, which is not a fault.

    Returns:
        Its exit status as `subprocess` gives it: negative for a signal.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.close(reading)
            teller = Teller(writing)
            try:
                work(teller)
                status = 0
            except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
                teller.tell("fault", traceback.format_exc())
        finally:
            os._exit(status)
    os.close(writing)
    try:
        _listen(reading, pid, ledger, timeout_s, kill_after_s)
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _listen(reading: int, pid: int, ledger: Ledger, timeout_s: float, kill_after_s: float | None) -> None:
    start_s, rest = time.monotonic(), b""
    with DefaultSelector() as selector:
        selector.register(reading, EVENT_READ)
        while True:
            limit_s = timeout_s if kill_after_s is None else kill_after_s
            ready = selector.select(max(start_s + limit_s - time.monotonic(), 0))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                if kill_after_s is None:
                    ledger.faults.append(f"still at work after {timeout_s} s")
                kill_after_s, start_s = None, time.monotonic()
                continue
            chunk = os.read(reading, 1 << 16)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                ledger.take(line)
