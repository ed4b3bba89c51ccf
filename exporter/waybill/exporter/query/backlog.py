"""The records that only the journal has: accepted, and not in the layout's files yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from waybill.exporter.layout import Layout
from waybill.exporter.query.query import Query
from waybill.exporter.stored_records import records_in_entries
from waybill.facets import (
    UNREADABLE,
    RunEvent,
    decode_event,
    decode_records,
    keep_annotations,
    observe,
    records_of,
)
from waybill.facets.arrow import SCHEMA, to_table
from waybill.transport.errors import WaybillError
from waybill.transport.journal import Entry, Kind

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

_CHUNK_BYTES: Final = 16 * 2**20
_CHUNK_ENTRIES: Final = 10_000

UNFILED_BYTES_MAX: Final = 64 * 2**20
"""How much of what only the journal has may be in memory for one question."""


class BacklogError(WaybillError):
    """The layout is so far behind the journal that a question cannot be answered in bounded memory."""


def read_backlog(
    journal: Journal,
    settings: Settings,
    query: Query | None = None,
    *,
    max_bytes: int = UNFILED_BYTES_MAX,
) -> pa.Table:
    """The records in entries that the layout has not dealt with, as far as a query may ask for them.

    Only what is certain: records as DeltaFi sends them and those of events that carry the facet. A run
    without it becomes records once it has settled. Some of these records may be in files already; `find` and
    `scan` see each once.

    Args:
        journal: the home's.
        settings: those of the home.
        query: what is asked.
        max_bytes: see `UNFILED_BYTES_MAX`.

    Returns:
        A table of `waybill.facets.arrow.SCHEMA`, in any order.

    Raises:
        JournalError: the journal cannot be read.
        BacklogError: there are too many such records.
    """
    query = query or Query()
    wanted = query.by_key()
    texts = [text.encode("utf-8", "surrogatepass") for text in (query.did, query.data_sink) if text]
    tables, kept_bytes = [], 0
    after = journal.cursor(Layout.name)
    while entries := journal.read(after, limit=_CHUNK_ENTRIES, max_bytes=_CHUNK_BYTES):
        after = entries[-1].seq
        entries = [entry for entry in entries if _may_hold(entry.body, texts)]
        allowed = settings.provenance_annotations_allowed
        found = records_in_entries(
            entries, system_name=settings.system_name, allowed=allowed, on_error=_leave_to_the_layout
        )
        events = (entry for entry in entries if entry.kind is Kind.OPENLINEAGE)
        records = [
            keep_annotations(record, allowed)
            for entry in events
            for record in records_in(entry, settings.system_name)
        ]
        kept = [table.filter(wanted) for table in (*found, to_table(records)) if table.num_rows]
        kept_bytes += sum(table.nbytes for table in kept)
        if kept_bytes > max_bytes:
            raise BacklogError(
                "the files are too far behind what was accepted to answer this now; ask again in a while, or "
                "for less: one file, one system, a final state, a span of time"
            )
        tables += kept
    return pa.concat_tables(tables or [SCHEMA.empty_table()])


def _may_hold(body: bytes, texts: list[bytes]) -> bool:
    """Whether JSON can hold these texts, which is told far quicker than what it holds; any may be escaped."""
    return b"\\" in body or all(text in body for text in texts)


def records_in(entry: Entry, system_name: str) -> Iterator[ProvenanceRecord]:
    """The records that an entry alone makes certain; those of a run without the facet come with its end."""
    system_name = entry.system_name or system_name
    try:
        if entry.kind is Kind.PROVENANCE:
            yield from decode_records(entry.body, system_name=system_name)
        elif entry.kind is Kind.OPENLINEAGE:
            event = decode_event(entry.body)
            if isinstance(event, RunEvent) and (seen := observe(event, system_name=system_name)).faceted:
                yield from records_of(seen)
    except UNREADABLE:
        return  # the layout says so in its log


def _leave_to_the_layout(entry: Entry, error: Exception) -> None:
    """The layout says so in its log."""
