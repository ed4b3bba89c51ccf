"""The endpoint for the journey of a file: what `waybill trace` shows, as JSON or as a picture."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import ProvenanceRecord
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import NotFoundError

from ..http import JSON, Answer, Problem, Request, malformed
from .reading import Lane, problems_told

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.lineage import Journey

    from .query_params import Trace
    from .reading import Readings

TRACES_PATH: Final = "/trace/"
TRACE_PATH: Final = f"{TRACES_PATH}{{did}}"

JOURNEY_BYTES_MAX: Final = 64 * 2**20
"""The maximum total size of the records that are read for one journey, about 100,000 files."""

TRACE_TIMEOUT_S: Final = 60.0
"""How long the questions for one journey may take."""

SMALL_RECORDS_MAX: Final = 4_000
"""A journey is a large one if the answers to the questions for its files have more rows."""

SMALL_S: Final = 0.5
"""So is one whose questions take longer."""

WAITING_MAX: Final = 16
"""So many journeys of each size may be under way or wait; more are refused."""

UNFOLDED_MAX: Final = 2_000
"""A picture with every file of a wide split may have so many."""

MEDIA: Final = {
    "json": JSON,
    "svg": "image/svg+xml",
    "mermaid": "text/vnd.mermaid; charset=utf-8",
    "dot": "text/vnd.graphviz; charset=utf-8",
    "graphml": "application/graphml+xml",
}
"""By format, the media type of the answer."""

_NARROW: Final = (
    "narrow it with depth, up=false or down=false, or use `waybill trace`, which has no such limit"
)


class TraceEndpoints:
    """Answers with the journeys of files."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        # One journey of each size at a time is in memory, and none delays the queries.
        self._small = Lane("waybill-small-traces", WAITING_MAX, "journeys")
        self._large = Lane("waybill-traces", WAITING_MAX, "journeys")

    async def trace(self, request: Request) -> Answer:
        """The journey of the file that the path names, in the format that the request asks for."""
        from .query_params import trace_params_of

        did = request.name
        if not did or "\0" in did:
            raise malformed("did", "is empty or contains a NUL character; give the did of a file")
        params = trace_params_of(request.query, request.header("accept"), MEDIA)
        work = partial(self._trace, did, params)
        with problems_told("repair them, or use partial=true to get the rest"):
            # Only finding a journey tells how large it is. So each is begun as a small one, and no small one
            # waits for a large one to end.
            try:
                return await self._small.run(partial(work, is_small=True), request)
            except _LargeError:
                return await self._large.run(work, request)

    def _trace(self, did: str, params: Trace, *, is_small: bool = False) -> Answer:
        from waybill.exporter.query import EntriesGoneError

        reading = self._readings.begin(is_partial=params.partial)
        bounds = _Bounds(is_small=is_small)
        try:
            journey = reading.answers.trace(
                did,
                up=bool(params.up),
                down=bool(params.down),
                depth=params.depth,
                as_of_ms=params.as_of,
                on_table=bounds.check,
                on_batch=bounds.check_time,
            )
        except NotFoundError as error:
            raise Problem(HTTPStatus.NOT_FOUND, str(error), reason="there is no such file") from None
        except EntriesGoneError as error:
            raise Problem(HTTPStatus.GONE, str(error), reason="the entries are gone") from None
        headers = [
            ("content-type", MEDIA[str(params.format)]),
            ("content-security-policy", "default-src 'none'"),
            ("x-content-type-options", "nosniff"),
            *reading.headers(),
        ]
        return Answer(HTTPStatus.OK, headers, _drawn(journey, params))


class _LargeError(Exception):
    """A journey that was begun as a small one is not."""


class _Bounds:
    """The limits of memory and time for one journey."""

    def __init__(self, *, is_small: bool) -> None:
        self._is_small = is_small
        self._began_s = SYSTEM_CLOCK.monotonic_s()
        self._size_bytes = 0
        self._records = 0

    def check(self, query: Query, table: pa.Table) -> None:
        """Raise a `Problem` if the journey has too many records with this table, or takes too long.

        If it was begun as a small one, raise a `_LargeError` if it is not.
        """
        # What only some columns are asked of is looked at, and kept in bounds of its own.
        is_kept = table.num_columns == len(ProvenanceRecord.__struct_fields__)
        self._size_bytes += table.nbytes if is_kept else 0
        names_files = query.dids is not None or query.parent_dids is not None
        self._records += table.num_rows if names_files else 0
        if self._is_small and self._records > SMALL_RECORDS_MAX:
            raise _LargeError
        if self._size_bytes > JOURNEY_BYTES_MAX:
            detail = f"the journey has more than {JOURNEY_BYTES_MAX:,} bytes of records; {_NARROW}"
            raise Problem(HTTPStatus.BAD_REQUEST, detail, reason="the journey is too large")
        self.check_time()

    def check_time(self) -> None:
        """Raise a `Problem` if the journey takes too long; for a small one, a `_LargeError`."""
        took_s = SYSTEM_CLOCK.monotonic_s() - self._began_s
        if self._is_small and took_s > SMALL_S:
            raise _LargeError
        if took_s > TRACE_TIMEOUT_S:
            detail = f"finding the journey takes longer than {TRACE_TIMEOUT_S:.0f} s; {_NARROW}"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, reason="the journey takes too long")


def _drawn(journey: Journey, params: Trace) -> bytes:
    from waybill.lineage import drawing

    if params.format == "json":
        return msgspec.json.encode(journey.told())
    if params.format == "graphml":
        return drawing.graphml_of_journey(journey).encode(errors="backslashreplace")
    if params.unfold and len(journey.files) > UNFOLDED_MAX:
        detail = f"the picture would have more than {UNFOLDED_MAX:,} files; leave out unfold, or {_NARROW}"
        raise Problem(HTTPStatus.BAD_REQUEST, detail, reason="the picture is too large")
    boxes_of = partial(drawing.boxes_of_journey, journey)
    try:
        picture = drawing.draw(str(params.format), boxes_of, unfold=params.unfold)
    except drawing.TooLargeForMermaidError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, str(error), reason="the picture is too large") from error
    return picture.encode(errors="backslashreplace")
