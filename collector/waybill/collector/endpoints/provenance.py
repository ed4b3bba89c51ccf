"""DeltaFi's endpoints: `POST /provenance` and `/provenance/flush`, `GET /provenance/query` and `/stats`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from waybill.collector.endpoints.batches import BETWEEN_REASONS, refusal, sort_elements
from waybill.collector.http import Answer, Problem, Request, busy, json_answer, looked_into
from waybill.transport import flush
from waybill.transport.admission import check_records, record_errors
from waybill.transport.errors import AdmissionError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.collector.endpoints.query_params import QueryParams
    from waybill.collector.http import Bodies
    from waybill.collector.intake import Acceptor
    from waybill.exporter import Query
    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

PROVENANCE_PATH: Final = "/provenance"

FLUSH_TIMEOUT_S: Final = 60.0
"""How long a flush may take."""

ANSWER_BYTES_MAX: Final = 16 * 2**20
"""How large the records of one answer may be together, unless it is one record."""

_ASKED_AT_ONCE: Final = 2
_FIRST: Final = re.compile(r"\$\[0\]|\$\[\.\.\.\]")

_Question = TypeVar("_Question")


class FailedRecord(msgspec.Struct, frozen=True):
    """One record that was not kept."""

    index: int
    reason: str


class Taken(msgspec.Struct, frozen=True):
    """What became of the records of one request."""

    received: int
    accepted: int
    failed: tuple[FailedRecord, ...] = ()


class Stats(msgspec.Struct, kw_only=True):
    """DeltaFi's answer to `GET /provenance/stats`; instants in epoch milliseconds."""

    total_records: int = 0
    by_final_state: dict[str, int] = {}
    by_system_name: dict[str, int] = {}
    by_data_source: dict[str, int] = {}
    oldest_record: int | None = None
    newest_record: int | None = None


