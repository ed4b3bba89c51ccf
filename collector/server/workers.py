"""Workers: several processes that serve one address, and their parent, which replaces those that die.

Each has its own interpreter, event loop and connections; the system distributes new connections over them.
They share the home's journal like any processes. When one dies, only its own connections break, and another
one replaces it. All of them end with their parent, however it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn

from waybill.transport.clock import SYSTEM_CLOCK

log = logging.getLogger("waybill.collector")

END_TIMEOUT_S: Final = 60.0
"""How long workers get to finish their work."""

_POLL_S: Final = 0.1
_LONG_LIFE_S: Final = 10.0
_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 30.0
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def handlers_restored() -> Iterator[None]:
    """Restore the handlers of the signals that end a collector."""
    before = {number: signal.getsignal(number) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Worker(NamedTuple):
    """The arguments of a worker when it starts.

    Attributes:
        number: which one it is, from 0; its replacement has the same.
        life: a descriptor that becomes readable when the parent has died.
    """

    number: int
    on_ready: Callable[[], object]
    life: int


class _Place:
    """One worker, and after its death, its replacement."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.started_s = 0.0
        self.due_s = 0.0
        self.pause_s = _PAUSE_S

    def reap(self) -> str | None:
        """Return how its process ended; None while it lives, or if there is none."""
        ended, status = os.waitpid(self.pid, os.WNOHANG) if self.pid is not None else (0, 0)
        if not ended:
            return None
        # Replaced at once after a long life, after growing pauses if lives are short.
        self.pid = None
        long = SYSTEM_CLOCK.monotonic_s() - self.started_s >= _LONG_LIFE_S
        self.pause_s = _PAUSE_S if long else min(self.pause_s * 2, _PAUSE_S_MAX)
        self.due_s = 0.0 if long else SYSTEM_CLOCK.monotonic_s() + self.pause_s
        code = os.waitstatus_to_exitcode(status)
        return f"exit code {code}" if code >= 0 else f"signal {-code}"


class Workers:
    """Starts and replaces the workers of one collector; its process must have one thread, because it forks.

    Each worker does `work` until SIGTERM; `idle` is called about ten times a second.
    """

    def __init__(self, count: int, work: Callable[[Worker], None], idle: Callable[[], None]) -> None:
        self._work = work
        self._idle = idle
        self._places = [_Place() for _ in range(count)]
        # It must not contain a lock, because a signal can arrive while the lock is held.
        self._signals_taken = 0

    def run(self, on_ready: Callable[[], None]) -> bool:
        """Work until SIGTERM or SIGINT, then end all; `on_ready` is called once all workers accept requests.

        Returns:
            Whether the end may take its time; False if a second signal has asked for it.
        """
        awaited = len(self._places)
        life, held = os.pipe()
        ready, ready_end = os.pipe()
        os.set_blocking(ready, False)
        with handlers_restored():
            for number in _STOPS:
                signal.signal(number, self._on_signal)
            try:
                while not self._signals_taken:
                    SYSTEM_CLOCK.sleep(_POLL_S)
                    self._replace(lambda: os.write(ready_end, b"."), life, held)
                    with contextlib.suppress(BlockingIOError):
                        if awaited > 0 and (awaited := awaited - len(os.read(ready, awaited))) == 0:
                            on_ready()
                    self._idle()
            finally:
                self._end()
                for descriptor in (life, held, ready, ready_end):
                    os.close(descriptor)
        return self._signals_taken == 1

    def _replace(self, on_ready: Callable[[], object], life: int, held: int) -> None:
        for number, place in enumerate(self._places):
            pid = place.pid
            if (status := place.reap()) is not None:
                log.error("worker %d (process %d) has ended: %s", number, pid, status)
            if place.pid is None and SYSTEM_CLOCK.monotonic_s() >= place.due_s:
                place.started_s = SYSTEM_CLOCK.monotonic_s()
                place.pid = self._fork(Worker(number, on_ready, life), held)

    def _fork(self, worker: Worker, held: int) -> int:
        # A signal must not meet the parent's handlers in the child, where it would be lost.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        try:
            pid = os.fork()
            if not pid:
                self._be(worker, held, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return pid

    def _be(self, worker: Worker, held: int, blocked: set[signal.Signals | int]) -> NoReturn:
        code = 1
        try:
            os.close(held)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Ctrl-C reaches parent and workers, and the parent tells its workers itself.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            self._work(worker)
            code = 0
        except BaseException:
            log.exception("worker %d failed", worker.number)
        finally:
            logging.shutdown()
            os._exit(code)  # nothing that the parent opened is closed here

    def _on_signal(self, *_: object) -> None:
        self._signals_taken += 1

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for place in self._places:
                if place.pid is not None:
                    os.kill(place.pid, number)
            deadline_s = SYSTEM_CLOCK.monotonic_s() + END_TIMEOUT_S
            while (
                any(place.pid is not None for place in self._places)
                and SYSTEM_CLOCK.monotonic_s() < deadline_s
            ):
                if self._signals_taken > 1 and number == signal.SIGTERM:
                    break
                SYSTEM_CLOCK.sleep(_POLL_S)
                for place in self._places:
                    place.reap()
