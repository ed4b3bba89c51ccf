"""Forks: objects with locks or connections are prepared for a fork, and made usable after it.

All in one place, because hooks of several modules, or forks in several threads, would interfere.
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
        """Finish work in progress, and let nothing new begin."""

    def after_fork(self, *, in_child: bool) -> None:
        """Become usable again, in the parent or the child."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()
_ready: list[Forkable] = []
_lock = threading.RLock()
"""Held while an object is registered and during a fork, so that only one thread forks at a time."""


def survive_forks(thing: Forkable) -> None:
    """Prepare `thing` for every fork of this process, as long as it is referenced elsewhere."""
    with _lock:
        _known.add(thing)


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """Prevent forks by other threads in the block: a child would inherit briefly open descriptors."""
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
