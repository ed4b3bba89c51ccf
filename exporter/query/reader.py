"""Reading the layout while it is written: each record is returned once at any moment.

A compaction publishes an hour's compacted files first, and removes its raw files then. So raw files are
listed and read before compacted ones: each row is in one or the other. Rows of a raw file that the compacted
file of their system covers are left out. The rows of a raw file that vanishes before it is read may be in
another raw file that is newer than the list, so the hour is listed again.

One file is open at a time. Texts that rows share stay shared until the rows are handed out, in tables of
bounded size.
"""

from __future__ import annotations

import functools
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.arrow import PIECE_BYTES, SCHEMA
from waybill.facets.record import AFTER_LAST_MS, FIRST_MS
from waybill.transport.errors import NotFoundError

from .. import parquet
from ..compaction import by_hour
from ..hour_files import HourFiles
from ..incomplete import Unread
from ..names import COMPACTED, RAW, Hour, RawName, hour_of, safe_name
from ..parquet import (
    SELECTED_SCHEMA,
    WINDOW_ROWS,
    Covers,
    Room,
    Rules,
    Span,
    in_pieces,
    in_windows,
    merge_table,
    select,
)
from .access import FOLDERS
from .missing import Below, know_no_joins, missing
from .position import KEY_COLUMNS, beyond, first_of, in_order, read_cursor
from .query import Query
from .sums import SUMMED_COLUMNS, Dimension, summed

if TYPE_CHECKING:
    from ..parquet import Key
    from ..quarantine import Quarantined
    from .access import Access, Listing
    from .backlog import Backlog
    from .position import Position

_FEW_ROWS: Final = 10_000
"""So many rows are filtered faster in one piece."""

_WHOLE_BYTES_MAX: Final = 64 * 2**20
"""So much is decoded whole for one question: more would push out what others need."""

_ROW_BYTES: Final = 256
"""Memory for each row of a window: less than elsewhere, since its rows are copied for the answer."""


def _of_records(query: Query) -> Query:
    """Refuse conditions that no record can meet."""
    if query.input_dataset is not None or query.producer is not None:
        raise NotFoundError("records name no inputs and no producers; ask the home, by `waybill.Lineage`")
    return query


def scan(
    root: Path | str,
    query: Query | None = None,
    *,
    unfiled: Backlog | None = None,
    window_rows: int = WINDOW_ROWS,
    columns: Sequence[str] = SCHEMA.names,
    summed_by: Collection[Dimension] | None = None,
    access: Access = FOLDERS,
    below: Below = know_no_joins,
) -> Iterator[pa.Table]:
    """The records that answer a query: tables of `waybill.facets.arrow.SCHEMA`, in the order of the query.

    Where not all `columns` are asked for, the tables have only these, and records of one instant come in any
    order, unless the query goes on after a cursor.

    One table is an hour, or a part of it that fits into memory: at most `PIECE_BYTES`, or one row.

    `unfiled` are records that may not be in files yet, as `read_backlog` returns them for the query; with
    `missing_sink`, only `answer` has them. About `window_rows` rows are looked at together.
    With `summed_by`, the tables are sums of the records by these dimensions, as `summed` gives them.
    `access` finds and opens the files; `below` knows of joins, for `missing_sink`.

    Raises:
        IncompleteError: a file or an entry could not be read, or a file is in quarantine; all that could be
            read came before.
        TooManyError: too many files would have to be compared for `missing_sink`.
        OSError: a folder could not be read.
    """
    root = Path(root)
    query = _of_records(query or Query())
    if summed_by is not None:
        columns = SUMMED_COLUMNS
    if query.missing_sink is not None:
        # No records that answer one query can take the place of those that answer several.
        ask = functools.partial(scan, root, window_rows=window_rows, access=access)
        found = missing(ask, query, columns, below=below)
        yield from found if summed_by is None else (summed(table, summed_by) for table in found)
        return
    waiting = {}
    if unfiled is not None:
        waiting = {hour: part.cast(SELECTED_SCHEMA) for hour, part in by_hour(unfiled.records)}
    files = access.list_files(root, query, waiting.keys())
    if summed_by is not None:
        counted, files = files.counted(query, summed_by)
        if counted is not None:
            yield counted
    reader = _Reader(root, query, files, access, () if unfiled is None else unfiled.unread)
    after = None if query.after is None else read_cursor(query.after)
    read_columns = columns if after is None else list(dict.fromkeys((*columns, *KEY_COLUMNS)))
    wanted = pa.schema([SCHEMA.field(name) for name in columns])
    hours = _hours_asked(files.hours, waiting, query)
    left, last = query.limit, None
    for hour, found in reader.answers(hours, waiting, read_columns, window_rows):
        first = _next_of(found, after, left, oldest_first=query.oldest_first).select(list(columns))
        for piece in in_pieces(first, PIECE_BYTES):
            # A table that is as wanted already would be copied column by column.
            plain = piece if piece.schema.equals(wanted) else piece.cast(wanted)
            yield plain if summed_by is None else summed(plain, summed_by)
        left = None if left is None else left - first.num_rows
        if left is not None and left <= 0:
            last = hour
            break
    reader.check(last)


