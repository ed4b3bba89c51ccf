"""Reads stored entries and turns them into records, many at once; for the projection, rebuilds and queries.

Entries that contain records themselves become rows of a table here: DeltaFi's arrays of records, and terminal
events with the facet. Any other run event is decoded for the caller, who folds the events of its run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from waybill.facets import UNREADABLE, AnnotationRule, Event, RunEvent, decode_event, has_record
from waybill.facets.chunks import in_chunks
from waybill.facets.columns import decode_table, facet_table
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.transport.journal import Entry, Journal

_READ_ENTRIES: Final = 5_000
_READ_BYTES: Final = 16 * 2**20
_CHUNK_BYTES: Final = 16 * 2**20
"""How much is decoded at once: enough for several cores, with few copies in memory."""


def entries_of(journal: Journal, first: int, last: int) -> Iterator[list[Entry]]:
    """The entries of a range that a journal still has, in order, as many at once as fit into memory."""
    while first <= last:
        limit = min(_READ_ENTRIES, last - first + 1)
        found = journal.read(first - 1, limit=limit, max_bytes=_READ_BYTES)
        if not (entries := [entry for entry in found if entry.seq <= last]):
            return
        yield entries
        first = entries[-1].seq + 1


class AnyEntry(Protocol):
    """A stored entry, in any kind of storage."""

    @property
    def kind(self) -> Kind:
        """The kind of the body."""

    @property
    def system_name(self) -> str:
        """The name for records that have none; empty if there is no such name."""

    @property
    def body(self) -> bytes:
        """The accepted bytes."""

    @property
    def event(self) -> Event | None:
        """The OpenLineage event in it; None if it contains none, or one that is unreadable."""


_Entry = TypeVar("_Entry", bound=AnyEntry)


class DecodedEntries(NamedTuple):
    """The decoded content of a batch of entries."""

    records: pa.Table
    """The records that entries contain themselves: a table of `waybill.facets.arrow.SCHEMA`."""
    events: list[RunEvent | None]
    """The run event of each entry; None if it contains none, or an unreadable one."""


def decode_entries(
    entries: Sequence[_Entry],
    *,
    system_name: str,
    rule: AnnotationRule,
    on_error: Callable[[_Entry, Exception], None] = lambda _entry, _error: None,
) -> DecodedEntries:
    """Decode a batch of entries of any kind; all its run events are in memory at once.

    `system_name` goes into records that have no name and no stamped name. Annotations are kept as the rule
    says. Unreadable entries are passed to `on_error` and left out.
    """
    arrays: defaultdict[str, list[_Entry]] = defaultdict(list)
    events: list[RunEvent | None] = []
    faceted: list[tuple[int, RunEvent, str]] = []
    for index, entry in enumerate(entries):
        stamped = entry.system_name or system_name
        event = _run_event(entry, on_error) if entry.kind is Kind.OPENLINEAGE else None
        events.append(event)
        if event is not None and has_record(event):
            faceted.append((index, event, stamped))
        elif entry.kind is Kind.PROVENANCE:
            arrays[stamped].append(entry)

    def leave_out(position: int, error: Exception) -> None:
        index = faceted[position][0]
        events[index] = None
        on_error(entries[index], error)

    tables = [
        _decode_arrays(chunk, stamped, rule, on_error)
        for stamped, own in arrays.items()
        for chunk in in_chunks(own, lambda entry: len(entry.body), _CHUNK_BYTES)
    ]
    tables.append(
        facet_table([(event, stamped) for _, event, stamped in faceted], rule=rule, on_error=leave_out)
    )
    return DecodedEntries(pa.concat_tables(tables), events)


def _run_event(entry: _Entry, on_error: Callable[[_Entry, Exception], None]) -> RunEvent | None:
    event = entry.event
    if event is None:
        try:
            decode_event(entry.body)
        except UNREADABLE as error:
            on_error(entry, error)
    return event if isinstance(event, RunEvent) else None


def _decode_arrays(
    entries: list[_Entry],
    system_name: str,
    rule: AnnotationRule,
    on_error: Callable[[_Entry, Exception], None],
) -> pa.Table:
    return decode_table(
        [entry.body for entry in entries],
        system_name=system_name,
        rule=rule,
        on_error=lambda index, error: on_error(entries[index], error),
    )
