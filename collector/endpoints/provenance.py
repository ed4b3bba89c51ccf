"""The endpoints for records: DeltaFi's below `/provenance`, and the same responses in our format."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from waybill.facets import ProvenanceRecord
from waybill.lineage.index import OpenFile, as_plain
from waybill.marquez.links import SUMMARIES_PATH, summary_number
from waybill.transport import NotFoundError, flush
from waybill.transport.admission import check_records
from waybill.transport.errors import AdmissionError, JournalError
from waybill.transport.journal import Kind
from waybill.transport.root import check_root

from ..http import JSON, NDJSON, Answer, Problem, Request, failed, json_answer, malformed, read_params
from .batches import array_of, check_in_pieces, refusal, sort_elements
from .deltafi import deltafi_records, deltafi_stats, deltafi_sums
from .reading import answer_within, problems_told

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.exporter.query import Dimension, Summarized
    from waybill.lineage.answers import HomeAnswers
    from waybill.lineage.graph import Question
    from waybill.transport.admission import Bounds
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from ..http import Bodies
    from ..intake import Acceptor
    from .batches import Refused
    from .query_params import QueryParams
    from .reading import Readings

PROVENANCE_PATH: Final = "/provenance"
SUMMARY_PATH: Final = f"{SUMMARIES_PATH}{{number}}"

FLUSH_TIMEOUT_S: Final = 60.0
"""How long a flush may take."""

ANSWER_BYTES_MAX: Final = 16 * 2**20
"""The maximum total size of the records in one response, unless it is one record."""

_ASKED_AT_ONCE: Final = 2
_ITEMS_AT_ONCE: Final = 2_000
"""An answer with more nodes and edges is sent a part at a time."""
_NOT_EXACT: Final = (
    "the journal no longer knows which files this summary stands for: these are all files of its flow that "
    "ended within a minute of its first one"
)
_WANTED: Final = "a JSON array of provenance records"
_FIRST: Final = re.compile(r"\$\[0\]|\$\[\.\.\.\]")

_T = TypeVar("_T")
_Make = Callable[[Iterable["pa.Table"], "HomeAnswers"], tuple[object, str | None]]
"""Makes an answer of records, and the cursor of the next page, if one follows."""


class FailedRecord(msgspec.Struct, frozen=True):
    """One record that was not stored."""

    index: int
    reason: str


class Taken(msgspec.Struct, frozen=True):
    """The results for the records of one request."""

    received: int
    accepted: int
    failed: tuple[FailedRecord, ...] = ()


class ToldRecord(ProvenanceRecord, frozen=True, kw_only=True, gc=False):
    """A record; that of a run that is no file has its job, and all that it read and wrote."""

    job: str | msgspec.UnsetType = msgspec.UNSET
    inputs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    outputs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ToldOpenFile(OpenFile, frozen=True, kw_only=True):
    """An open file or run; a run that is no file has its job, and all that it read and wrote so far."""

    job: str | msgspec.UnsetType = msgspec.UNSET
    inputs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    outputs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ProvenanceEndpoints:
    """Accepts provenance records, and answers queries for them from the files and the journal."""

    def __init__(
        self, bodies: Bodies, acceptor: Acceptor, journal: Journal, settings: Settings, readings: Readings
    ) -> None:
        self._bodies = bodies
        self._acceptor = acceptor
        self._journal = journal
        self._settings = settings
        self._readings = readings
        self._bounds = settings.bounds
        self._check_records = partial(check_records, bounds=self._bounds)
        # Separate threads, so that neither occupies those that everything else shares.
        self._queries = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="waybill-queries")
        self._flushes = ThreadPoolExecutor(1, thread_name_prefix="waybill-flush")

    async def take(self, request: Request) -> Answer:
        """An array of records: 202 once the good ones are durable, with the reason for each bad one.

        If all are bad, the response is 422, and if the body is not JSON, 400: DeltaFi's client then drops
        them.
        """
        body = await self._bodies.read(request)
        try:
            check = partial(check_in_pieces, wanted=_WANTED, check=self._check_records)
            plain, count = await self._or_rejected(body, self._bodies.checked(body, check))
        except AdmissionError as error:
            status = HTTPStatus(error.reason.http_status)
        else:
            headers = await self._acceptor.keep(Kind.PROVENANCE, [plain], count) if count else ()
            return json_answer(Taken(count, count), status=HTTPStatus.ACCEPTED, headers=headers)
        return await self._take_the_good(request, body, status)

    async def _take_the_good(self, request: Request, body: bytes, status: HTTPStatus) -> Answer:
        """Store the good records; if there are none, the status says why."""
        sort = partial(_sort, bounds=self._bounds)
        good, refused = await self._or_rejected(body, self._bodies.sorted(body, sort))
        self._bodies.hold_refused(request, len(refused))
        await self._acceptor.reject(Kind.PROVENANCE, [(one.body, one.reason) for one in refused])
        # Each was the only one of its body, so its reason names it as the first.
        failed = tuple(
            FailedRecord(one.index, _FIRST.sub(f"$[{one.index}]", one.reason, count=1)) for one in refused
        )
        if not good:
            detail = (
                "none of the records can be stored; correct them (see `waybill rejects`) and send them again"
            )
            reasons = [one.reason for one in failed]
            raise Problem(status, detail, errors=reasons, reason="all records are wrong")
        headers = await self._acceptor.keep(Kind.PROVENANCE, [array_of(good)], len(good))
        taken = Taken(len(good) + len(failed), len(good), failed)
        return json_answer(taken, status=HTTPStatus.ACCEPTED, headers=headers)

    async def _or_rejected(self, body: bytes, work: Awaitable[_T]) -> _T:
        try:
            return await work
        except Problem as problem:
            await self._acceptor.reject(Kind.PROVENANCE, [(body, problem.detail)])
            raise

    async def records(self, request: Request, *, from_deltafi: bool = False) -> Answer:
        """The records that match all conditions, newest first; with `from_deltafi` in DeltaFi's format."""
        from .query_params import query_params_of

        params = query_params_of(request.query, from_deltafi=from_deltafi)

        def page_of(tables: Iterable[pa.Table], answers: HomeAnswers) -> tuple[object, str | None]:
            found, cursor = _page_of(tables, params)
            if from_deltafi:
                return deltafi_records(found), cursor
            return as_plain(found, answers.job_runs(found, params.query)), cursor

        return await self._ask(page_of, params, request)

    async def summary(self, request: Request) -> Answer:
        """The records of the files that a summary in Marquez stands for, each a line of JSON."""
        from .query_params import Summary

        number = summary_number(request.name)
        backend = read_params(request.query, Summary).backend
        ask = partial(asyncio.get_running_loop().run_in_executor, self._queries)
        found = None if number is None else await ask(self._summary, backend, number)
        if found is None:
            detail = "there is no such summary, or its files have left the journal and the archive"
            raise Problem(HTTPStatus.NOT_FOUND, f"{detail}; use the link as Marquez shows it")
        # A browser would save the answer instead of showing it.
        is_browser = "text/html" in request.header("accept")
        media = "text/plain; charset=utf-8" if is_browser else NDJSON
        headers = [("content-type", media), ("x-content-type-options", "nosniff")]
        if not found.exact:
            headers.append(("warning", f'199 waybill "{_NOT_EXACT}"'))
        lines = _lines_of(found.tables)
        with problems_told():
            first = await ask(next, lines, b"")
        note = f"{_NOT_EXACT}\n".encode() if is_browser and not found.exact else b""
        return Answer(HTTPStatus.OK, headers, parts=_rest(note + first, lines, ask))

    def _summary(self, backend: str, number: int) -> Summarized | None:
        from waybill.exporter.query import read_summarized

        with problems_told():
            check_root(self._journal, self._settings.root)
            return read_summarized(self._journal, self._settings, backend, number)

    async def flush(self, _: Request) -> Answer:
        """Run every projection over everything accepted so far: 200 with a report."""
        work = partial(flush, self._settings, timeout_s=FLUSH_TIMEOUT_S)
        return json_answer(await asyncio.get_running_loop().run_in_executor(self._flushes, work))

    async def stats(self, request: Request, *, from_deltafi: bool = False) -> Answer:
        """The number of records that match all conditions, by kind; with `from_deltafi` in its format."""
        from waybill.exporter.query import STATS_BY, stats_of, sums_of, told_sums

        from .query_params import filter_of

        params = filter_of(request.query, from_deltafi=from_deltafi)
        by = params.by

        def count(tables: Iterable[pa.Table], answers: HomeAnswers) -> tuple[object, None]:
            if by:
                sums = told_sums(sums_of(tables, by, names_bytes_max=ANSWER_BYTES_MAX), by)
                return deltafi_sums(sums) if from_deltafi else sums, None
            stats = stats_of(tables, names_bytes_max=ANSWER_BYTES_MAX)
            stats.unended_files = answers.count_open(params.query)
            return deltafi_stats(stats) if from_deltafi else stats, None

        return await self._ask(count, params, request, by or STATS_BY)

    async def open_files(self, request: Request) -> Answer:
        """The files and runs that have begun and not ended, the longest silent first."""
        from .query_params import filter_of

        query = filter_of(request.query).query

        def list_open(answers: HomeAnswers) -> object:
            found = answers.open_files(query)
            return as_plain(found, answers.job_runs(found, query))

        return await self._list(list_open, request)

    async def answer(self, kind: type[Question[Any]], request: Request) -> Answer:
        """The answer to a question about the graph of datasets and jobs."""
        question = read_params(request.query, kind)
        try:
            return await self._list(lambda answers: answers.answer(question), request)
        except NotFoundError as error:
            raise Problem(HTTPStatus.NOT_FOUND, str(error), reason="there is no such node") from None

    async def duplicates(self, request: Request) -> Answer:
        """The files of each content that several files have."""
        return await self._list(lambda answers: answers.duplicates(), request)

    async def _list(self, ask: Callable[[HomeAnswers], object], request: Request) -> Answer:
        run = partial(asyncio.get_running_loop().run_in_executor, self._queries)

        def look_up() -> Answer:
            read = self._readings.begin()
            found = ask(read.answers)
            if not isinstance(found, msgspec.Struct) or _size_of(found) <= _ITEMS_AT_ONCE:
                return json_answer(found, headers=read.headers())
            parts = _rest(b"", _json_parts(found), run)
            return Answer(HTTPStatus.OK, [("content-type", JSON), *read.headers()], parts=parts)

        with problems_told():
            return await answer_within(self._queries, look_up, request)

    async def _ask(
        self,
        make: _Make,
        params: QueryParams,
        request: Request,
        summed_by: Sequence[Dimension] | None = None,
    ) -> Answer:
        """The result of a function over the records that meet the conditions, or their sums."""
        from .query_params import next_page

        def look_up() -> Answer:
            read = self._readings.begin(is_partial=params.is_partial)
            value, cursor = make(read.tables(params.query, summed_by=summed_by), read.answers)
            headers = read.headers()
            if cursor is not None:
                headers.append(("link", f'<?{next_page(request.query, cursor)}>; rel="next"'))
            return json_answer(value, headers=headers)

        with problems_told("repair them, or use partial=true to get the rest"):
            return await answer_within(self._queries, look_up, request)


