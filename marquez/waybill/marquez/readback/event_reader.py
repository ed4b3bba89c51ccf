"""Reading back from Marquez: run events by windows of event time, and the edges of its graph by job.

``GET /api/v1/events/lineage`` orders by event time with no tie-breaker, so pages by offset lose and repeat
events that share an instant, and shift while new ones arrive. So each request asks for the events from an
instant on, and the database answers it by one statement: all events before the last one's instant are in the
answer, and the next request begins at that instant. Where all events of an answer share one instant, a larger
page is asked for; Marquez sets no limit. Events may come twice, but none that was there is left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec
import requests

from waybill.facets import parse_instant_us
from waybill.marquez.backend import base_url, open_session, shown
from waybill.marquez.envelope import envelope_of
from waybill.marquez.graph import Named
from waybill.transport.errors import WaybillError

if TYPE_CHECKING:
    from waybill.marquez.graph import Node

PAGE_EVENTS: Final = 500
RETRY_WAITS_S: Final = (0.5, 2.0, 8.0)

_EVENTS: Final = "/api/v1/events/lineage"
_JOB: Final = "/api/v1/namespaces/{}/jobs/{}"
_TIMEOUT_S: Final = (5.0, 120.0)
_BAD_NAME: Final = 400
"""The answer to a name that its web server allows in no path: such a job cannot be asked for."""
_NOT_THERE: Final = frozenset({404, _BAD_NAME})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AFTER_LAST_US: Final = 253_402_300_799_000_000
"""An end for windows, in epoch microseconds: Marquez hides what is later than 2030 unless asked for it."""

T = TypeVar("T")


class MarquezReadError(WaybillError):
    """Marquez does not answer, or what answers is not Marquez."""


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    totalCount: int  # noqa: N815 - Marquez's own name


class _Job(msgspec.Struct):
    inputs: list[Named]
    outputs: list[Named]


class EventReader:
    """Reads what a Marquez has stored. Every method raises a `MarquezReadError` if it does not answer.

    It asks for `page_events` at once, and waits for `retry_waits_s` before each further attempt of a request
    that fails.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        page_events: int = PAGE_EVENTS,
        retry_waits_s: Sequence[float] = RETRY_WAITS_S,
    ) -> None:
        self._page_events = page_events
        self._retry_waits_s = retry_waits_s
        self._base = base_url(url)
        self._shown_url = shown(url)
        self._session = open_session(self._base, api_key)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def extent_us(self) -> tuple[int, int, int] | None:
        """The first and the last event time, and how many events there are; None when there are none."""
        first = self._get(0, _AFTER_LAST_US, limit=1)
        last = self._get(0, _AFTER_LAST_US, limit=1, direction="desc")
        if not first.events or not last.events:
            return None
        return _time_us(first.events[0]), _time_us(last.events[0]), last.totalCount

    def read(self, start_us: int, end_us: int) -> Iterator[list[bytes]]:
        """The events from one instant on until before another, epoch microseconds, as Marquez gives them."""
        limit = self._page_events
        while start_us < end_us:
            events = self._get(start_us, end_us, limit=limit).events
            yield [bytes(event) for event in events]
            if len(events) < limit:
                return
            reached_us = _time_us(events[-1])
            limit = self._page_events if reached_us > start_us else 2 * limit
            start_us = max(start_us, reached_us)

    def draws(self, job: Node, inputs: Collection[Node], outputs: Collection[Node]) -> bool:
        """Whether Marquez's graph has a job with at least these edges."""
        path = _JOB.format(*(quote(name, safe="") for name in job))
        answer = self._ask(path, {}, accepted=_NOT_THERE)
        if answer.status_code in _NOT_THERE:
            return answer.status_code == _BAD_NAME
        found = self._decode(answer.content, _Job)
        has_inputs = {one.node for one in found.inputs}.issuperset(inputs)
        return has_inputs and {one.node for one in found.outputs}.issuperset(outputs)

    def _get(self, after_us: int, before_us: int, *, limit: int, direction: str = "asc") -> _Page:
        parameters: dict[str, str | int] = {
            "after": _instant(after_us),
            "before": _instant(before_us),
            "limit": limit,
            "offset": 0,
            "sortDirection": direction,
        }
        return self._decode(self._ask(_EVENTS, parameters).content, _Page)

    def _ask(
        self, path: str, parameters: dict[str, str | int], accepted: Collection[int] = ()
    ) -> requests.Response:
        """An answer of 200 or of another accepted status; a request that fails is repeated a few times."""
        for wait_s in (*self._retry_waits_s, None):
            try:
                answer = self._session.get(self._base + path, params=parameters, timeout=_TIMEOUT_S)
            except requests.RequestException as error:
                problem = f"does not answer ({type(error).__name__})"
            else:
                if answer.status_code == HTTPStatus.OK or answer.status_code in accepted:
                    return answer
                problem = f"answers {answer.status_code}"
                too_many = answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
                if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR and not too_many:
                    break
            if wait_s is not None:
                time.sleep(wait_s)
        raise MarquezReadError(
            f"Marquez at {self._shown_url} {problem}; see to it, or to the URL and the API key, and do it "
            "again"
        )

    def _decode(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, ValueError):
            raise MarquezReadError(
                f"what answers at {self._shown_url} is not Marquez; give Marquez's own URL, as "
                "http://localhost:5000"
            ) from None


def _time_us(event: msgspec.Raw) -> int:
    try:
        return parse_instant_us(str(envelope_of(bytes(event)).event_time))
    except ValueError as error:
        raise MarquezReadError(
            f"Marquez has an event whose time cannot be read ({error}); remove it there"
        ) from None


def _instant(time_us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
