"""What the doors that take something in have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from waybill.collector.problem import Problem, busy
from waybill.collector.receipt import receipt_headers
from waybill.transport.errors import JournalError

if TYPE_CHECKING:
    from waybill.collector.intake import Intake
    from waybill.collector.rejects import Rejects
    from waybill.transport.journal import Kind

log = logging.getLogger("waybill.collector")

Headers = tuple[tuple[str, str], ...]


class Keeping:
    """Keeps what a door has admitted.

    Args:
        intake: the way into the journal.
        rejects: where what is refused goes.
        node: the journal's name in receipts.
        system_name: stamped on records that carry none.
    """

    def __init__(self, intake: Intake, rejects: Rejects, *, node: str, system_name: str) -> None:
        self._intake = intake
        self._rejects = rejects
        self._node: Final = node
        self._system_name: Final = system_name

    async def keep(self, kind: Kind, bodies: Sequence[bytes]) -> Headers:
        """Keep entries, all or none of them.

        Returns:
            The receipt, as headers of the answer.

        Raises:
            Problem: they cannot be kept now.
        """
        try:
            seqs = await self._intake.keep([(kind, body, self._system_name) for body in bodies])
        except JournalError as error:
            raise _cannot_keep(error) from None
        return receipt_headers(self._node, seqs)

    async def reject(self, kind: Kind, refused: Sequence[tuple[bytes, str]]) -> None:
        """Keep what was refused, with the reasons.

        Raises:
            Problem: it cannot be kept now.
        """
        try:
            await asyncio.to_thread(self._rejects.add, kind, refused)
        except JournalError as error:
            raise _cannot_keep(error) from None


def _cannot_keep(error: JournalError) -> Problem:
    log.warning("nothing can be kept: %s", error)
    return busy(f"nothing was kept, and the server's log says why ({type(error).__name__})")
