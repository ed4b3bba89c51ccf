"""What the doors that take something in have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from waybill.collector.http import Problem, busy
from waybill.collector.intake.receipt import receipt_headers
from waybill.transport.errors import JournalError

if TYPE_CHECKING:
    from waybill.collector.intake.commit_queue import CommitQueue
    from waybill.collector.intake.rejects import Rejects
    from waybill.collector.metrics import Metrics
    from waybill.transport.journal import Kind

log = logging.getLogger("waybill.collector")

REJECTING_MAX: Final = 500
"""How many requests may wait for what was refused of them; `Bodies` has the bound of their bytes."""

Headers = tuple[tuple[str, str], ...]


class Acceptor:
    """Keeps what a door has admitted.

    Args:
        intake: the way into the journal.
        rejects: where what is refused goes.
        metrics: where both are counted.
        node: the journal's name in receipts.
        system_name: stamped on records that carry none.
    """

    def __init__(
        self, intake: CommitQueue, rejects: Rejects, metrics: Metrics, *, node: str, system_name: str
    ) -> None:
        self._intake = intake
        self._rejects = rejects
        self._metrics = metrics
        self._node: Final = node
        self._last_seq = intake.last_seq
        self._system_name: Final = system_name
        # One of its own, for a disk that does not answer keeps it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-rejects")
        self._rejecting = 0

    async def keep(self, kind: Kind, bodies: Sequence[bytes], count: int) -> Headers:
        """Keep entries, all or none of them.

        Args:
            kind: what they are.
            bodies: their bytes.
            count: how many events or records that is.

        Returns:
            The receipt, as headers of the answer.

        Raises:
            Problem: they cannot be kept now.
        """
        try:
            seqs = await self._intake.keep([(kind, body, self._system_name) for body in bodies])
        except JournalError as error:
            raise _cannot_keep(error) from None
        name = kind.name.lower()
        self._metrics.count("accepted", count, kind=name)
        self._metrics.count("accepted_bytes", sum(map(len, bodies)), kind=name)
        self._metrics.count("repeated", sum(seq <= self._last_seq for seq in seqs))
        self._last_seq = max(self._last_seq, *seqs)
        return receipt_headers(self._node, seqs)

    async def reject(self, kind: Kind, refused: Sequence[tuple[bytes, str]]) -> None:
        """Keep what was refused, with the reasons.

        Raises:
            Problem: it cannot be kept now.
        """
        if self._rejecting >= REJECTING_MAX:
            raise busy("what is refused cannot be kept as fast as it is sent; send it again in a moment")
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
    log.warning("nothing can be kept: %s", error)
    return busy(f"nothing was kept, and the server's log says why ({type(error).__name__})")
