"""Signals that end a driver: SIGTERM, and the status after Ctrl-C.

SIGTERM would end a program before the listener has reported everything. Its handler runs only while Python's
main thread runs Python code or waits in a call that signals interrupt, such as py4j's. The handler does not
call py4j itself: the main thread may be in the middle of such a call, or hold a lock that the work needs. So
a separate thread does the work, and the handler waits for it in bounded time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

log = logging.getLogger("waybill.spark")

TERMINATION_TIMEOUT_S: Final = 5.0
"""How long SIGTERM is held back at most."""

Work = Callable[[], None]


def watch(drain: Work, end: Work) -> None:
    """Run work before SIGTERM takes its previous effect; further calls do nothing.

    This has no effect in a thread other than the main one, where Python allows no handlers, or if SIGTERM is
    ignored or has a handler that is not Python's.

    Args:
        drain: the work before the user's handler, which need not end the program.
        end: the work before the signal kills the program.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)
    if isinstance(before, _Handler):
        return
    if callable(before):
        signal.signal(signal.SIGTERM, _Handler(drain, before))
    elif before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _Handler(end, _kill))


def within(timeout_s: float, work: Work) -> bool:
    """Do the work in a thread, wait for it, and return whether it was done; slow work continues by itself."""
    done = threading.Event()

    def do() -> None:
        try:
            work()
        except Exception:
            log.warning("the end of this application is not fully recorded", exc_info=True)
        else:
            done.set()

    thread = threading.Thread(target=do, name="waybill-termination", daemon=True)
    # From 3.12 on, Python starts no thread any more once it is finalizing.
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join(timeout_s)
    return done.is_set()


def stay_interrupted() -> None:
    """Let a program that Ctrl-C ended exit with SIGINT (status 130), whatever ran at its exit.

    CPython notes that Ctrl-C ended the program, and forgets it when anything compiles a text, as an import of
    attrs classes does. A text that Ctrl-C ends makes it note that again.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102 - our own text


class _Handler:
    """Runs the work once for all signals that arrive in the meantime, then passes each on."""

    def __init__(self, work: Work, then: Callable[[int, FrameType | None], object]) -> None:
        self._work = work
        self._then = then
        self._is_working = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._is_working:
            if self._then is not _kill:
                self._then(number, frame)
            return
        self._is_working = True
        try:
            within(TERMINATION_TIMEOUT_S, self._work)
        finally:
            # Whatever the wait raises, such as Ctrl-C, the signal is not lost.
            self._is_working = False
            self._then(number, frame)


def _kill(number: int, _: FrameType | None) -> None:
    """Let the signal take its default effect, so that the program's exit status shows it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
