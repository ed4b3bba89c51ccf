"""The endpoints for records: DeltaFi's below `/provenance`, and the same answers in our form."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from waybill.collector.endpoints.batches import (
    BETWEEN_REASONS,
    array_of,
    check_in_pieces,
    refusal,
    sort_elements,
)
from waybill.collector.endpoints.deltafi import Stats, deltafi_records, deltafi_stats
from waybill.collector.http import Answer, Problem, Request, busy, json_answer, wrong_root
from waybill.facets import ProvenanceRecord
from waybill.transport import flush
from waybill.transport.admission import check_records, record_errors
from waybill.transport.errors import AdmissionError, RootError
from waybill.transport.journal import Kind
from waybill.transport.root import check_root

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.collector.endpoints.query_params import QueryParams
    from waybill.collector.http import Bodies
    from waybill.collector.intake import Acceptor
    from waybill.transport.admission import Bounds
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

PROVENANCE_PATH: Final = "/provenance"
RECORDS_PATH: Final = "/api/v1/records"

FLUSH_TIMEOUT_S: Final = 60.0
"""How long a flush may take."""

ANSWER_BYTES_MAX: Final = 16 * 2**20
"""How large the records of one answer may be together, unless it is one record."""

_ASKED_AT_ONCE: Final = 2
_WINDOW_ROWS: Final = 125_000
"""A question has so many rows in memory at once, and as many bytes as `scan` allows for them."""

_UNREAD_NAMED_MAX: Final = 100
_COUNTED: Final = ("final_state", "system_name", "data_source")
_WANTED: Final = "a JSON array of provenance records"
_FIRST: Final = re.compile(r"\$\[0\]|\$\[\.\.\.\]")

_T = TypeVar("_T")


class FailedRecord(msgspec.Struct, frozen=True):
    """One record that was not kept."""

    index: int
    reason: str


class Taken(msgspec.Struct, frozen=True):
    """What became of the records of one request."""

    received: int
    accepted: int
    failed: tuple[FailedRecord, ...] = ()


class ProvenanceEndpoints:
    """Takes provenance records, and answers questions about them from the files and the journal."""

    def __init__(self, bodies: Bodies, acceptor: Acceptor, journal: Journal, settings: Settings) -> None:
        self._bodies = bodies
        self._acceptor = acceptor
        self._journal = journal
        self._settings = settings
        self._bounds = settings.bounds
        self._check_records = partial(check_records, bounds=self._bounds)
        # Threads of their own, so that neither occupies those that everything else shares.
        self._queries = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="waybill-queries")
        self._flushes = ThreadPoolExecutor(1, thread_name_prefix="waybill-flush")

    async def take(self, request: Request) -> Answer:
        """An array of records: 202 once the good ones are durable, with the reason for each that is not.

        Where all are bad it is 422, and what is no JSON is 400: DeltaFi's client then drops them.
        """
        body = await self._bodies.read(request)
        try:
            plain, count = await self._or_rejected(body, self._bodies.checked(body, self._check))
        except AdmissionError as error:
            status = HTTPStatus(error.reason.http_status)
        else:
            headers = await self._acceptor.keep(Kind.PROVENANCE, [plain], count) if count else ()
            return json_answer(Taken(count, count), status=HTTPStatus.ACCEPTED, headers=headers)
        return await self._take_the_good(request, body, status)

    async def _take_the_good(self, request: Request, body: bytes, status: HTTPStatus) -> Answer:
        """Keep the good ones of the records; if there are none, the status says why."""
        sort = partial(_sort, bounds=self._bounds)
        good, failed, reasons, refused = await self._or_rejected(body, self._bodies.sorted(body, sort))
        self._bodies.hold_refused(request, len(refused))
        await self._acceptor.reject(Kind.PROVENANCE, refused)
        if not good:
            detail = (
                "none of the records can be kept; correct them (see `waybill rejects`) and send them again"
            )
            raise Problem(status, detail, errors=reasons, reason="all records are wrong")
        headers = await self._acceptor.keep(Kind.PROVENANCE, [array_of(good)], len(good))
        taken = Taken(len(good) + len(failed), len(good), tuple(failed))
        return json_answer(taken, status=HTTPStatus.ACCEPTED, headers=headers)

    def _check(self, body: bytes) -> tuple[bytes, int]:
        return check_in_pieces(body, _WANTED, self._check_records)

    async def _or_rejected(self, body: bytes, work: Awaitable[_T]) -> _T:
        try:
            return await work
        except Problem as problem:
            await self._acceptor.reject(Kind.PROVENANCE, [(body, problem.detail)])
            raise

    async def records(self, request: Request) -> Answer:
        """The records that meet all conditions, newest first."""
        from waybill.collector.endpoints.query_params import query_params_of

        params = query_params_of(request.scope.query_string)
        return await self._ask(partial(_records_of, offset=params.offset), params)

    async def stats(self, request: Request) -> Answer:
        """How many records meet all conditions, and of which kinds they are."""
        from waybill.collector.endpoints.query_params import filter_of

        return await self._ask(_count, filter_of(request.scope.query_string), (*_COUNTED, "completed"))

    async def deltafi_query(self, request: Request) -> Answer:
        """What `records` answers, in DeltaFi's form."""
        from waybill.collector.endpoints.query_params import query_params_of

        params = query_params_of(request.scope.query_string, from_deltafi=True)
        found = partial(_records_of, offset=params.offset)
        return await self._ask(lambda tables: deltafi_records(found(tables)), params)

    async def deltafi_stats(self, request: Request) -> Answer:
        """What `stats` answers, in DeltaFi's form."""
        from waybill.collector.endpoints.query_params import filter_of

        params = filter_of(request.scope.query_string, from_deltafi=True)
        return await self._ask(lambda tables: deltafi_stats(_count(tables)), params, (*_COUNTED, "completed"))

    async def flush(self, _: Request) -> Answer:
        """Put everything accepted so far through every projection: 200 with a report of it."""
        work = partial(flush, self._settings, timeout_s=FLUSH_TIMEOUT_S)
        return json_answer(await asyncio.get_running_loop().run_in_executor(self._flushes, work))

    async def _ask(
        self,
        make: Callable[[Iterable[pa.Table]], object],
        params: QueryParams,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
    ) -> Answer:
        """What a function makes of the records that meet the conditions, as an answer."""
        from waybill.exporter.query import BacklogError, IncompleteError

        if not self._settings.provenance_enabled:
            detail = "provenance_enabled is off, so there is nothing to ask; start the collector with it on"
            raise Problem(HTTPStatus.CONFLICT, detail)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._queries, self._look_up, make, params, columns)
        except BacklogError as error:
            raise busy(str(error)) from None
        except IncompleteError as error:
            count = _count_of(error.unread)
            detail = f"{count}, so records may be missing; see to them, or ask with partial=true for the rest"
            errors = error.unread[:_UNREAD_NAMED_MAX]
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, errors=errors, reason=count) from None
        except RootError as error:
            raise wrong_root(error) from None
        except OSError as error:
            detail = f"the files cannot be read now ({error}); see to the disk and its permissions"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, reason="the files cannot be read") from None

    def _look_up(
        self,
        make: Callable[[Iterable[pa.Table]], object],
        params: QueryParams,
        columns: Sequence[str],
    ) -> Answer:
        from waybill.exporter.query import IncompleteError, poison_note, read_backlog, scan

        check_root(self._journal, self._settings.root)
        warnings: list[str] = []

        def tables() -> Iterator[pa.Table]:
            try:
                yield from scan(
                    self._settings.root,
                    params.query,
                    unfiled=backlog,
                    window_rows=_WINDOW_ROWS,
                    columns=columns,
                )
            except IncompleteError as error:
                if not params.is_partial:
                    raise
                warnings.append(f"incomplete: {_count_of(error.unread)}")

        # The journal is read first: a record that is filed meanwhile is then found in the files, once. An
        # entry that is set aside meanwhile is poison when the cursor passes it, so that is asked last.
        backlog = read_backlog(self._journal, self._settings, params.query)
        if (note := poison_note(self._journal)) is not None:
            warnings.append(note)
        value = make(tables())
        header = ", ".join(f'199 waybill "{text}"' for text in warnings)
        return json_answer(value, headers=[("warning", header)] if header else ())