def _next_of(found: pa.Table, after: Position | None, left: int | None, *, oldest_first: bool) -> pa.Table:
    """The rows that come next in the answer, in its order: those after a place, and at most so many."""
    if after is not None:
        found = beyond(found, after, oldest_first=oldest_first)
    if left is not None and "completed" in found.column_names:
        found = first_of(found, max(left, 1), oldest_first=oldest_first)
    return in_order(found, oldest_first=oldest_first).slice(0, left)


def _hours_asked(hours: Sequence[Hour], waiting: Collection[Hour], query: Query) -> Sequence[Hour]:
    """The hours that can hold part of an answer, in its order.

    A question without bounds is about tens of thousands, of which a first page needs one.
    """
    since_ms, until_ms = max(query.window.since_ms, FIRST_MS), min(query.window.until_ms, AFTER_LAST_MS)
    if since_ms >= until_ms:
        return ()
    first, last = hour_of(since_ms), hour_of(until_ms - 1)
    asked = hours[bisect_left(hours, first) : bisect_right(hours, last)]
    if more := {hour for hour in waiting if first <= hour <= last and not _is_in(asked, hour)}:
        asked = sorted([*asked, *more])
    return asked if query.oldest_first else asked[::-1]


def _is_in(hours: Sequence[Hour], hour: Hour) -> bool:
    at = bisect_left(hours, hour)
    return at < len(hours) and hours[at] == hour


def scan_hours(*roots: Path) -> Iterator[tuple[tuple[Rules, ...], tuple[pa.Table, ...]]]:
    """The records of several roots side by side, in any order, after the rules that they were written by.

    Each pair is an hour that one of the roots has, or a part of it that fits into memory, oldest first.
    Raises what `scan` does.
    """
    readers = [_Reader(root, Query(), HourFiles(root), FOLDERS) for root in roots]
    for hour in sorted({hour for reader in readers for hour in reader.hours}):
        spans = [span for reader in readers for span in reader.spans(hour)]
        reads = [functools.partial(reader.read, hour, None, SCHEMA.names) for reader in readers]
        rules = tuple(reader.rules for reader in readers)
        yield from in_windows(
            spans,
            WINDOW_ROWS,
            lambda room: (rules, tuple(read(room) for read in reads)),  # noqa: B023
        )
    for reader in readers:
        reader.check()