class ProvenanceEndpoints:
    """Takes provenance records, and answers questions about them from the files and the journal."""

    def __init__(self, bodies: Bodies, acceptor: Acceptor, journal: Journal, settings: Settings) -> None:
        self._bodies = bodies
        self._acceptor = acceptor
        self._journal = journal
        self._settings = settings
        # Threads of their own, so that neither occupies those that everything else shares.
        self._queries = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="waybill-queries")
        self._flushes = ThreadPoolExecutor(1, thread_name_prefix="waybill-flush")

    async def take(self, request: Request) -> Answer:
        """An array of records: 202 once the good ones are durable, with the reason for each that is not.

        Where all are bad it is 422, and what is no array is 400: DeltaFi's client then drops them.
        """
        body = await self._bodies.read(request)
        try:
            count = check_records(body)
        except AdmissionError:
            return await self._take_the_good(body)
        headers = await self._acceptor.keep(Kind.PROVENANCE, [body], count) if count else ()
        return json_answer(Taken(count, count), status=HTTPStatus.ACCEPTED, headers=headers)

    async def _take_the_good(self, body: bytes) -> Answer:
        try:
            good, failed, reasons, refused = await looked_into(body, _sort)
        except Problem as problem:
            await self._acceptor.reject(Kind.PROVENANCE, [(body, problem.detail)])
            raise
        await self._acceptor.reject(Kind.PROVENANCE, refused)
        if not good:
            detail = (
                "none of the records can be kept; correct them (see `waybill rejects`) and send them again"
            )
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=reasons)
        headers = await self._acceptor.keep(Kind.PROVENANCE, [b"[" + b",".join(good) + b"]"], len(good))
        taken = Taken(len(good) + len(failed), len(good), tuple(failed))
        return json_answer(taken, status=HTTPStatus.ACCEPTED, headers=headers)

    async def query(self, request: Request) -> Answer:
        """The records that meet all conditions, newest first."""
        from waybill.collector.endpoints.query_params import query_params_of

        return await self._ask(self._find, query_params_of(request.scope.query_string))

    async def stats(self, request: Request) -> Answer:
        """How many records meet all conditions, and of which kinds they are."""
        from waybill.collector.endpoints.query_params import filter_of

        return await self._ask(self._count, filter_of(request.scope.query_string))

    async def flush(self, _: Request) -> Answer:
        """Put everything accepted so far through every projection: 200 with a report of it."""
        work = partial(flush, self._settings, timeout_s=FLUSH_TIMEOUT_S)
        return json_answer(await asyncio.get_running_loop().run_in_executor(self._flushes, work))

    async def _ask(self, look_up: Callable[[_Question], object], question: _Question) -> Answer:
        from waybill.exporter.query import BacklogError

        if not self._settings.provenance_enabled:
            detail = "provenance_enabled is off, so there is nothing to ask; start the collector with it on"
            raise Problem(HTTPStatus.CONFLICT, detail)
        loop = asyncio.get_running_loop()
        try:
            return json_answer(await loop.run_in_executor(self._queries, look_up, question))
        except BacklogError as error:
            raise busy(str(error)) from None

    def _find(self, question: QueryParams) -> list[ProvenanceRecord]:
        from waybill.collector.endpoints.query_params import LIMIT_MAX, malformed
        from waybill.exporter.query import read_backlog, scan
        from waybill.facets.arrow import from_table

        query, offset = question
        left = query.limit or LIMIT_MAX
        found: list[ProvenanceRecord] = []
        size_bytes = 0
        # The journal is read first: a record that is filed meanwhile is then found in the files, once.
        backlog = read_backlog(self._journal, self._settings, query)
        for table in scan(self._settings.root, query, unfiled=backlog):
            part = table.slice(offset, left)
            offset = max(offset - table.num_rows, 0)
            left -= part.num_rows
            size_bytes += part.nbytes
            if size_bytes > ANSWER_BYTES_MAX and len(found) + part.num_rows > 1:
                raise malformed("limit", f"asks for more than {ANSWER_BYTES_MAX:,} bytes; give a smaller one")
            found += from_table(part)
            if not left:
                break
        return found

    def _count(self, query: Query) -> Stats:
        import pyarrow as pa
        import pyarrow.compute as pc

        from waybill.exporter.query import read_backlog, scan

        counts = {name: Counter[str]() for name in ("final_state", "system_name", "data_source")}
        stats = Stats()
        backlog = read_backlog(self._journal, self._settings, query)
        for table in scan(self._settings.root, query, unfiled=backlog):
            stats.total_records += table.num_rows
            for name, counter in counts.items():
                for value in pc.value_counts(table[name]).to_pylist():
                    counter[value["values"]] += value["counts"]
            completed = pc.min_max(table["completed"].cast(pa.int64())).as_py()
            stats.oldest_record = min(completed["min"], stats.oldest_record or completed["min"])
            stats.newest_record = max(completed["max"], stats.newest_record or completed["max"])
        stats.by_final_state = dict(sorted(counts["final_state"].items()))
        stats.by_system_name = dict(sorted(counts["system_name"].items()))
        stats.by_data_source = dict(sorted(counts["data_source"].items()))
        return stats


def _sort(body: bytes) -> tuple[list[msgspec.Raw], list[FailedRecord], list[str], list[tuple[bytes, str]]]:
    """Tell the records that may be kept from those that may not.

    Returns:
        The good ones; the others for the answer; every reason; bytes and reason of each for the rejects.

    Raises:
        Problem: the body is no array of records, or nothing of it may be kept though each record may.
    """
    wanted = "a JSON array of provenance records"
    good, failed, refused = sort_elements(body, wanted, lambda one: b"[" + one + b"]", _admit, record_errors)
    if not failed:  # what is wrong lies between the records
        try:
            check_records(body)
        except AdmissionError as error:
            raise refusal([error]) from None
    records, reasons = [], []
    for index, found in failed:
        own = [_FIRST.sub(f"$[{index}]", reason, count=1) for reason in found]
        records.append(FailedRecord(index, BETWEEN_REASONS.join(own)))
        reasons += own
    return good, records, reasons, refused


def _admit(record: msgspec.Raw, alone: bytes) -> msgspec.Raw:
    check_records(alone)
    return record