def _count_of(unread: Sequence[str]) -> str:
    return f"{len(unread):,} files or entries could not be read"


def _records_of(tables: Iterable[pa.Table], *, offset: int) -> list[ProvenanceRecord]:
    from waybill.collector.endpoints.query_params import malformed
    from waybill.facets.arrow import from_table

    found: list[ProvenanceRecord] = []
    size_bytes = 0
    for table in tables:
        part = table.slice(offset)
        offset = max(offset - table.num_rows, 0)
        size_bytes += part.nbytes
        if size_bytes > ANSWER_BYTES_MAX and len(found) + part.num_rows > 1:
            raise malformed("limit", f"asks for more than {ANSWER_BYTES_MAX:,} bytes; give a smaller one")
        found += from_table(part)
    return found


def _count(tables: Iterable[pa.Table]) -> Stats:
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = {name: Counter[str]() for name in _COUNTED}
    stats = Stats()
    size_bytes = 0
    for table in tables:
        stats.total_records += table.num_rows
        for name, counter in counts.items():
            for value in pc.value_counts(table[name]).to_pylist():
                if value["values"] not in counter:
                    size_bytes += len(value["values"])
                counter[value["values"]] += value["counts"]
        if size_bytes > ANSWER_BYTES_MAX:
            detail = (
                f"the names alone take more than {ANSWER_BYTES_MAX:,} bytes; ask for less, such as one source"
            )
            raise Problem(HTTPStatus.BAD_REQUEST, detail)
        completed = pc.min_max(table["completed"].cast(pa.int64())).as_py()
        stats.oldest_record = min(completed["min"], stats.oldest_record or completed["min"])
        stats.newest_record = max(completed["max"], stats.newest_record or completed["max"])
    stats.by_final_state = dict(sorted(counts["final_state"].items()))
    stats.by_system_name = dict(sorted(counts["system_name"].items()))
    stats.by_data_source = dict(sorted(counts["data_source"].items()))
    return stats


def _sort(
    body: bytes, bounds: Bounds
) -> tuple[list[msgspec.Raw], list[FailedRecord], list[str], list[tuple[bytes, str]]]:
    """Tell the records that may be kept from those that may not.

    Returns:
        The good ones; the others for the answer; every reason; bytes and reason of each for the rejects.

    Raises:
        Problem: the body is no array of records, or nothing of it may be kept though each record may.
    """
    admit = partial(_admit, bounds=bounds)
    good, failed, refused = sort_elements(body, _WANTED, lambda one: array_of([one]), admit, record_errors)
    if not failed:  # what is wrong lies between the records
        try:
            check_records(body, bounds)
        except AdmissionError as error:
            raise refusal(error) from None
    records, reasons = [], []
    for index, found in failed:
        own = [_FIRST.sub(f"$[{index}]", reason, count=1) for reason in found]
        records.append(FailedRecord(index, BETWEEN_REASONS.join(own)))
        reasons += own
    return good, records, reasons, refused


def _admit(record: msgspec.Raw, alone: bytes, bounds: Bounds) -> msgspec.Raw:
    plain, _ = check_records(alone, bounds)
    return record if plain is alone else msgspec.Raw(plain[1:-1])
