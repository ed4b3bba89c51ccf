"""Analyzers in a process of their own, so that no text can hold up or end the process that asks.

The process is started for the first event, works on one event at a time, and is started again after it has
died: of an event that took too long or too much memory, only this is told.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final, Self, cast

import msgspec

from .analyzer import Finding

if TYPE_CHECKING:
    from types import TracebackType

    from .analyzer import Catalog, Found

TIME_S_MAX: Final = 5.0
"""So long may the analyzers take for one event."""
MEMORY_BYTES_MAX: Final = 2**30
"""So much memory may their process address, where the system can limit that."""
EVENT_BYTES_MAX: Final = 2**20
"""No larger event is analyzed, the columns that are known with it."""


_AHEAD: Final = 100
"""So many events wait for the process at most."""


class Result(msgspec.Struct, frozen=True):
    """What analyzers said of one event.

    Attributes:
        key: that it was submitted with.
        findings: what each analyzer found, and its problems.
        problem: why there are none; None if the analyzers have read it.
    """

    key: str
    findings: tuple[Finding, ...] = ()
    problem: str | None = None


class Request(msgspec.Struct, frozen=True):
    """An event on its way to the process, with the columns that are known, by namespace and name."""

    event: bytes
    catalog: tuple[tuple[str, str, dict[str, str]], ...]


class Answer(msgspec.Struct, frozen=True):
    """What comes back; see `Result`."""

    findings: tuple[Finding, ...] = ()
    problem: str | None = None


class Worker:
    """Has analyzers read events, one after the other; no call but `take` waits.

    Use it from one thread, in a `with` block, or close it.

    Args:
        time_s: so long may the analyzers take for one event, in seconds.
    """

    def __init__(self, *, time_s: float = TIME_S_MAX) -> None:
        self._time_s = time_s
        self._asked: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self.pending = 0
        """How many events have been submitted whose results have not been taken."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, key: str, event: bytes, catalog: Catalog) -> None:
        """Have an event of a job, as JSON, analyzed; its result comes under the key."""
        self.pending += 1
        known = tuple((*dataset, dict(columns)) for dataset, columns in catalog.items())
        self._asked.put((key, msgspec.msgpack.encode(Request(event, known))))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="waybill-analyzers", daemon=True)
            self._thread.start()

    def poll(self) -> list[Result]:
        """The results that have come since the last call, in the order of their events."""
        results: list[Result] = []
        with contextlib.suppress(queue.Empty):
            while True:
                results.append(self._told.get_nowait())
                self.pending -= 1
        return results

    def take(self) -> Result:
        """Wait for the next result; there must be a pending event."""
        result = self._told.get()
        self.pending -= 1
        return result

    def close(self) -> None:
        """End the process; events without a result get none."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None and not self._is_closed:
            key, request = asked
            answer = None
            if len(request) > EVENT_BYTES_MAX:
                answer = Answer(problem=f"the event has more than {EVENT_BYTES_MAX:,} bytes")
            else:
                with contextlib.suppress(OSError, ValueError):  # it died before, or in between
                    answer = self._ask(request)
            answer = answer or Answer(problem=self._end())
            self._told.put(Result(key, answer.findings, answer.problem))
        self._end()

    def _ask(self, request: bytes) -> Answer | None:
        """Have the process answer; None: it died."""
        process = self._start()
        if process is None:
            return None
        write_message(cast("IO[bytes]", process.stdin), request)
        answer = read_message(cast("IO[bytes]", process.stdout))
        return None if answer is None else msgspec.msgpack.decode(answer, type=Answer)

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_closed:
                return None
            if self._process is None:
                command = [sys.executable, "-m", __package__, str(self._time_s)]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
                )
            return self._process

    def _end(self) -> str:
        """End the process, if there is one, and say how it died."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return "the analyzers' process cannot be started"
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        try:
            code = process.wait(TIME_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code == -signal.SIGALRM:
            return f"reading it takes longer than {self._time_s:g} s"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"reading it ends the analyzers' process ({how})"


def analyze_all(events: Iterable[tuple[str, Found, Catalog]]) -> Iterator[Result]:
    """Have a worker read events, each with its key and the columns that are known; waits for each result."""
    with Worker() as worker:
        for key, event, catalog in events:
            worker.submit(key, msgspec.json.encode(event), catalog)
            if worker.pending >= _AHEAD:
                yield worker.take()
        while worker.pending:
            yield worker.take()


def write_message(stream: IO[bytes], body: bytes) -> None:
    """Write one message to a pipe."""
    stream.write(b"%d\n" % len(body))
    stream.write(body)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Wait for one message from a pipe; None: its other end is closed."""
    length = stream.readline()
    if not length:
        return None
    body = stream.read(int(length))
    return body if len(body) == int(length) else None
