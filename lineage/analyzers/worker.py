"""Analyzers in a process of their own, so that no text can hold up or end the process that asks.

The process is started for the first event, works on one event at a time, and is started again after it has
died: of an event that took too long or too much memory, only this is told. What may be no text's fault, such
as a kill or a lack of memory, is tried again as for a projection; see `waybill.transport.runner.isolation`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from waybill.transport.runner import PAUSES_S

from .analyzer import Finding

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .analyzer import Catalog, Found

TIME_S_MAX: Final = 5.0
"""So much time of the processor may the analyzers take for one event."""
WAIT_S_MAX: Final = 60.0
"""So long may they take when they wait, or when others have the processor."""
MEMORY_BYTES_MAX: Final = 2**30
"""So much memory may their process address, where the system can limit that."""
EVENT_BYTES_MAX: Final = 2**20
"""No larger event is analyzed, the columns that are known with it."""

_OF_MACHINE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM})
"""The signals of a death for which the text may be no reason."""
_AHEAD: Final = 100
"""So many events wait for the process at most."""


class Request(msgspec.Struct, frozen=True):
    """An event on its way to the process, with the columns that are known, by namespace and name."""

    key: str
    event: bytes
    catalog: tuple[tuple[str, str, dict[str, str]], ...]


class Result(msgspec.Struct, frozen=True):
    """What analyzers said of one event.

    Attributes:
        key: that it was submitted with.
        findings: what each analyzer found, and its problems.
        problem: why there are none; None if the analyzers have read it.
        is_accident: whether this, or a problem of an analyzer, may have nothing to do with the event.
    """

    key: str
    findings: tuple[Finding, ...] = ()
    problem: str | None = None
    is_accident: bool = False

    @property
    def events(self) -> list[Found]:
        """The job events that were found."""
        return [msgspec.json.decode(one.event) for one in self.findings if one.event]

    @property
    def problems(self) -> list[str]:
        """Why there are none, or none of one of the analyzers."""
        return [one for one in (self.problem, *(one.problem for one in self.findings)) if one]


class Worker:
    """Has analyzers read events, one after the other; no call but `take` waits.

    Use it from one thread, in a `with` block, or close it.

    Args:
        time_s: so much time of the processor may the analyzers take for one event.
        wait_s: so long may they take, whatever they wait for.
        pauses_s: how long it waits before each further try of an event, after an accident.
    """

    def __init__(
        self, *, time_s: float = TIME_S_MAX, wait_s: float = WAIT_S_MAX, pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._time_s, self._wait_s = time_s, wait_s
        self._pauses_s = pauses_s
        self._closing = threading.Event()
        self._results: deque[Future[Result]] = deque()
        self._thread = ThreadPoolExecutor(1, "waybill-analyzers")
        self._process: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """How many events have been submitted whose results have not been taken."""
        return len(self._results)

    def submit(self, key: str, event: bytes, catalog: Catalog) -> None:
        """Have an event of a job, as JSON, analyzed; its result comes under the key."""
        known = tuple((*dataset, dict(columns)) for dataset, columns in catalog.items())
        request = msgspec.msgpack.encode(Request(key, event, known))
        self._results.append(self._thread.submit(self._ask, key, request))

    def poll(self) -> list[Result]:
        """The results that have come since the last call, in the order of their events."""
        results: list[Result] = []
        while self._results and self._results[0].done():
            results.append(self.take())
        return results

    def take(self) -> Result:
        """Wait for the next result; there must be a pending event."""
        return self._results.popleft().result()

    def close(self) -> None:
        """End the process; events without a result get none."""
        with self._lock:
            self._closing.set()
            if self._process is not None:
                self._process[0].kill()
        self._thread.shutdown(cancel_futures=True)
        self._end()

    def _ask(self, key: str, request: bytes) -> Result:
        if len(request) > EVENT_BYTES_MAX:
            return Result(key, problem=f"the event has more than {EVENT_BYTES_MAX:,} bytes")
        for pause_s in self._pauses_s:
            result = self._try(key, request)
            if not result.is_accident:
                return result
            self._end()  # it may have what is short
            if self._closing.wait(pause_s):
                return result
        return self._try(key, request)

    def _try(self, key: str, request: bytes) -> Result:
        try:
            connection = self._start()
            connection.send_bytes(request)
            return msgspec.msgpack.decode(connection.recv_bytes(), type=Result)
        except (OSError, EOFError):  # it died before, or in between
            problem, is_accident = self._end()
            return Result(key, problem=problem, is_accident=is_accident)

    def _start(self) -> Connection:
        with self._lock:
            if self._closing.is_set():
                raise EOFError
            if self._process is None:
                from multiprocessing import Pipe  # which most programs that load this do not need

                ours, its = Pipe()
                command = [
                    sys.executable,
                    "-m",
                    str(__package__),
                    str(its.fileno()),
                    str(self._time_s),
                    str(self._wait_s),
                ]
                with its:
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=2, cwd="/", start_new_session=True,
                        pass_fds=[its.fileno()],
                    )  # fmt: skip
                self._process = process, ours
            return self._process[1]

    def _end(self) -> tuple[str, bool]:
        """End the process, if there is one; returns how it died, and whether that may be an accident."""
        with self._lock:
            if self._process is None:
                return "the analyzers' process cannot be started", True
            (process, connection), self._process = self._process, None
        connection.close()
        try:
            code = process.wait(TIME_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code == -signal.SIGPROF:
            return f"reading it takes more than {self._time_s:g} s of the processor", False
        if code == -signal.SIGALRM:
            return f"reading it takes longer than {self._wait_s:g} s", True
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"reading it ends the analyzers' process ({how})", -code in _OF_MACHINE


def analyze_all(events: Iterable[tuple[str, Found, Catalog]]) -> Iterator[Result]:
    """Have a worker read events, each with its key and the columns that are known; waits for each result."""
    with Worker() as worker:
        for key, event, catalog in events:
            worker.submit(key, msgspec.json.encode(event), catalog)
            if worker.pending >= _AHEAD:
                yield worker.take()
        while worker.pending:
            yield worker.take()
