"""The backlog: accepted records that are only in the journal, and not in the layout's files yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from waybill.exporter.layout import Layout
from waybill.exporter.names import Hour, hour_of
from waybill.exporter.query.query import Query
from waybill.exporter.stored_records import decode_entries
from waybill.facets.arrow import SCHEMA, from_table
from waybill.transport.errors import WaybillError

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

_CHUNK_BYTES: Final = 16 * 2**20
_CHUNK_ENTRIES: Final = 10_000
_SEE_POISON: Final = "see `waybill poison list`"

UNFILED_BYTES_MAX: Final = 64 * 2**20
"""How much of the backlog may be in memory for one question."""


class BacklogError(WaybillError):
    """The layout is so far behind the journal that a question cannot be answered in bounded memory."""


class Backlog(NamedTuple):
    """What the layout has not written yet."""

    records: pa.Table
    """A table of `waybill.facets.arrow.SCHEMA`, in any order."""
    unread: tuple[str, ...]
    """A sentence about each entry that cannot be read, and may hold some of the answer."""


def read_backlog(
    journal: Journal,
    settings: Settings,
    query: Query | None = None,
    *,
    max_bytes: int = UNFILED_BYTES_MAX,
) -> Backlog:
    """Read the records that answer a query from the entries that the layout has not written yet.

    These are the records that entries hold by themselves: a run without the facet gives records only once it
    has settled. Some of them may be in files already; `find` and `scan` return each once.

    Raises:
        JournalError: the journal cannot be read.
        BacklogError: there are more such records than `max_bytes`.
    """
    query = query or Query()
    wanted = query.by_key()
    texts = [text.encode("utf-8", "surrogatepass") for text in (query.did, query.data_sink) if text]
    tables, size_bytes = [SCHEMA.empty_table()], 0
    unread: list[str] = []

    def note(entry: Entry, error: Exception | str) -> None:
        unread.append(f"entry {entry.seq} of {journal.path} cannot be read ({error})")

    after = journal.cursor(Layout.name)
    while entries := journal.read(after, limit=_CHUNK_ENTRIES, max_bytes=_CHUNK_BYTES):
        after = entries[-1].seq
        for entry in entries:
            if entry.damage is not None:
                note(entry, entry.damage)
        found = decode_entries(
            [entry for entry in entries if entry.damage is None and _may_hold(entry.body, texts)],
            system_name=settings.system_name,
            allowed=settings.provenance_annotations_allowed,
            on_error=note,
        )
        tables.append(found.records.filter(wanted))
        size_bytes += tables[-1].nbytes
        if size_bytes > max_bytes:
            raise BacklogError(
                "the files are too far behind what was accepted to answer this now; ask again in a while, or "
                "for less: one file, one system, a final state, a span of time"
            )
    return Backlog(pa.concat_tables(tables), tuple(unread))


def poison_note(journal: Journal) -> str | None:
    """A sentence about the entries that the layout has set aside, since no answer has their records.

    Nobody knows which question they belong to, so this is told beside every answer. None: there are none.

    Raises:
        JournalError: the journal cannot be read.
    """
    count = journal.poison.counts().get(Layout.name, 0)
    if not count:
        return None
    return f"{count:,} {'entry is' if count == 1 else 'entries are'} poison and in no answer; {_SEE_POISON}"


def _may_hold(body: bytes, texts: list[bytes]) -> bool:
    """Whether a body may hold all these texts: far quicker than decoding. Escaped, any text may be there."""
    return b"\\" in body or all(text in body for text in texts)


def hours_of(entry: Entry) -> set[tuple[str, Hour]]:
    """The systems and hours of the records that an entry holds by itself."""
    found = decode_entries([entry], system_name="", allowed=frozenset(), on_error=_leave_to_the_layout)
    return {(record.system_name, hour_of(record.completed)) for record in from_table(found.records)}


def _leave_to_the_layout(entry: Entry, error: Exception) -> None:
    """Ignore the error: the layout logs it when it comes to the entry."""
