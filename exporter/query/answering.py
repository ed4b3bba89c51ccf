"""Answers from all accepted records: layout, journal, and archive."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from waybill.facets.arrow import SCHEMA, to_table

from ..incomplete import IncompleteError
from ..parquet import ALWAYS
from .access import FOLDERS
from .backlog import TOO_FAR_BEHIND, UNFILED_BYTES_MAX, BacklogError, read_backlog
from .reader import scan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from .access import Access
    from .query import Query
    from .sums import Dimension

log = logging.getLogger("waybill.exporter")


def answer(
    journal: Journal,
    settings: Settings,
    query: Query,
    *,
    columns: Sequence[str] = SCHEMA.names,
    summed_by: Collection[Dimension] | None = None,
    derived: Sequence[ProvenanceRecord] = (),
    backlog_bytes_max: int = UNFILED_BYTES_MAX,
    backlogs_max: int | None = None,
    access: Access = FOLDERS,
) -> Iterator[pa.Table]:
    """The records of a home that answer a query, each once, as `scan` gives those of a root.

    An acknowledged record is found at once, whether or not `provenance_enabled` is on. If the unfiled records
    do not fit into `backlog_bytes_max`, they are read again for each span of time that does fit.

    Args:
        journal: the home's journal.
        settings: the home's agreed settings.
        query: the conditions.
        columns: the columns of the tables.
        summed_by: the tables are sums of the records by these dimensions, as `summed` gives them.
        derived: further records that may not be in files yet: the settled ones of `read_unsettled`.
        backlog_bytes_max: how many bytes of unfiled records may be in memory.
        backlogs_max: how often the backlog may be read; None: as often as it takes.
        access: finds and opens the files.

    Raises:
        IncompleteError: something could not be read; all readable records came before.
        BacklogError: there are more unfiled records than the limits allow.
        JournalError: the journal cannot be read.
        OSError: a folder could not be read.
    """
    unread: dict[str, None] = {}
    left, since_ms, until_ms, backlogs = query.limit, query.since_ms, query.until_ms, 0
    while True:
        if backlogs_max is not None and backlogs >= backlogs_max:
            raise BacklogError(TOO_FAR_BEHIND)
        backlogs += 1
        asked = msgspec.structs.replace(query, since_ms=since_ms, until_ms=until_ms, limit=left)
        # The journal is read first: a record that is filed meanwhile is then found in the files, once.
        backlog = read_backlog(journal, settings, asked, max_bytes=backlog_bytes_max)
        if derived:
            backlog = backlog._replace(records=pa.concat_tables([backlog.records, to_table(derived)]))
        is_last = backlog.window == ALWAYS
        if not is_last and query.oldest_first:
            since_ms = backlog.window.until_ms
            asked = msgspec.structs.replace(asked, until_ms=since_ms)
        elif not is_last:
            until_ms = backlog.window.since_ms
            asked = msgspec.structs.replace(asked, since_ms=until_ms)
        try:
            for table in scan(
                settings.root,
                asked,
                unfiled=backlog,
                columns=columns,
                summed_by=summed_by,
                access=access,
            ):
                left = None if left is None else left - table.num_rows
                yield table
        except IncompleteError as error:
            unread |= dict.fromkeys(error.unread)
        if is_last or (left is not None and left <= 0):
            break
    if unread:
        raise IncompleteError(tuple(unread))
