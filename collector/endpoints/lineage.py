"""The endpoints of OpenLineage: `POST /api/v1/lineage` and `POST /api/v1/lineage/batch`."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets.context import LINEAGE_PATH
from waybill.transport.errors import AdmissionError
from waybill.transport.journal import Kind

from ..http import Answer, Request, json_answer
from .batches import check_values, refusal, sort_elements

if TYPE_CHECKING:
    from waybill.transport.admission import Redaction

    from ..http import Bodies
    from ..intake import Acceptor
    from .batches import Refused

BATCH_PATH: Final = f"{LINEAGE_PATH}/batch"


class FailedEvent(msgspec.Struct, frozen=True):
    """One event of a batch that was not stored, as in OpenLineage's response to a batch."""

    index: int
    reason: str
    retriable: bool = False


class BatchSummary(msgspec.Struct, frozen=True):
    """The counts for a batch."""

    received: int
    successful: int
    failed: int
    retriable: int
    non_retriable: int


class BatchResult(msgspec.Struct, frozen=True):
    """OpenLineage's response to a batch."""

    status: str
    summary: BatchSummary
    failed_events: tuple[FailedEvent, ...] = ()


class LineageEndpoints:
    """Accepts OpenLineage events, after applying `redaction`."""

    def __init__(self, bodies: Bodies, acceptor: Acceptor, redaction: Redaction) -> None:
        self._bodies = bodies
        self._acceptor = acceptor
        self._redaction = redaction

    async def event(self, request: Request) -> Answer:
        """One event: 201 once it is durable; 400 if it is not JSON, 422 if it breaks the specification."""
        body = await self._bodies.read(request)
        try:
            admitted = await self._bodies.checked(body, self._admit)
        except AdmissionError as error:
            await self._acceptor.reject(Kind.OPENLINEAGE, [(body, str(error))])
            raise refusal(error) from None
        headers = await self._acceptor.keep(Kind.OPENLINEAGE, [admitted], 1)
        return Answer(HTTPStatus.CREATED, list(headers))

    async def batch(self, request: Request) -> Answer:
        """An array of events: each is stored or refused independently; the 200 response has the counts."""
        body = await self._bodies.read(request)
        good, refused = await self._bodies.sorted(body, self._sort)
        if refused:
            self._bodies.hold_refused(request, len(refused))
            await self._acceptor.reject(Kind.OPENLINEAGE, [(one.body, one.reason) for one in refused])
        headers = await self._acceptor.keep(Kind.OPENLINEAGE, good, len(good)) if good else ()
        status = "success" if not refused else "partial_success" if good else "failure"
        summary = BatchSummary(len(good) + len(refused), len(good), len(refused), 0, len(refused))
        failed = tuple(FailedEvent(one.index, one.reason) for one in refused)
        return json_answer(BatchResult(status, summary, failed), headers=headers)

    def _admit(self, body: bytes) -> bytes:
        check_values(body)
        return self._redaction.admit(body)

    def _sort(self, body: bytes) -> tuple[list[bytes], list[Refused]]:
        wanted = "an array of OpenLineage events"
        return sort_elements(body, wanted, bytes, lambda _, event: self._redaction.admit(event))
