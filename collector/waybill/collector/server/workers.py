"""Workers: several processes that answer at one address, and the one that looks after them.

Each has its own interpreter, event loop and connections; the system spreads new connections over them. They
share the home's journal as any processes do. One that dies takes its own connections with it and no other's,
and another one takes its place. They end with the process that looks after them, however that ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from types import FrameType

log = logging.getLogger("waybill.collector")

WORKERS_MAX: Final = 64

END_TIMEOUT_S: Final = 60.0
"""How long workers get to finish what is under way."""

_POLL_S: Final = 0.1
_LIVES_S: Final = 10.0
_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 30.0
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Worker(NamedTuple):
    """What a worker is told when it begins.

    Attributes:
        place: which one it is, from 0.
        ready: called once it takes requests.
        life: a descriptor that can be read once the process that looks after it is gone.
    """

    place: int
    ready: Callable[[], None]
    life: int


class _Place:
    """Where one worker is, and after its death another one."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.begun_s = 0.0
        self.due_s = 0.0
        self.pause_s = _PAUSE_S

    def died(self, now_s: float) -> None:
        """Be due again: at once after a long life, ever later after short ones."""
        self.pid = None
        lived = now_s - self.begun_s >= _LIVES_S
        self.pause_s = _PAUSE_S if lived else min(self.pause_s * 2, _PAUSE_S_MAX)
        self.due_s = now_s if lived else now_s + self.pause_s


class Workers:
    """Looks after the workers of one collector; made and used by a process with one thread, for it forks.

    Args:
        count: how many.
        work: what one does, until SIGTERM.
        idle: called about ten times a second.
    """

    def __init__(self, count: int, work: Callable[[Worker], None], idle: Callable[[], None]) -> None:
        self._work = work
        self._idle = idle
        self._places = [_Place() for _ in range(count)]
        self._stopping = threading.Event()

    def run(self, on_ready: Callable[[], None]) -> None:
        """Have them work until SIGTERM or SIGINT, and all of them end.

        Args:
            on_ready: called once every worker takes requests.
        """
        life, held = os.pipe()
        said, say = os.pipe()
        os.set_blocking(said, False)
        with self._signals():
            try:
                waited_for = len(self._places)
                while not self._stopping.wait(_POLL_S):
                    self._look(life, held, say)
                    if waited_for > 0 and (heard := _heard(said)):
                        waited_for -= heard
                        if waited_for <= 0:
                            on_ready()
                    self._idle()
            finally:
                self._end()
                for descriptor in (life, held, said, say):
                    os.close(descriptor)

    def _look(self, life: int, held: int, say: int) -> None:
        now_s = time.monotonic()
        for at, place in enumerate(self._places):
            if place.pid is not None and (status := _status_of(place.pid)) is not None:
                log.error("worker %d (process %d) has ended: %s", at, place.pid, status)
                place.died(now_s)
            if place.pid is None and now_s >= place.due_s:
                place.begun_s = now_s
                place.pid = self._fork(Worker(at, lambda: _say(say), life), held)

    def _fork(self, worker: Worker, held: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.close(held)
            for number in _STOPS:
                signal.signal(number, signal.SIG_DFL)
            self._work(worker)
            code = 0
        except BaseException:
            log.exception("worker %d failed", worker.place)
        finally:
            logging.shutdown()
            # Nothing that the parent has begun is to be ended here.
            os._exit(code)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(_: int, __: FrameType | None) -> None:
            self._stopping.set()

        before = {number: signal.signal(number, stop) for number in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self) -> None:
        for number, timeout_s in ((signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, END_TIMEOUT_S)):
            for place in self._places:
                if place.pid is not None:
                    os.kill(place.pid, number)
            deadline_s = time.monotonic() + timeout_s
            while any(place.pid is not None for place in self._places) and time.monotonic() < deadline_s:
                for place in self._places:
                    if place.pid is not None and _status_of(place.pid) is not None:
                        place.pid = None
                time.sleep(_POLL_S)


def _status_of(pid: int) -> str | None:
    """How a child has ended; None while it lives."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _heard(said: int) -> int:
    with contextlib.suppress(BlockingIOError):
        return len(os.read(said, WORKERS_MAX))
    return 0


def _say(say: int) -> None:
    os.write(say, b".")
