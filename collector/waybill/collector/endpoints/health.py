"""The endpoints for operators: health, metrics, and what became of an entry."""

from __future__ import annotations

import asyncio
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.collector.event_logs import EventLogStatus
from waybill.collector.http import Answer, Problem, Request, json_answer, wrong_root
from waybill.collector.intake import STALLED_S, Receipt
from waybill.collector.metrics import TEXT, event_logs_text, home_text
from waybill.transport.errors import JournalError, RootError
from waybill.transport.journal import NEARLY_FULL
from waybill.transport.runner import statuses

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.collector.metrics import Metrics, Tallies
    from waybill.transport import Journal

_OWNER: Final = "collector"

BATCH_BYTES: Final = 2**20
"""Readiness means that a body of this size can be kept; most are smaller."""

_BATCH_ROOM_BYTES: Final = 2 * BATCH_BYTES
"""It is written to the WAL, and later to the database."""


class Readiness(msgspec.Struct, frozen=True):
    """Whether events can be taken, and what is wrong.

    Attributes:
        ready: whether what is sent now can be kept; a projection with a problem does not change that.
        problems: what is wrong, by the name of the projection, ``event-logs`` or ``journal``.
    """

    ready: bool
    problems: dict[str, str]


class HealthEndpoints:
    """Says how the collector is.

    Args:
        journal: the home's.
        root: where the home files.
        metrics: what this worker counts.
        tallies: what other workers have counted, if there are any.
        follows: whether the collector follows Spark's event logs.
    """

    def __init__(
        self, journal: Journal, root: Path, metrics: Metrics, tallies: Tallies | None, *, follows: bool
    ) -> None:
        self._journal = journal
        self._root = root
        self._metrics = metrics
        self._tallies = tallies
        self._follows = follows
        # One probe at a time, on a thread of its own: a disk that does not answer blocks no other thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-ready")
        self._metrics_thread = ThreadPoolExecutor(1, thread_name_prefix="waybill-metrics")
        self._probe: asyncio.Future[Readiness] | None = None
        self._probe_until_s = 0.0

    async def live(self, _: Request) -> Answer:
        """200 for as long as requests are answered at all."""
        return json_answer({"live": True})

    async def ready(self, _: Request) -> Answer:
        """200 if what is sent now can be kept, else 503; the body names the problems."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.get_running_loop().run_in_executor(self._thread, self._readiness)
            self._probe_until_s = time.monotonic() + STALLED_S
        try:
            left_s = self._probe_until_s - time.monotonic()
            readiness = await asyncio.wait_for(asyncio.shield(self._probe), max(left_s, 0.0))
        except TimeoutError:
            problem = f"a commit takes more than {STALLED_S:g} s; see what keeps the disk of the home"
            readiness = Readiness(ready=False, problems={"journal": problem})
        status = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(readiness, status=status)

    async def metrics(self, _: Request) -> Answer:
        """What was counted, for Prometheus."""
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._metrics_thread, self._metrics_text)
        return Answer(HTTPStatus.OK, [("content-type", TEXT)], text.encode())

    async def where(self, request: Request) -> Answer:
        """What became of the entry that a receipt names."""
        from waybill.collector.receipt_status import receipt_status

        receipt = Receipt.parse(request.scope.query_string.removeprefix("receipt="))
        if receipt is None:
            detail = "the parameter receipt is missing or no receipt; give ?receipt=NODE-NUMBER"
            raise Problem(HTTPStatus.BAD_REQUEST, detail)
        try:
            found = await asyncio.to_thread(receipt_status, self._journal, self._root, receipt)
        except RootError as error:
            raise wrong_root(error) from None
        if found is None:
            detail = "this collector never gave that receipt; ask the one that answered"
            raise Problem(HTTPStatus.NOT_FOUND, detail)
        return json_answer(found)

    def _metrics_text(self) -> str:
        total = self._tallies.total(self._metrics) if self._tallies else self._metrics
        lines = [*total.text(), *home_text(self._journal)]
        if self._follows and (status := EventLogStatus.of(self._journal)) is not None:
            lines += event_logs_text(status)
        return "\n".join([*lines, ""])

    def _readiness(self) -> Readiness:
        journal = self._journal
        try:
            # Only a write tells whether the disk takes one.
            journal.commit(_OWNER, put={"probe": b""})
            problems = {name: status.problem for name, status in statuses(journal).items() if status.problem}
            if self._follows and (followed := EventLogStatus.of(journal)) is not None:
                problems |= followed.summary
            filled = journal.filled
            free_bytes = shutil.disk_usage(journal.home).free
        except (JournalError, OSError) as error:
            return Readiness(ready=False, problems={"journal": str(error)})
        setting = f"journal_max_bytes = {journal.max_bytes}"
        is_full = filled >= 1
        has_room = free_bytes >= _BATCH_ROOM_BYTES
        if not has_room:
            problems["journal"] = f"its disk has only {free_bytes} bytes left; make room there"
        elif is_full:
            problems["journal"] = f"has reached {setting}"
        elif filled >= NEARLY_FULL:
            problems["journal"] = f"is {filled:.0%} full, and nothing more is kept from {setting} on"
        return Readiness(ready=has_room and not is_full, problems=problems)
