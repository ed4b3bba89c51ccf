"""The intake: one thread that commits, for all requests that wait, what they want kept.

Whatever came while one commit was under way goes into the next, so one fsync serves many requests and the
event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from waybill.collector.http import busy
from waybill.transport.errors import JournalError, JournalFullError

if TYPE_CHECKING:
    from waybill.transport.journal import Journal, Kind

log = logging.getLogger("waybill.collector")

Item = tuple["Kind", bytes, str]
"""Kind, body and stamped system name of an entry."""

STALLED_S: Final = 5.0
"""A commit that takes longer holds up so many that no more are let in until it has ended."""

WAITING_MAX: Final = 2_000
"""How many requests may wait to be kept; `Bodies` has the bound of their bytes."""

_COMMIT_BYTES_MAX: Final = 16 * 2**20
_IDLE_S: Final = 1.0


class _Waiting:
    """What one request wants kept."""

    __slots__ = ("error", "future", "items", "seqs")

    def __init__(self, items: Sequence[Item], future: asyncio.Future[list[int]]) -> None:
        self.items = items
        self.future = future
        self.seqs: list[int] = []
        self.error: JournalError | None = None


class CommitQueue:
    """Keeps entries for the requests of one event loop.

    Args:
        journal: where they are kept.
        idle: called in the intake's thread after a commit and about once a second.
    """

    def __init__(self, journal: Journal, idle: Callable[[], None]) -> None:
        self._journal = journal
        self._idle = idle
        self.last_seq = journal.last_seq()
        """The newest entry when the intake began."""
        self._waiting = 0
        self._commit_began_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="waybill-intake", daemon=True)
        self._thread.start()

    async def keep(self, items: Sequence[Item]) -> list[int]:
        """Keep the entries of one request, all or none of them, durable on return.

        Returns:
            Their sequence numbers.

        Raises:
            JournalFullError: there is no room.
            JournalError: they could not be kept.
            Problem: the journal does not keep up with what is sent.
        """
        began_s = self._commit_began_s
        is_stalled = began_s is not None and time.monotonic() - began_s > STALLED_S
        if is_stalled or self._waiting >= WAITING_MAX:
            raise busy("the journal does not keep up with what is sent; send it again in a moment")
        waiting = _Waiting(items, self._loop.create_future())
        self._waiting += 1
        try:
            self._queue.put(waiting)
            return await waiting.future
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Commit what waits, and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going_on = True
        while going_on:
            going_on = self._commit_next()
            try:
                self._idle()
            except Exception:
                log.exception("the runner cannot be looked after; it is tried again")

    def _commit_next(self) -> bool:
        """Commit all that wait and let go of it; False when those were the last."""
        group, going_on = self._next_group()
        if group:
            self._commit(group)
            self._loop.call_soon_threadsafe(_tell, group)
        return going_on

    def _next_group(self) -> tuple[list[_Waiting], bool]:
        """All that wait, once there is one; False with the last."""
        group: list[_Waiting] = []
        size_bytes = 0
        try:
            waiting = self._queue.get(timeout=_IDLE_S)
            while waiting is not None:
                group.append(waiting)
                size_bytes += sum(len(body) for _, body, _ in waiting.items)
                if size_bytes > _COMMIT_BYTES_MAX:
                    return group, True
                waiting = self._queue.get_nowait()
        except queue.Empty:
            return group, True
        return group, False

    def _commit(self, group: list[_Waiting]) -> None:
        self._commit_began_s = time.monotonic()
        try:
            seqs = self._journal.append_many([item for waiting in group for item in waiting.items])
        except JournalError as error:
            if len(group) == 1 or isinstance(error, JournalFullError):
                for waiting in group:
                    waiting.error = error
                return
            # One of them cannot be kept; the others can.
            for waiting in group:
                self._commit([waiting])
            return
        finally:
            self._commit_began_s = None
        at = 0
        for waiting in group:
            waiting.seqs = seqs[at : at + len(waiting.items)]
            at += len(waiting.items)


def _tell(group: list[_Waiting]) -> None:
    for waiting in group:
        if waiting.future.done():  # its request was cancelled
            continue
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.seqs)
