"""The backlog: accepted records that are not in the layout's files yet.

They are in the journal, or in the archive if the journal has dropped an entry before the layout read it: the
layout's cursor stands still while `provenance_enabled` is off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import AnnotationRule, spelled_alike
from waybill.facets.arrow import SCHEMA, from_table
from waybill.transport.counting import counted
from waybill.transport.errors import WaybillError

from .. import parquet
from ..archive import archived_files, filed_ranges, read_entries
from ..names import LAYOUT, Hour, hour_of
from ..parquet import ALWAYS, TimeWindow
from ..stored_records import decode_entries
from .query import Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

_CHUNK_BYTES: Final = 16 * 2**20
_CHUNK_ENTRIES: Final = 10_000
_SEE_POISON: Final = "see `waybill poison list`"

TOO_FAR_BEHIND: Final = (
    "the files are too far behind the accepted events to answer this now; try again later, or narrow this: "
    "one file, one system, a final state, a span of time"
)
"""The message of a `BacklogError`."""

_NO_RECORDS: Final = SCHEMA.empty_table()
UNFILED_BYTES_MAX: Final = 64 * 2**20
"""How much of the backlog may be in memory for one query."""


class BacklogError(WaybillError):
    """Too much is not in files yet to answer a query in bounded memory or time."""


class Backlog(NamedTuple):
    """The records that the layout has not written yet."""

    records: pa.Table
    """A table of `waybill.facets.arrow.SCHEMA`, in any order."""
    unread: tuple[str, ...]
    """A sentence about each entry or archived file that cannot be read and may hold part of the answer."""
    window: TimeWindow = ALWAYS
    """Every record whose `completed` is in this span is here; there was no room for others."""


def read_backlog(
    journal: Journal,
    settings: Settings,
    query: Query | None = None,
    *,
    max_bytes: int = UNFILED_BYTES_MAX,
) -> Backlog:
    """Read the records that answer a query from the entries that the layout has not written yet.

    These are the records that entries hold by themselves: a run without the facet gives records only once it
    has settled. Some of them may be in files already; `find` and `scan` return each once. If there are
    more than `max_bytes` of them, only those that the answer begins with are returned; see `Backlog.window`.

    Raises:
        JournalError: the journal cannot be read.
        BacklogError: there are more than `max_bytes` of one instant.
    """
    query = query or Query()
    sink = "" if query.is_pattern("data_sink") else query.data_sink or ""
    texts = [text.encode("utf-8", "surrogatepass").lower() for text in (spelled_alike(query.did or ""), sink)]
    first = _First(max_bytes, oldest_first=query.oldest_first)
    unread: list[str] = []

    def note(entry: Entry, error: Exception | str) -> None:
        unread.append(damaged(journal, entry, error))

    for entries in unfiled_entries(journal, settings.root, unread):
        for entry in entries:
            if entry.damage is not None:
                note(entry, entry.damage)
        found = decode_entries(
            [entry for entry in entries if entry.damage is None and _may_hold(entry.body, texts)],
            system_name=settings.system_name,
            rule=settings.annotation_rule,
            on_error=note,
        )
        first.add(parquet.rows_where(found.records, query.by_key()))
    return Backlog(first.whole(), tuple(unread), first.window)


def damaged(journal: Journal, entry: Entry, error: Exception | str) -> str:
    """A sentence about an entry that cannot be read."""
    return f"entry {entry.seq} of {journal.path} cannot be read ({error})"


def unfiled_entries(journal: Journal, root: Path, unread: list[str]) -> Iterator[list[Entry]]:
    """The entries that the layout has not written, a few at a time: the journal's, then the archive's.

    Entries that the journal drops meanwhile are in the archive by then. A sentence about each archived file
    that cannot be read is added to `unread`.
    """
    after = journal.cursor(LAYOUT)
    gaps: list[range] = []
    while entries := journal.read(after, limit=_CHUNK_ENTRIES, max_bytes=_CHUNK_BYTES):
        if entries[0].seq > after + 1:
            gaps.append(range(after + 1, entries[0].seq))
        after = entries[-1].seq
        yield entries
    if gaps:
        yield from archived_entries(journal, root, gaps, unread)


def archived_entries(
    journal: Journal, root: Path, gaps: Sequence[range], unread: list[str]
) -> Iterator[list[Entry]]:
    """The archived entries of these numbers that the journal itself has filed."""
    filed = filed_ranges(journal)
    for name, path in archived_files(root):
        if not filed.has(name) or not any(name.first < gap.stop and gap.start <= name.last for gap in gaps):
            continue
        try:
            for entries in read_entries(path):
                yield [entry for entry in entries if any(entry.seq in gap for gap in gaps)]
        except FileNotFoundError:
            continue  # It has been aged off meanwhile.
        except parquet.DAMAGED as error:
            unread.append(parquet.unreadable(path, error, root=root))


class _First:
    """Collects records while there is room, and drops the later half of the answer when there is none."""

    def __init__(self, max_bytes: int, *, oldest_first: bool) -> None:
        self.window = ALWAYS
        self._max_bytes = max_bytes
        self._oldest_first = oldest_first
        self._tables = [_NO_RECORDS]
        self._size_bytes = 0

    def add(self, table: pa.Table) -> None:
        self._append(self._within(table))
        while self._size_bytes > self._max_bytes:
            self._drop()

    def whole(self) -> pa.Table:
        return pa.concat_tables(self._tables)

    def _append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._size_bytes += table.nbytes

    def _within(self, table: pa.Table) -> pa.Table:
        if self.window == ALWAYS:
            return table
        completed_ms = _completed_ms(table)
        is_within = pc.and_(
            pc.greater_equal(completed_ms, self.window.since_ms), pc.less(completed_ms, self.window.until_ms)
        )
        return table.filter(is_within)

    def _drop(self) -> None:
        whole = self.whole()
        completed_ms = _completed_ms(whole)
        bounds = pc.min_max(completed_ms).as_py()
        if bounds["min"] == bounds["max"]:
            raise BacklogError(TOO_FAR_BEHIND)
        middle = pc.quantile(completed_ms, 0.5, interpolation="lower")[0].as_py()
        cut_ms = middle + 1 if middle < bounds["max"] else middle
        since_ms, until_ms = self.window
        self.window = TimeWindow(since_ms, cut_ms) if self._oldest_first else TimeWindow(cut_ms, until_ms)
        self._tables, self._size_bytes = [], 0
        self._append(self._within(whole))


def _completed_ms(table: pa.Table) -> pa.ChunkedArray:
    return table["completed"].cast(pa.int64())


def poison_note(journal: Journal) -> str | None:
    """A sentence about the entries that the layout has set aside, since no answer has their records.

    Nobody knows which query they belong to, so every answer comes with this sentence. None: there are none.

    Raises:
        JournalError: the journal cannot be read.
    """
    count = journal.poison.counts().get(LAYOUT, 0)
    if not count:
        return None
    return f"{counted(count, 'entry is', 'entries are')} poison and in no answer; {_SEE_POISON}"


def _may_hold(body: bytes, texts: list[bytes]) -> bool:
    """Whether a body may hold each text: far quicker than decoding.

    Escaped, any text may be there.
    """
    body = body.lower()
    return b"\\" in body or all(text in body for text in texts)


def hours_of(entry: Entry) -> set[tuple[str, Hour]]:
    """The systems and hours of the records that an entry holds by itself."""
    found = decode_entries([entry], system_name="", rule=AnnotationRule(), on_error=_leave_to_the_layout)
    return {(record.system_name, hour_of(record.completed)) for record in from_table(found.records)}


def _leave_to_the_layout(entry: Entry, error: Exception) -> None:
    """Ignore the error: the layout logs it when it comes to the entry."""
