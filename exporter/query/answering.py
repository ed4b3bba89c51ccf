"""Answers from all accepted records: layout, journal, and archive."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from waybill.facets.arrow import SCHEMA, from_table, to_table
from waybill.transport.config import obey
from waybill.transport.errors import NotFoundError
from waybill.transport.journal import Journal
from waybill.transport.root import check_root

from .. import reading
from ..incomplete import IncompleteError
from ..parquet import ALWAYS
from .access import FOLDERS
from .backlog import TOO_FAR_BEHIND, UNFILED_BYTES_MAX, BacklogError, poison_note, read_backlog
from .query import Query
from .reader import scan
from .sums import STATS_BY, Dimension, Stats, stats_of
from .unsettled import read_unsettled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings

    from ..reading import Asker
    from .access import Access

log = logging.getLogger("waybill.exporter")


def find(
    folder: Path | str,
    query: Query | None = None,
    *,
    access: Access = FOLDERS,
    asker: Asker = reading.PYTHON,
) -> list[ProvenanceRecord]:
    """Find the records of a home or of a root that answer a query, newest first unless it says otherwise.

    In a home, this finds every record accepted until now, in files or not, as `waybill find` does; it leaves
    out a run that has ended and may still change. In a root alone, it reads the files. It logs a warning if
    entries are poison, since no answer has their records.

    Args:
        folder: a home, or a root that is no home.
        query: the conditions; None: all records.
        access: finds and opens the files.
        asker: who asks, where a program asks for somebody else.

    Raises:
        NotFoundError: there is no such folder.
        IncompleteError: a file or an entry could not be read, or a file is in quarantine.
        RootError: the home's root is not there, or is another folder.
        JournalError: the journal cannot be read.
        OSError: a folder could not be read.
    """
    return _records_of(find_tables(folder, query, access=access, asker=asker))


def stats(
    folder: Path | str,
    query: Query | None = None,
    *,
    access: Access = FOLDERS,
    asker: Asker = reading.PYTHON,
) -> Stats:
    """Count the records of a home or of a root that answer a query, by kind; raises what `find` does."""
    return stats_of(find_tables(folder, query, summed_by=STATS_BY, access=access, asker=asker))


def find_tables(
    folder: Path | str,
    query: Query | None = None,
    *,
    columns: Sequence[str] = SCHEMA.names,
    summed_by: Collection[Dimension] | None = None,
    access: Access = FOLDERS,
    asker: Asker = reading.PYTHON,
) -> Iterator[pa.Table]:
    """The records that `find` finds, in tables with these columns as `scan` gives them; raises the same."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {folder}; give the path of a home or of a root")
    query = reading.allow(asker, query or Query())
    if not Journal.exists(folder):
        yield from scan(
            folder,
            query,
            columns=columns,
            summed_by=summed_by,
            access=access,
        )
        return
    with contextlib.closing(Journal(folder, to_read=True)) as journal:
        settings = obey(journal)
        check_root(journal, settings.root)
        # This comes first: records that are filed meanwhile are then found in the files.
        runs = read_unsettled(journal, settings, query, now_ms=time.time_ns() // 1_000_000)
        yield from answer(
            journal,
            settings,
            query,
            columns=columns,
            summed_by=summed_by,
            derived=[*runs.settled, *runs.open],
            access=access,
        )
        if not runs.is_whole:
            log.warning(
                "more unfiled runs exist than fit into memory; some runs without the facet are missing"
            )
        if (poison := poison_note(journal)) is not None:
            log.warning("%s", poison)


def _records_of(tables: Iterator[pa.Table]) -> list[ProvenanceRecord]:
    return [record for table in tables for record in from_table(table)]


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
