"""Waiting for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


def wait_until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Wait until a condition holds; fail if it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.02)


def at_once(works: Iterable[Callable[[], object]]) -> None:
    """Do several things, each in a thread of its own, and wait until all are done."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
