"""The records that only the journal has: accepted, and not in the layout's files yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from waybill.exporter.projection import Layout
from waybill.exporter.query import Query
from waybill.exporter.records import records_sent
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
from waybill.transport.journal import Entry, Kind

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord
    from waybill.transport.journal import Journal
    from waybill.transport.settings import Settings

_CHUNK_BYTES: Final = 16 * 2**20
_CHUNK_ENTRIES: Final = 10_000


def unfiled(journal: Journal, settings: Settings, query: Query | None = None) -> pa.Table:
    """The records in entries that the layout has not dealt with, as far as a query may ask for them.

    Only what is certain: records as DeltaFi sends them and those of events that carry the facet. A run
    without it becomes records once it has settled. Some of these records may be in files already; `find` and
    `scan` see each once.

    Returns:
        A table of `waybill.facets.arrow.SCHEMA`, in any order.

    Raises:
        JournalError: the journal cannot be read.
    """
    query = query or Query()
    wanted = query.by_key()
    texts = [text.encode("utf-8", "surrogatepass") for text in (query.did, query.data_sink) if text]
    tables = []
    after = journal.cursor(Layout.name)
    while entries := journal.read(after, limit=_CHUNK_ENTRIES, max_bytes=_CHUNK_BYTES):
        after = entries[-1].seq
        entries = [entry for entry in entries if _may_hold(entry.body, texts)]
        allowed = settings.provenance_annotations_allowed
        found = records_sent(
            entries, system_name=settings.system_name, allowed=allowed, on_error=_leave_to_the_layout
        )
        events = (entry for entry in entries if entry.kind is Kind.OPENLINEAGE)
        records = [
            keep_annotations(record, allowed)
            for entry in events
            for record in records_in(entry, settings.system_name)
        ]
        tables += [table.filter(wanted) for table in (*found, to_table(records)) if table.num_rows]
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
