"""Forks: objects with locks or connections prepare for one, and are made usable after it.

All in one place, because hooks of several modules, or forks in several threads, would disturb each other.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol


class Forkable(Protocol):
    """An object that is used on both sides of a fork."""

    def before_fork(self) -> None:
        """Finish what is under way, and let nothing new begin."""

    def after_fork(self, *, in_child: bool) -> None:
        """Become usable again, on either side."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()
_ready: list[Forkable] = []
_lock = threading.RLock()
"""Held while an object is registered, and during a fork, so that one thread forks at a time."""


def survive_forks(thing: Forkable) -> None:
    """Prepare `thing` for every fork of this process, for as long as it is referenced elsewhere."""
    with _lock:
        _known.add(thing)


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """Let no other thread fork in the block: a child would inherit descriptors that are open briefly."""
    with _lock:
        yield


def _before() -> None:
    _lock.acquire()
    for thing in sorted(_known, key=id):
        thing.before_fork()
        _ready.append(thing)


def _after(*, in_child: bool) -> None:
    try:
        while _ready:
            _ready.pop().after_fork(in_child=in_child)
    finally:
        _lock.release()


os.register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(in_child=False),
    after_in_child=lambda: _after(in_child=True),
)