class _Picked:
    """Rows that may answer a query, from some files."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.rows = 0
        self.size_bytes = 0

    def add_group(self, group: parquet.Group) -> None:
        """Add rows of one row group."""
        self.tables.append(group.rows)
        self.rows += group.rows.num_rows
        self.size_bytes += group.size_bytes

    def add(self, more: _Picked) -> None:
        """Add the rows of further files."""
        self.tables += more.tables
        self.rows += more.rows
        self.size_bytes += more.size_bytes


class _Reader:
    """Reads the hours of one root, and keeps what could not be read.

    Attributes:
        rules: those that the files were written by of which `spans` told last.
    """

    def __init__(
        self, root: Path, query: Query, files: Listing, access: Access, unread: Sequence[str] = ()
    ) -> None:
        self._root = root
        self._query = query
        self._files = files
        self._access = access
        self._unread = Unread(unread, tell=access.unreadable)
        self._whole_bytes = 0
        self.rules = Rules()

    @property
    def hours(self) -> Sequence[Hour]:
        """The hours that may have records in files."""
        return self._files.hours

    def answers(
        self,
        hours: Sequence[Hour],
        waiting: Mapping[Hour, pa.Table],
        columns: Sequence[str],
        window_rows: int,
    ) -> Iterator[tuple[Hour, pa.Table]]:
        """The records that answer the query, in any order within a table; after each hour, or some of them.

        Whoever has had as many as the query's limit needs no more.
        """
        picked, last = _Picked(), None
        # Where few rows answer, each look is at twice as many.
        enough = sys.maxsize if self._query.limit is None else max(self._query.limit, 1)
        for hour in hours:
            found = None if hour in waiting else self._pick(hour)
            if found is not None:
                picked.add(found)
                last = hour
                if picked.rows < enough and picked.size_bytes < PIECE_BYTES:
                    continue
            if last is not None and picked.tables:
                yield last, self._those_that_answer(picked.tables, columns)
                picked, enough = _Picked(), 2 * enough
            if found is None:
                for table in self._windows(hour, waiting.get(hour), columns, window_rows):
                    yield hour, table
        if last is not None and picked.tables:
            yield last, self._those_that_answer(picked.tables, columns)

    def _those_that_answer(self, tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
        query = self._query
        found = pa.concat_tables(tables)
        if found.num_rows < _FEW_ROWS:
            found = found.combine_chunks()
        return parquet.rows_where(found, query.by_key() & query.by_rest()).select(list(columns))

    def _pick(self, hour: Hour) -> _Picked | None:
        """A few rows of an hour's files, all that may answer the query; None if that is no way to find them.

        It is none where the rows are many, and where repeats have to be merged first.
        """
        key, query = self._query.key(), self._query
        if (key is None and query.limit is None) or self._files.raw(hour):
            return None
        paths = self._files.compacted(hour, ())
        if len({path.parent.parent.name for path in paths}) < len(paths):
            return None
        found = _Picked()
        for path in paths:
            try:
                for group in self._whole(path) if key is None else self._rows_with(path, key):
                    found.add_group(group)
                    if found.size_bytes > (_WHOLE_BYTES_MAX if key is None else PIECE_BYTES):
                        return None
            except FileNotFoundError:
                continue
            except parquet.TooManyRowsError:
                return None
            except parquet.DAMAGED as error:
                self._unread.add(path, error, self._root)
        return found

    def _rows_with(self, path: Path, key: Key) -> Iterator[parquet.Group]:
        groups = self._access.decoded(path, key)
        if groups is None:
            return parquet.pick(self._access.open_file(path), key)
        return (rows for group in groups if (rows := parquet.pick_from(group, key)) is not None)

    def _whole(self, path: Path) -> Iterator[parquet.Group]:
        """All rows of a file, if they are kept: the answer may begin with any of them."""
        groups = self._access.decoded(path) if self._whole_bytes < _WHOLE_BYTES_MAX else None
        if groups is None:
            raise parquet.TooManyRowsError
        self._whole_bytes += sum(group.size_bytes for group in groups)
        return iter(groups)

    def _windows(
        self, hour: Hour, unfiled: pa.Table | None, columns: Sequence[str], window_rows: int
    ) -> Iterator[pa.Table]:
        """The records of an hour that answer the query, a window at a time."""
        query = self._query
        # The records of one file are few, so they need no windows.
        spans = () if query.did is not None else self.spans(hour)
        return in_windows(
            spans,
            window_rows,
            functools.partial(self.read, hour, unfiled, columns),
            row_bytes=_ROW_BYTES,
            within=query.window,
            newest_first=not query.oldest_first,
        )

    def spans(self, hour: Hour) -> list[Span]:
        """The facts about the row groups of an hour's files, from their footers."""
        raws = self._files.raw(hour)
        self.rules = Rules()
        found: list[Span] = []
        for path in (*raws.values(), *self._files.compacted(hour, raws)):
            try:
                footer = self._access.open_file(path).metadata
                found += parquet.spans(footer)
                self.rules = self.rules.uniting([Rules.read(footer.metadata)])
            except FileNotFoundError:
                continue  # Its rows have moved to another file.
            except parquet.DAMAGED as error:
                self._unread.add(path, error, self._root)
        return found

    def read(
        self,
        hour: Hour,
        unfiled: pa.Table | None,
        columns: Sequence[str],
        room: Room,
    ) -> pa.Table:
        """The records of an hour's window that answer the query, as `SELECTED_SCHEMA` has these columns."""
        query = self._query
        by_key, texts = query.by_key(), query.texts_of_key()
        raws, listed = self._read_raw(hour, by_key, texts, room)
        waiting = [] if unfiled is None else [parquet.rows_where(unfiled, by_key & room.condition())]
        paths = self._files.compacted(hour, listed)
        systems = [path.parent.parent.name for path in paths]
        # Repeats are merged before the conditions on what a merge can change apply.
        is_merged = bool(raws or waiting) or len(set(systems)) < len(systems)
        wanted = by_key if is_merged else by_key & query.by_rest()
        read = SCHEMA.names if is_merged else columns
        found: list[pa.Table] = []
        covers: defaultdict[str, list[Covers]] = defaultdict(list)
        for system, path in zip(systems, paths, strict=True):
            try:
                file = self._access.open_file(path)
                covered = Covers.read(file.metadata.metadata)
                found.append(select(file, wanted, texts if is_merged else query.texts(), room, read))
                covers[system].append(covered)
            except FileNotFoundError:
                continue
            except parquet.DAMAGED as error:
                self._unread.add(path, error, self._root)
        if is_merged:
            found += [_without_covered(raw, raws.pop(raw), covers) for raw in list(raws)]
            found += waiting
            del waiting
        found[:] = [_join(found)]
        if not is_merged:
            return found[0].select(list(columns))
        # Nothing else holds the rows meanwhile, so they are in memory twice at most.
        merged = merge_table(found.pop())
        return parquet.rows_where(merged, query.by_rest()).select(list(columns))

    def _read_raw(
        self, hour: Hour, wanted: pc.Expression, texts: Mapping[str, Sequence[str]], room: Room
    ) -> tuple[dict[RawName, pa.Table], Collection[RawName]]:
        """The rows of an hour's raw files, without files that have none, and the names of all."""
        while True:
            found = {}
            listed = self._files.raw(hour)
            try:
                for raw, path in listed.items():
                    try:
                        rows = select(self._access.open_file(path), wanted, texts, room)
                    except FileNotFoundError:
                        raise
                    except parquet.DAMAGED as error:
                        self._unread.add(path, error, self._root)
                    else:
                        if rows.num_rows:
                            found[raw] = rows
            except FileNotFoundError:
                continue  # It vanished between its listing and its opening.
            return found, listed.keys()

    def check(self, last: Hour | None = None) -> None:
        """Raise `IncompleteError` if records of the hours that were read, up to the last one, may lack."""

        def is_read(hour: Hour) -> bool:
            return last is None or (hour <= last if self._query.oldest_first else hour >= last)

        self._unread.add_quarantined(self._root, lambda one: is_read(one.hour) and self._asks_for(one))
        self._unread.raise_any()

    def _asks_for(self, one: Quarantined) -> bool:
        kind, system, *_ = PurePosixPath(one.path).relative_to(COMPACTED.parent).parts
        wanted = self._query.system_name
        is_of_another = kind != RAW.name and wanted is not None and system != safe_name(wanted)
        return self._query.touches(one.hour) and not is_of_another


def _join(tables: Sequence[pa.Table]) -> pa.Table:
    return parquet.join(tables) if tables else SELECTED_SCHEMA.empty_table()


def _without_covered(raw: RawName, rows: pa.Table, covers: Mapping[str, Sequence[Covers]]) -> pa.Table:
    """The rows of a raw file that are in none of the compacted files, given by safe name."""
    covered = [
        system
        for system in pc.unique(rows["system_name"].cast(pa.string())).to_pylist()
        if any(known.has(raw) for known in covers.get(safe_name(system), ()))
    ]
    if not covered:
        return rows
    return parquet.rows_where(rows, ~pc.field("system_name").cast(pa.string()).isin(covered))
