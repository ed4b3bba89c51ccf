"""Asking a collector over HTTP, with the same answers and errors as a home."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from urllib.parse import quote, urljoin

import msgspec
import requests

from waybill.exporter import IncompleteError, Query
from waybill.exporter.query import Dimension, EntriesGoneError, Kind, Stats, Sum, heard_sums
from waybill.facets import ProvenanceRecord
from waybill.marquez.backend import open_session, shown
from waybill.marquez.links import DUPLICATES_PATH, OPEN_PATH, RECORDS_PATH
from waybill.transport import FileContent, NotFoundError, WaybillError

from ..index import OpenFile
from ..journey import Journey, ToldJourney
from ..records import Records
from .naming import UnknownNameError
from .opened import check_open

if TYPE_CHECKING:
    from requests import Response

    from waybill.exporter.verification import Explanation
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.journal import Receipt

    from ..comparing import RunDiff
    from ..graph import Question
    from ..index import JobRun
    from .receipts import ReceiptStatus

_PAGE_RECORDS: Final = 1_000
_TIMEOUTS_S: Final = (5.0, 90.0)
"""To connect, and between the parts of an answer: a collector may take 60 s to find a journey."""

_TOO_LONG: Final = {HTTPStatus.REQUEST_URI_TOO_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE}
"""The HTTP server refuses these by itself, before the collector sees them, and says nothing else."""

_WARNED: Final = re.compile(r'199 waybill "([^"]*)"')

_T = TypeVar("_T")


class CollectorReadError(WaybillError):
    """A collector does not answer, refuses a question, or the server is no collector.

    Args:
        url: its address, without secrets.
        what: the problem and what to do about it, as the end of a sentence.
    """

    def __init__(self, url: str, what: str) -> None:
        super().__init__(url, what)
        self.url = url
        self.what = what

    def __str__(self) -> str:
        return f"the collector at {self.url} {self.what}"


class _UnknownName(msgspec.Struct):
    what: str
    name: str
    nearest: tuple[str, ...]


class _Problem(msgspec.Struct):
    """The part of a problem (RFC 9457) that is shown."""

    detail: str
    errors: tuple[str, ...] = ()
    unknown: _UnknownName | None = None


class CollectorClient:
    """Asks one collector; for its methods see `Lineage`.

    Args:
        url: its address.
        api_key: a key with the role read; None: the collector has no keys.
    """

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = f"{url.rstrip('/')}/"
        self._shown = shown(url)
        self._session = open_session(url, api_key)
        self.notes: dict[str, None] = {}
        self.unsettled: set[RecordKey] = set()

    @contextlib.contextmanager
    def begin(self) -> Iterator[Self]:
        """Begin a question: what earlier answers lacked is not said of its own."""
        self.notes = {}
        yield self

    def tables(
        self, query: Query, columns: Sequence[str] = ProvenanceRecord.__struct_fields__
    ) -> Iterator[Any]:
        """The records that answer a query, a page at a time."""
        params = self._params_of(query)
        params.append(("order", "oldest" if query.oldest_first else "newest"))
        if query.after is not None:
            params.append(("after", query.after))
        left = query.limit
        url: str | None = urljoin(self._url, RECORDS_PATH[1:])
        params.append(("limit", str(min(_PAGE_RECORDS, left or _PAGE_RECORDS))))
        while url is not None and (left is None or left > 0):
            response = self._get(url, params)
            part = Records(self._decoded(response, list[ProvenanceRecord])[:left])
            yield part.to_arrow().select(list(columns))
            left = None if left is None else left - len(part)
            following = response.links.get("next")
            url, params = (None if following is None else urljoin(response.url, following["url"])), []

    def open_files(self, query: Query) -> list[OpenFile]:
        """The files that have begun and not ended."""
        check_open(query)
        url = urljoin(self._url, OPEN_PATH[1:])
        return self._decoded(self._get(url, self._params_of(query)), list[OpenFile])

    def job_runs(
        self,
        told: Iterable[ProvenanceRecord | OpenFile],  # noqa: ARG002
        query: Query | None = None,  # noqa: ARG002
    ) -> dict[str, JobRun]:
        """None: what asks a collector shows records, not runs."""
        return {}

    def duplicates(self) -> list[list[FileContent]]:
        """The files of each content that several files have."""
        return self._decoded(self._get(urljoin(self._url, DUPLICATES_PATH[1:]), []), list[list[FileContent]])

    def stats(self, query: Query) -> Stats:
        """The number of records that answer a query, by kind."""
        url = urljoin(self._url, f"{RECORDS_PATH[1:]}/stats")
        return self._decoded(self._get(url, self._params_of(query)), Stats)

    def sums(self, by: Sequence[Dimension], query: Query) -> dict[Kind, int]:
        """The number of records that answer a query, of each kind."""
        url = urljoin(self._url, f"{RECORDS_PATH[1:]}/stats")
        response = self._get(url, [*self._params_of(query), ("by", ",".join(by))])
        return heard_sums(self._decoded(response, list[Sum]), by)

    def trace(
        self, did: str, *, up: bool, down: bool, depth: int | None, as_of_ms: int | None = None
    ) -> Journey:
        """The journey of a file."""
        given = {"up": str(up).lower(), "down": str(down).lower(), "depth": depth, "as_of": as_of_ms}
        params = [(name, str(value)) for name, value in given.items() if value is not None]
        response = self._get(urljoin(self._url, f"trace/{quote(did, safe='')}"), params, about=did)
        return Journey.of(self._decoded(response, ToldJourney))

    def answer(self, question: Question[_T]) -> _T:
        """Answer a question about the graph of datasets and jobs."""
        given = msgspec.structs.asdict(question).items()
        params = [(key, str(value)) for key, value in given if value is not None]
        response = self._get(urljoin(self._url, question.path[1:]), params, about=question.path)
        return cast("_T", self._decoded(response, question.answer))

    def levels(self) -> msgspec.Raw:
        """The service levels, as JSON."""
        return self._decoded(self._get(urljoin(self._url, "slis"), []), msgspec.Raw)

    def explain(self, did: str) -> Explanation:
        """Raise a `CollectorReadError`: the stored events are only where the home is."""
        what = f"does not explain files over HTTP; run `waybill explain {did}` on its host"
        raise CollectorReadError(self._shown, what)

    def diff(self, first: str, second: str) -> RunDiff:
        """Raise a `CollectorReadError`: the stored events are only where the home is."""
        what = f"does not compare runs over HTTP; run `waybill diff {first} {second}` on its host"
        raise CollectorReadError(self._shown, what)

    def locate(self, receipt: Receipt) -> ReceiptStatus | None:
        """Where an acknowledged entry is; None if the collector never issued the receipt."""
        from .receipts import ReceiptStatus  # which loads what reads files

        params = [("receipt", str(receipt))]
        try:
            return self._decoded(
                self._get(urljoin(self._url, "where"), params, about=str(receipt)), ReceiptStatus
            )
        except NotFoundError:
            return None

    def _params_of(self, query: Query) -> list[tuple[str, str]]:
        if query.dids is not None or query.parent_dids is not None:
            raise CollectorReadError(
                self._shown, "takes one did in a question, not a set of them; ask about one after the other"
            )
        return query.http_params()

    def _get(self, url: str, params: list[tuple[str, str]], *, about: str = "") -> Response:
        try:
            response = self._session.get(url, params=params, timeout=_TIMEOUTS_S, allow_redirects=False)
        except (requests.RequestException, ValueError) as error:
            # Its text may show the key or a password in the address.
            what = f"cannot be reached ({type(error).__name__}); check the address and whether it runs"
            raise CollectorReadError(self._shown, what) from None
        if response.status_code == HTTPStatus.OK:
            self.notes.update(dict.fromkeys(_WARNED.findall(response.headers.get("warning", ""))))
            return response
        raise self._error_of(response, about)

    def _error_of(self, response: Response, about: str) -> WaybillError:
        if response.status_code in _TOO_LONG:
            what = (
                f"answers {response.status_code}: the question is longer than 64 KiB; give fewer conditions"
            )
            return CollectorReadError(self._shown, what)
        try:
            problem = msgspec.json.decode(response.content, type=_Problem)
        except msgspec.MsgspecError:
            return self._is_none(f"answers {response.status_code}")
        status = response.status_code
        if status == HTTPStatus.NOT_FOUND:
            if problem.unknown is not None:
                return UnknownNameError(*msgspec.structs.astuple(problem.unknown))
            return NotFoundError(problem.detail) if about else self._is_none("answers 404")
        if status == HTTPStatus.GONE:
            return EntriesGoneError(problem.detail)
        if problem.errors:
            return IncompleteError(problem.errors)
        return CollectorReadError(self._shown, f"answers {status}: {problem.detail}")

    def _decoded(self, response: Response, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError:
            raise self._is_none("does not answer as a collector does") from None

    def _is_none(self, what: str) -> CollectorReadError:
        return CollectorReadError(self._shown, f"{what}; give the address that `waybill serve` says")
