"""The doors for OpenLineage: `POST /api/v1/lineage` and `POST /api/v1/lineage/batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.collector.http import Answer, Problem, Request, json_answer, looked_into
from waybill.transport.admission import EXPLAINED_BYTES_MAX, event_errors
from waybill.transport.errors import AdmissionError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.collector.http import Bodies
    from waybill.collector.intake import Acceptor
    from waybill.transport.admission import Redaction

LINEAGE_PATH: Final = "/api/v1/lineage"
BATCH_PATH: Final = "/api/v1/lineage/batch"

ELEMENTS_MAX: Final = 100_000
"""How many events or records a body may have, unless all of them are good."""

EXPLAINED_MAX: Final = 100
"""For how many refused elements of one body every reason is told, as long as they have `EXPLAINED_BYTES_MAX`
together; for more, the first.
"""

BETWEEN_REASONS: Final = " | "

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class FailedEvent(msgspec.Struct, frozen=True):
    """One event of a batch that was not kept, as OpenLineage's answer to a batch has it."""

    index: int
    reason: str
    retriable: bool = False


class BatchSummary(msgspec.Struct, frozen=True):
    """How a batch came out, in numbers."""

    received: int
    successful: int
    failed: int
    retriable: int
    non_retriable: int


class BatchResult(msgspec.Struct, frozen=True):
    """OpenLineage's answer to a batch."""

    status: str
    summary: BatchSummary
    failed_events: tuple[FailedEvent, ...] = ()


class LineageDoors:
    """Takes OpenLineage events.

    Args:
        bodies: where their bytes come from.
        keeping: where they go.
        redaction: what admits them.
    """

    def __init__(self, bodies: Bodies, keeping: Acceptor, redaction: Redaction) -> None:
        self._bodies = bodies
        self._keeping = keeping
        self._redaction = redaction

    async def event(self, request: Request) -> Answer:
        """One event: 201 once it is durable; 400 if it is no JSON, 422 if it breaks the specification."""
        body = await self._bodies.read(request)
        try:
            kept = await looked_into(body, self._redaction.admit)
        except AdmissionError as error:
            await self._keeping.reject(Kind.OPENLINEAGE, [(body, str(error))])
            raise refusal(await looked_into(body, partial(event_errors, first=error))) from None
        headers = await self._keeping.keep(Kind.OPENLINEAGE, [kept], 1)
        return Answer(HTTPStatus.CREATED, list(headers))

    async def batch(self, request: Request) -> Answer:
        """An array of events: each is kept or refused for itself; 200 says how many were."""
        body = await self._bodies.read(request)
        good, failed, refused = await looked_into(body, self._sort)
        if refused:
            await self._keeping.reject(Kind.OPENLINEAGE, refused)
        headers = await self._keeping.keep(Kind.OPENLINEAGE, good, len(good)) if good else ()
        received = len(good) + len(failed)
        status = "success" if not failed else "partial_success" if good else "failure"
        summary = BatchSummary(received, len(good), len(failed), 0, len(failed))
        return json_answer(BatchResult(status, summary, tuple(failed)), headers=headers)

    def _sort(self, body: bytes) -> _Sorted:
        """Tell the events of a batch that may be kept from those that may not."""
        found, reasons = _Sorted([], [], []), Reasons(event_errors)
        for index, element in enumerate(elements(body, "an array of OpenLineage events")):
            event = bytes(element)
            try:
                found.good.append(self._redaction.admit(event))
            except AdmissionError as error:
                told = BETWEEN_REASONS.join(reasons.of(event, error))
                found.failed.append(FailedEvent(index, told))
                found.refused.append((event, str(error)))
        return found


class _Sorted(NamedTuple):
    """The events of a batch.

    Attributes:
        good: those that may be kept.
        failed: the others, for the answer.
        refused: the same, for the rejects.
    """

    good: list[bytes]
    failed: list[FailedEvent]
    refused: list[tuple[bytes, str]]


def elements(body: bytes, wanted: str) -> list[msgspec.Raw]:
    """The elements of a JSON array, each as the bytes that were sent, which are not copied.

    Raises:
        Problem: it is no JSON, no array, or one of more than `ELEMENTS_MAX`.
    """
    try:
        if body.count(b",") >= ELEMENTS_MAX:
            _count(body)
        return _ELEMENTS.decode(body)
    except msgspec.ValidationError:
        detail = f"the body is no array; send {wanted}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f"the body is no JSON ({error}); send {wanted}"
    except RecursionError:
        detail = f"the body is nested too deeply; send {wanted}"
    raise Problem(HTTPStatus.BAD_REQUEST, detail)


class _Element:
    """Stands for an element that is only counted."""


_COUNTED: Final = _Element()


def _count(body: bytes) -> None:
    """Count the elements while they are decoded, so that no more than the most of them take memory."""
    left = ELEMENTS_MAX

    def count(_: object, __: object) -> _Element:
        nonlocal left
        left -= 1
        if left < 0:
            detail = f"the body has more than {ELEMENTS_MAX:,} elements; send less at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        return _COUNTED

    msgspec.json.decode(body, type=list[_Element], dec_hook=count)


class Reasons:
    """Tells why elements of one body may not be kept: every reason, for as long as that takes no long time.

    Args:
        faults_of: what finds everything that is wrong with an element.
    """

    def __init__(self, faults_of: Callable[[bytes, AdmissionError], Sequence[AdmissionError]]) -> None:
        self._faults_of = faults_of
        self._left = EXPLAINED_MAX
        self._left_bytes = EXPLAINED_BYTES_MAX

    def of(self, element: bytes, error: AdmissionError) -> list[str]:
        """Every reason why an element may not be kept, or the first.

        Where the error was caught no variable may outlive it: its traceback has that frame, and in a cycle
        the bodies that the frame knows would stay in memory until the garbage collector looks.
        """
        if not self._left or len(element) > self._left_bytes:
            return [str(error)]
        self._left -= 1
        self._left_bytes -= len(element)
        return [str(fault) for fault in self._faults_of(element, error)]


def refusal(faults: Sequence[AdmissionError]) -> Problem:
    """What a sender is told of something that may not be kept, and of everything that is wrong with it."""
    error = faults[0]
    no_json = (error.where == "$" and "is no JSON" in error.what) or "is no UTF-8" in error.what
    status = HTTPStatus.BAD_REQUEST if no_json else HTTPStatus.UNPROCESSABLE_ENTITY
    return Problem(status, str(error), errors=[str(fault) for fault in faults])