def _size_of(answer: msgspec.Struct) -> int:
    """How many items its lists have."""
    return sum(len(field) for field in msgspec.structs.astuple(answer) if isinstance(field, tuple))


def _json_parts(answer: msgspec.Struct) -> Iterator[bytes]:
    """An answer as JSON, of whose lists a few items at a time are encoded."""
    before = b"{"
    for name, field in zip(answer.__struct_encode_fields__, msgspec.structs.astuple(answer), strict=True):
        yield before + msgspec.json.encode(name) + b":"
        before = b","
        if not isinstance(field, tuple):
            yield msgspec.json.encode(field)
            continue
        for at in range(0, len(field), _ITEMS_AT_ONCE):
            items = msgspec.json.encode(field[at : at + _ITEMS_AT_ONCE])[1:-1]
            yield (b"," if at else b"[") + items
        yield b"]" if field else b"[]"
    yield b"}"


def _lines_of(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The records of tables as lines of JSON, a part for each table."""
    from waybill.facets.arrow import from_table

    for table in tables:
        yield b"".join(msgspec.json.encode(record) + b"\n" for record in from_table(table))


async def _rest(
    first: bytes, lines: Iterator[bytes], ask: Callable[..., Awaitable[bytes | None]]
) -> AsyncIterator[bytes]:
    """The parts of an answer that has begun; its last line is the problem that it raises, if there is one."""
    yield first
    try:
        with problems_told():
            while (part := await ask(next, lines, None)) is not None:
                yield part
    except JournalError as error:
        problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason="the journal")
        yield problem.answer().body + b"\n"
        raise problem from error
    except Exception as error:
        # Without a last line, its end would look like that of a whole answer.
        problem = error if isinstance(error, Problem) else failed()
        yield problem.answer().body + b"\n"
        raise


def _page_of(tables: Iterable[pa.Table], params: QueryParams) -> tuple[list[ProvenanceRecord], str | None]:
    """The records of a page, and its cursor if more follow."""
    from waybill.exporter.query import cursor_of
    from waybill.facets.arrow import from_table

    found: list[ProvenanceRecord] = []
    offset, size_bytes, has_more = params.offset, 0, False
    for table in tables:
        rest = table.slice(offset)
        part = rest.slice(0, params.limit - len(found))
        has_more |= part.num_rows < rest.num_rows
        offset = max(offset - table.num_rows, 0)
        size_bytes += part.nbytes
        if size_bytes > ANSWER_BYTES_MAX and len(found) + part.num_rows > 1:
            raise malformed("limit", f"gives more than {ANSWER_BYTES_MAX:,} bytes; use a smaller limit")
        found += from_table(part)
    return found, cursor_of(found[-1]) if has_more else None


def _sort(body: bytes, bounds: Bounds) -> tuple[list[msgspec.Raw], list[Refused]]:
    """Separate the records that may be stored from those that may not.

    Raises:
        Problem: the body is not an array of records, or cannot be stored although each record could.
    """
    admit = partial(_admit, bounds=bounds)
    good, refused = sort_elements(body, _WANTED, lambda one: array_of([one]), admit)
    if not refused:  # the error is between the records
        try:
            check_records(body, bounds)
        except AdmissionError as error:
            raise refusal(error) from None
    return good, refused


def _admit(record: msgspec.Raw, alone: bytes, bounds: Bounds) -> msgspec.Raw:
    plain, _ = check_records(alone, bounds)
    return record if plain is alone else msgspec.Raw(plain[1:-1])
