"""The acceptor: admitted entries go into the journal, within bounds, and are acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from waybill.transport.errors import JournalError
from waybill.transport.journal import Receipt

from ..http import Problem, busy

if TYPE_CHECKING:
    from waybill.transport import Rejects
    from waybill.transport.journal import Journal, Kind

    from ..metrics import Metrics

log = logging.getLogger("waybill.collector")

STALLED_S: Final = 5.0
"""While a commit takes longer than this, no further requests are accepted."""

WAITING_MAX: Final = 2_000
"""How many requests may wait for the journal; `Bodies` limits their bytes."""

_RECEIPT_HEADER: Final = "waybill-receipt"
"""It names the last of the entries that a response acknowledges; the others come directly before it."""

REJECTING_MAX: Final = 500
"""How many requests may wait until their rejects are stored."""


class Acceptor:
    """Stores what an endpoint has admitted, and what it has refused; one event loop uses it."""

    def __init__(self, journal: Journal, rejects: Rejects, metrics: Metrics, *, system_name: str) -> None:
        self._journal = journal
        self._rejects = rejects
        self._metrics = metrics
        self._system_name: Final = system_name
        self._last_seq = journal.last_seq()
        self._waiting = 0
        self._outcomes: deque[tuple[asyncio.Future[list[int]], list[int] | Exception]] = deque()
        self._is_loop_told = False
        # A separate thread, because a disk that does not respond blocks it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-rejects")
        self._rejecting = 0

    async def keep(self, kind: Kind, bodies: Sequence[bytes], count: int) -> tuple[tuple[str, str], ...]:
        """Store entries that contain `count` events or records, all or none; returns the receipt as headers.

        Raises:
            Problem: they cannot be stored now.
        """
        if self._waiting >= WAITING_MAX or self._journal.committing_s > STALLED_S:
            raise busy("the journal cannot keep up with the requests; try again in a moment")
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            items = [(kind, body, self._system_name) for body in bodies]
            self._journal.submit(items, partial(self._on_done, future))
            seqs = await future
        except JournalError as error:
            raise _cannot_keep(error) from None
        finally:
            self._waiting -= 1
        name = kind.name.lower()
        self._metrics.count("accepted", count, kind=name)
        self._metrics.count("accepted_bytes", sum(map(len, bodies)), kind=name)
        self._metrics.count("repeated", sum(seq <= self._last_seq for seq in seqs))
        self._last_seq = max(self._last_seq, *seqs)
        return ((_RECEIPT_HEADER, str(Receipt(self._journal.node, max(seqs)))),) if seqs else ()

    def _on_done(self, future: asyncio.Future[list[int]], outcome: list[int] | Exception) -> None:
        # In the journal's thread. The loop is woken once per commit.
        self._outcomes.append((future, outcome))
        if not self._is_loop_told:
            self._is_loop_told = True
            future.get_loop().call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._is_loop_told = False  # first, so that anything that finishes from now on wakes the loop again
        while self._outcomes:
            future, outcome = self._outcomes.popleft()
            if future.done():  # its request was cancelled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    async def reject(self, kind: Kind, refused: Sequence[tuple[bytes, str]]) -> None:
        """Store rejects, the bytes and the reason of each.

        Raises:
            Problem: they cannot be stored now.
        """
        if self._rejecting >= REJECTING_MAX:
            raise busy("rejects arrive faster than they can be stored; try again in a moment")
        self._metrics.count("rejected", len(refused), kind=kind.name.lower())
        self._rejecting += 1
        try:
            add = partial(self._rejects.add, kind, refused)
            await asyncio.get_running_loop().run_in_executor(self._thread, add)
        except JournalError as error:
            raise _cannot_keep(error) from None
        finally:
            self._rejecting -= 1


def _cannot_keep(error: JournalError) -> Problem:
    log.warning("nothing can be stored: %s", error)
    return busy(f"nothing was stored; see the server's log for the cause ({type(error).__name__})")
