"""Reading back from Marquez: run events by windows of event time, and the edges of its graph by job.

``GET /api/v1/events/lineage`` orders by event time with no tie-breaker, so pages by offset lose and repeat
events that share an instant, and shift while new ones arrive. So each request asks for the events from an
instant on, and the database answers it by one statement: all events before the last one's instant are in the
answer, and the next request begins at that instant. Where all events of an answer share one instant, a larger
page is asked for; Marquez sets no limit. Events may come twice, but none that was there is left out.

Marquez answers 500 for a whole page if it cannot read one event of it. Then the window is halved until that
event's instant is known, and everything else is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec
import requests

from waybill.facets import parse_instant_us
from waybill.facets.event import DatasetName
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import WaybillError

from ..backend import base_url, open_session, shown

if TYPE_CHECKING:
    from waybill.facets.flows import FlowNode

PAGE_EVENTS: Final = 500
PAGE_RUNS: Final = 2_000
"""Marquez reads all runs of a job for each page of them."""
RETRY_WAITS_S: Final = (0.5, 2.0, 8.0)

_EVENTS: Final = "/api/v1/events/lineage"
_RUN: Final = "/api/v1/jobs/runs/{}"
_JOB: Final = "/api/v1/namespaces/{}/jobs/{}"
_TIMEOUT_S: Final = (5.0, 120.0)
_BAD_NAME: Final = 400
"""The response to a name that its web server does not allow in a path: such a job cannot be queried."""
_NOT_THERE: Final = frozenset({404, _BAD_NAME})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNREADABLE_MAX: Final = 1_000
"""More instants that cannot be read are taken for a Marquez that does not work."""
_AFTER_LAST_US: Final = 253_402_300_799_000_000
"""An end for windows, in epoch microseconds: Marquez hides events after 2030 unless requested."""

T = TypeVar("T")


class MarquezReadError(WaybillError):
    """Marquez does not answer, or the server is not Marquez."""


class _PageUnreadableError(MarquezReadError):
    """An answer cannot be had for one window, while Marquez may answer for others."""


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    totalCount: int  # noqa: N815 - Marquez's own name


class _Timed(msgspec.Struct):
    eventTime: str  # noqa: N815 - OpenLineage's own name


class _Job(msgspec.Struct):
    inputs: list[DatasetName]
    outputs: list[DatasetName]


class ShownRun(msgspec.Struct, rename="camel"):
    """A run as Marquez shows it: with the times of its last start and its last end."""

    id: str
    state: str
    started_at: str | None = None
    ended_at: str | None = None

    @property
    def started_us(self) -> int | None:
        """When it started, epoch microseconds; None while that is not known."""
        return parse_instant_us(self.started_at) if self.started_at else None

    @property
    def ended_us(self) -> int | None:
        """When it ended, likewise."""
        return parse_instant_us(self.ended_at) if self.ended_at else None


class _Runs(msgspec.Struct):
    runs: list[ShownRun]


class EventReader:
    """Reads what a Marquez has stored. Every method raises a `MarquezReadError` if it does not answer.

    It requests `page_events` or `page_runs` at once, and waits for `retry_waits_s` before each retry of a
    failed request.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        page_events: int = PAGE_EVENTS,
        page_runs: int = PAGE_RUNS,
        retry_waits_s: Sequence[float] = RETRY_WAITS_S,
    ) -> None:
        self._page_events = page_events
        self._page_runs = page_runs
        self._retry_waits_s = retry_waits_s
        self._base = base_url(url)
        self._shown_url = shown(url)
        self._session = open_session(self._base, api_key)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def extent_us(self) -> tuple[int, int, int] | None:
        """The first and the last event time, and how many events there are; None when there are none.

        Where the first or the last event cannot be read, all of time lies in between.
        """
        try:
            first = self._get(0, _AFTER_LAST_US, limit=1)
            last = self._get(0, _AFTER_LAST_US, limit=1, direction="desc")
        except _PageUnreadableError:
            self._get(0, 1, limit=1)
            return 1, _AFTER_LAST_US, 1
        if not first.events or not last.events:
            return None
        return _time_us(first.events[0]), _time_us(last.events[0]), last.totalCount

    def read(self, start_us: int, end_us: int, on_unreadable: Callable[[int], None]) -> Iterator[list[bytes]]:
        """The events from one instant on until before another, epoch microseconds, as Marquez gives them.

        `on_unreadable` is called with each instant that has an event which Marquez itself cannot read. Other
        events of that very instant are left out with it.
        """
        windows, found = [(start_us, end_us)], 0
        while windows:
            start_us, end_us = windows.pop()
            is_instant = end_us - start_us == 1
            try:
                for events in self._read_window(start_us, end_us, insists=is_instant):
                    if events:
                        start_us = max(start_us, _time_us(events[-1]))
                    yield [bytes(event) for event in events]
            except _PageUnreadableError:
                if not is_instant:
                    middle_us = (start_us + end_us + 1) // 2
                    windows += [(middle_us, end_us), (start_us, middle_us)]
                    continue
                found += 1
                if found > _UNREADABLE_MAX:
                    raise
                # Nothing is in this window: a Marquez that does not answer for it either does not work.
                self._get(0, 1, limit=1)
                on_unreadable(start_us)

    def _read_window(self, start_us: int, end_us: int, *, insists: bool) -> Iterator[list[msgspec.Raw]]:
        limit = self._page_events
        while start_us < end_us:
            events = self._get(start_us, end_us, limit=limit, insists=insists).events
            yield events
            if len(events) < limit:
                return
            reached_us = _time_us(events[-1])
            limit = self._page_events if reached_us > start_us else 2 * limit
            start_us = max(start_us, reached_us)

    def runs(self, job: FlowNode) -> Iterator[list[ShownRun]] | None:
        """The runs of a job, the latest first; None if the backend has no such job.

        Pages may repeat runs and leave some out. They end early where Marquez cannot read one of its runs.
        """
        path = f"{_path(job)}/runs"
        first = self._page_of_runs(path, 0)
        return None if first is None else self._pages_of_runs(path, first)

    def _pages_of_runs(self, path: str, page: list[ShownRun]) -> Iterator[list[ShownRun]]:
        offset = 0
        while page:
            yield page
            if len(page) < self._page_runs:
                return
            offset += len(page)
            page = self._page_of_runs(path, offset) or []

    def _page_of_runs(self, path: str, offset: int) -> list[ShownRun] | None:
        try:
            parameters: dict[str, str | int] = {"limit": self._page_runs, "offset": offset}
            answer = self._ask(path, parameters, accepted=_NOT_THERE, insists=False)
            if answer.status_code in _NOT_THERE:
                return [] if answer.status_code == _BAD_NAME else None
            return self._decode(answer.content, _Runs).runs
        except (_PageUnreadableError, RecursionError):
            return []

    def run(self, run_id: str) -> ShownRun | None:
        """One run; None if the backend has no such run."""
        answer = self._ask(_RUN.format(quote(run_id, safe="")), {}, accepted=_NOT_THERE)
        return None if answer.status_code in _NOT_THERE else self._decode(answer.content, ShownRun)

    def draws(self, job: FlowNode, inputs: Collection[FlowNode], outputs: Collection[FlowNode]) -> bool:
        """Whether Marquez's graph has a job with at least these edges."""
        answer = self._ask(_path(job), {}, accepted=_NOT_THERE)
        if answer.status_code in _NOT_THERE:
            return answer.status_code == _BAD_NAME
        found = self._decode(answer.content, _Job)
        drawn = ({(one.namespace, one.name) for one in side} for side in (found.inputs, found.outputs))
        return all(side.issuperset(wanted) for side, wanted in zip(drawn, (inputs, outputs), strict=True))

    def _get(
        self,
        after_us: int,
        before_us: int,
        *,
        limit: int,
        direction: str = "asc",
        insists: bool = True,
    ) -> _Page:
        parameters: dict[str, str | int] = {
            "after": _instant(after_us),
            "before": _instant(before_us),
            "limit": limit,
            "offset": 0,
            "sortDirection": direction,
        }
        content = self._ask(_EVENTS, parameters, insists=insists).content
        try:
            return self._decode(content, _Page)
        except RecursionError:
            raise _PageUnreadableError(
                f"Marquez at {self._shown_url} has an event that is nested too deeply; remove it there"
            ) from None

    def _ask(
        self,
        path: str,
        parameters: dict[str, str | int],
        accepted: Collection[int] = (),
        *,
        insists: bool = True,
    ) -> requests.Response:
        """A response with status 200 or another accepted status; a failed request is retried a few times.

        Unless it `insists`, a request that is answered 500 is not retried.
        """
        for wait_s in (*self._retry_waits_s, None):
            try:
                answer = self._session.get(self._base + path, params=parameters, timeout=_TIMEOUT_S)
            except requests.RequestException as error:
                failure = MarquezReadError
                problem = f"does not answer ({type(error).__name__})"
            else:
                if answer.status_code == HTTPStatus.OK or answer.status_code in accepted:
                    return answer
                problem = f"answers {answer.status_code}"
                is_of_page = answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
                failure = _PageUnreadableError if is_of_page else MarquezReadError
                if is_of_page and not insists:
                    break
                too_many = answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
                if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR and not too_many:
                    break
            if wait_s is not None:
                SYSTEM_CLOCK.sleep(wait_s)
        raise failure(
            f"Marquez at {self._shown_url} {problem}; check it, the URL and the API key, and do it again"
        )

    def _decode(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, ValueError):
            raise MarquezReadError(
                f"the server at {self._shown_url} is not Marquez; use Marquez's own URL, such as "
                "http://localhost:5000"
            ) from None


def _path(job: FlowNode) -> str:
    return _JOB.format(*(quote(name, safe="") for name in job))


def _time_us(event: msgspec.Raw) -> int:
    try:
        return parse_instant_us(msgspec.json.decode(event, type=_Timed).eventTime)
    except ValueError as error:
        raise MarquezReadError(
            f"Marquez has an event whose time cannot be read ({error}); remove it there"
        ) from None


def _instant(time_us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
