"""Forks: what has locks or connections is brought in order before one and made usable after it.

One place for all of them, because hooks of several modules, and forks in several threads, would mix.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol


class Forkable(Protocol):
    """Something that is carried over a fork."""

    def before_fork(self) -> None:
        """Finish what is under way and let nobody begin."""

    def after_fork(self, *, in_child: bool) -> None:
        """Be usable again, on either side."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()
_ready: list[Forkable] = []
_lock = threading.RLock()
"""Held while something becomes known, and from before a fork until after it: one thread forks at a time."""


def survive_forks(thing: Forkable) -> None:
    """Have `thing` told of every fork of this process, for as long as somebody else holds it."""
    with _lock:
        _known.add(thing)


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """Let no other thread fork meanwhile: the child would have the descriptors that are open for a moment."""
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
