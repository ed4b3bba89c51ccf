"""Reading the layout while it is written: each record is returned once at any moment.

Hours are read in order of the answer, first a few files together and then more, until there is enough.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.arrow import PIECE_BYTES, SCHEMA
from waybill.facets.record import AFTER_LAST_MS, FIRST_MS
from waybill.transport.budget import check_budget
from waybill.transport.errors import NotFoundError

from ..hour_files import HourFiles
from ..incomplete import Unread
from ..names import COMPACTED, RAW, Hour, hour_in, hour_of, safe_name
from ..parquet import CODED_SCHEMA, Rules, TimeWindow, in_pieces, merge_table
from .access import FOLDERS
from .database import connect
from .hour_rows import Files, HourRows, MovedError, Place
from .position import KEY_COLUMNS, beyond, in_order, read_cursor
from .query import Query
from .sql import Conditions
from .sums import SUMMED_COLUMNS, Dimension, summed
from .tail import NO_TAIL, Tail

if TYPE_CHECKING:
    from ..differing import Differing
    from ..quarantine import Quarantined
    from .access import Access, Listing

_FILES_FIRST: Final = 4
_FILES_MAX: Final = 256
"""So many files are read together at most: each of them is open."""

_FILES_BYTES_MAX: Final = 32 * 2**20
_TOGETHER_ROWS: Final = 16_384
_NO_FILES: Final = Files({}, [], None, is_merged=False)
_NO_ROWS: Final = SCHEMA.empty_table()


def _of_records(query: Query) -> Query:
    """Refuse conditions that no record can meet."""
    if query.input_dataset is not None or query.producer is not None:
        raise NotFoundError("records name no inputs and no producers; ask by `waybill.Lineage`")
    if query.missing_sink is not None:
        raise NotFoundError("no record tells what is missing; ask by `waybill.Lineage`")
    return query


def scan(
    root: Path | str,
    query: Query | None = None,
    *,
    tail: Tail = NO_TAIL,
    columns: Sequence[str] = SCHEMA.names,
    summed_by: Collection[Dimension] | None = None,
    access: Access = FOLDERS,
    is_ordered: bool = True,
) -> Iterator[pa.Table]:
    """The records that answer a query: tables of `waybill.facets.arrow.SCHEMA`, in the order of the query.

    Where not all `columns` are asked for, the tables have only these, and records of one instant come in any
    order, unless the query has a limit or goes on after a cursor. One table takes at most `PIECE_BYTES`, or
    is one row.

    Args:
        root: the folder of the layout.
        query: the conditions; None: all records.
        tail: what the journal of the root's home has accepted and the layout has not written.
        columns: the columns of the tables.
        summed_by: the tables are sums of the records by these dimensions, as `summed` gives them.
        access: finds the files.
        is_ordered: whether the order matters; records come sooner if it does not.

    Raises:
        IncompleteError: a file or an entry could not be read, or a file is in quarantine; all that could be
            read came before.
        TooManyError: the records of one file and instant do not fit into memory.
        OSError: a folder could not be read.
    """
    root = Path(root)
    query = _of_records(query or Query())
    files = access.list_files(root, query, tail.hours)
    if summed_by is not None:
        counted, files = files.counted(query, summed_by)
        if counted is not None:
            yield counted
    unread = Unread(tail.unread, tell=access.unreadable)
    with _Reader(root, query, files, access, tail=tail, unread=unread) as reader:
        if summed_by is None:
            yield from reader.answer(columns, is_ordered=is_ordered)
        else:
            yield from reader.sums(summed_by)
        reader.check()


def _hours_asked(hours: Sequence[Hour], others: Collection[Hour], query: Query) -> Sequence[Hour]:
    """The hours that can hold part of an answer, in its order.

    A question without bounds is about tens of thousands, of which a first page needs one.
    """
    since_ms, until_ms = max(query.window.since_ms, FIRST_MS), min(query.window.until_ms, AFTER_LAST_MS)
    if since_ms >= until_ms:
        return ()
    first, last = hour_of(since_ms), hour_of(until_ms - 1)
    asked = hours[bisect_left(hours, first) : bisect_right(hours, last)]
    if more := {hour for hour in others if first <= hour <= last and not _is_in(asked, hour)}:
        asked = sorted([*asked, *more])
    return asked if query.oldest_first else asked[::-1]


def _is_in(hours: Sequence[Hour], hour: Hour) -> bool:
    at = bisect_left(hours, hour)
    return at < len(hours) and hours[at] == hour


class _Part(NamedTuple):
    """Hours that are read together, and their files when they were listed."""

    hours: Sequence[Hour]
    files: Files


class _Page(NamedTuple):
    """Rows of some hours.

    Attributes:
        rows: all that share their `completed` and `did`, in order.
        is_merged: whether a record may have several of them.
    """

    rows: pa.Table
    is_merged: bool


class _Reader:
    """Reads the hours of one root for one question, and keeps what could not be read."""

    def __init__(
        self,
        root: Path,
        query: Query,
        files: Listing,
        access: Access = FOLDERS,
        *,
        tail: Tail = NO_TAIL,
        unread: Unread | None = None,
    ) -> None:
        self._root = root
        self._query = query
        self._files = files
        self._tail = tail
        self._unread = unread or Unread()
        self._unreadable: dict[Path, Exception] = {}
        self._conditions = Conditions(query)
        self._connection = connect()
        self._rows = HourRows(self._connection, self._conditions, access, tail, self._unreadable)
        self._after = None if query.after is None else read_cursor(query.after)
        self._last: Hour | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def answer(self, columns: Sequence[str], *, is_ordered: bool) -> Iterator[pa.Table]:
        """The records that answer the query, in its order if it matters."""
        wanted = pa.schema([SCHEMA.field(name) for name in columns])
        has_bounds = self._query.limit is not None or self._after is not None
        for table in self._in_order(columns) if is_ordered or has_bounds else self._in_any_order(columns):
            for piece in in_pieces(table.select(list(columns)), PIECE_BYTES):
                # A table that is as wanted already would be copied column by column.
                yield piece if piece.schema.equals(wanted) else piece.cast(wanted)

    def sums(self, by: Collection[Dimension]) -> Iterator[pa.Table]:
        """The sums of these records."""
        if self._query.limit is not None or self._after is not None:
            yield from (summed(table, by) for table in self._in_order(SUMMED_COLUMNS))
            return
        for part in self._parts():
            if part.files.is_merged:
                yield from (summed(self._merged(page), by) for page in self._pages(part, SUMMED_COLUMNS))
            else:
                yield from self._rows.summed(part.files, by)

    def _in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for part in self._parts(_FILES_MAX):
            if part.files.is_merged:
                yield from map(self._merged, self._pages(part, columns))
            else:
                yield from _together(self._rows.unordered(part.files, columns))

    def _in_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        query, left = self._query, self._query.limit
        if left is not None or self._after is not None:
            columns = list(dict.fromkeys((*columns, *KEY_COLUMNS)))
        if left == 0:
            return
        for part in self._parts():
            for page in self._pages(part, columns):
                found = self._merged(page)
                if self._after is not None:
                    found = beyond(found, self._after, oldest_first=query.oldest_first)
                found = in_order(found, oldest_first=query.oldest_first).slice(0, left)
                if left is not None:
                    left -= found.num_rows
                yield found
                if left == 0:
                    self._last = hour_of(found["completed"][-1].value)
                    return

    def _merged(self, page: _Page) -> pa.Table:
        """Merge the repeats of records first where there may be any: only then the other conditions apply."""
        if not page.is_merged:
            return page.rows
        merged = merge_table(page.rows.cast(CODED_SCHEMA)).cast(SCHEMA)
        return self._conditions.filter_by_rest(merged)

    def _pages(self, part: _Part, columns: Sequence[str]) -> Iterator[_Page]:
        """The rows of some hours, in order: about as many as the query wants, and then more."""
        after, oldest_first = self._after, self._query.oldest_first
        place = None if after is None else Place(after.completed_ms, after.did, is_included=True)
        files, rows_max = part.files, self._query.limit
        read = list(dict.fromkeys((*columns, "completed", "did")))
        while True:
            groups = _Groups(rows_max)
            one_more = None if rows_max is None else rows_max + 1
            tables = self._rows.ordered(
                files, read, oldest_first=oldest_first, place=place, rows_max=one_more
            )
            try:
                for rows in groups.of(tables):
                    place = _place_after(rows)
                    yield _Page(rows, files.is_merged)
            except MovedError:
                files = self._files_of(part.hours)
                continue
            if groups.is_whole or rows_max is None:
                return
            rows_max *= 4 if groups.is_one else 2

    def _parts(self, files_max: int = _FILES_FIRST) -> Iterator[_Part]:
        """The hours asked for, a few together, and more each time; those that need no merge by themselves."""
        hours: list[Hour] = []
        held, size_bytes = _NO_FILES, 0
        for hour in _hours_asked(self._files.hours, self._tail.hours, self._query):
            check_budget()
            files = self._files_of([hour])
            if hours and not files.number:
                # A file of it may come back from the quarantine while the others are read.
                yield _Part(hours, held)
                hours, held, size_bytes = [], _NO_FILES, 0
                files = self._files_of([hour])
            if not files.number:
                continue
            more_bytes = sum(map(_size_bytes, (*files.raws, *files.compacted)))
            is_full = held.number + files.number > files_max or size_bytes + more_bytes > _FILES_BYTES_MAX
            if hours and (is_full or files.is_merged != held.is_merged):
                yield _Part(hours, held)
                hours, held, size_bytes, files_max = [], _NO_FILES, 0, min(2 * files_max, _FILES_MAX)
            hours.append(hour)
            held, size_bytes = held.joined(files), size_bytes + more_bytes
        if hours:
            yield _Part(hours, held)

    def _files_of(self, hours: Sequence[Hour]) -> Files:
        """The files of hours as they are now."""
        found = _NO_FILES
        for hour in hours:
            raws = self._files.raw(hour)
            compacted = self._files.compacted(hour, raws)
            tail = TimeWindow(hour.start_ms, hour.end_ms) if hour in self._tail.hours else None
            systems = {path.parent.parent.name for path in compacted}
            is_merged = bool(raws or tail) or len(systems) < len(compacted)
            found = found.joined(Files({path: raw for raw, path in raws.items()}, compacted, tail, is_merged))
        return found

    def of_hour(self, hour: Hour) -> Iterator[pa.Table]:
        """The records of an hour, in order."""
        part = _Part([hour], self._files_of([hour]))
        return (self._merged(page) for page in self._pages(part, SCHEMA.names))

    def check(self) -> None:
        """Raise `IncompleteError` if records of the hours that were read, up to the last one, may lack."""

        def is_read(hour: Hour) -> bool:
            last = self._last
            return last is None or (hour <= last if self._query.oldest_first else hour >= last)

        for path, error in self._unreadable.items():
            hour = hour_in(path.relative_to(self._root).as_posix())
            if hour is None or is_read(hour):
                self._unread.add(path, error, self._root)
        differing = self._files.differing()
        self._unread.add_known(self._root, lambda one: is_read(one.hour) and self._asks_for(one), differing)
        self._unread.raise_any()

    def _asks_for(self, one: Quarantined | Differing) -> bool:
        kind, system, *_ = PurePosixPath(one.path).relative_to(COMPACTED.parent).parts
        wanted = self._query.system_name
        is_of_another = kind != RAW.name and wanted is not None and system != safe_name(wanted)
        return self._query.touches(one.hour) and not is_of_another


class _Groups:
    """Cuts ordered tables so that rows which share their `completed` and `did` stay together.

    Args:
        rows_max: if more rows come, there are further ones, and the last that belong together may lack some.

    Attributes:
        is_whole: whether all rows came.
        is_one: whether all rows that came belong together.
    """

    def __init__(self, rows_max: int | None) -> None:
        self.is_whole = True
        self.is_one = True
        self._rows_max = rows_max

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows of the tables, without the last that belong together if some may lack."""
        rows, before, rest = 0, _NO_ROWS, _NO_ROWS
        for table in _together(tables):
            rows += table.num_rows
            held = pa.concat_tables([rest, table]) if rest.num_rows else table
            begin = _begin_of_last(held)
            if begin:
                self.is_one = False
                if before.num_rows:
                    yield before
                before = held.slice(0, begin)
            rest = held.slice(begin)
        self.is_whole = self._rows_max is None or rows <= self._rows_max
        last = [table for table in (before, rest if self.is_whole else _NO_ROWS) if table.num_rows]
        if last:
            yield pa.concat_tables(last)


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables, small ones as one."""
    some: list[pa.Table] = []
    rows = size_bytes = 0
    for table in tables:
        some.append(table)
        rows, size_bytes = rows + table.num_rows, size_bytes + table.nbytes
        if rows >= _TOGETHER_ROWS or size_bytes >= PIECE_BYTES:
            yield pa.concat_tables(some)
            some, rows, size_bytes = [], 0, 0
    if some:
        yield pa.concat_tables(some)


def _begin_of_last(table: pa.Table) -> int:
    """Where the rows begin that share their `completed` and `did` with the last one."""
    same = [pc.equal(table[name], table[name][-1]) for name in ("completed", "did")]
    return int(pc.index(pc.and_(*same), True).as_py())


def _place_after(table: pa.Table) -> Place:
    return Place(table["completed"][-1].value, table["did"][-1].as_py(), is_included=False)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # It has gone, or reading it says what is wrong.


def scan_hours(*roots: Path) -> Iterator[tuple[tuple[Rules, ...], tuple[pa.Table, ...]]]:
    """The records of several roots side by side, after the rules that they were written by.

    Each pair is about an hour that one of the roots has, or the part of it up to a file, oldest first.
    Raises what `scan` does.
    """
    query = Query(oldest_first=True)
    with contextlib.ExitStack() as stack:
        files = [HourFiles(root) for root in roots]
        readers = [
            stack.enter_context(_Reader(root, query, one)) for root, one in zip(roots, files, strict=True)
        ]
        for hour in sorted({hour for one in files for hour in one.hours}):
            rules = tuple(one.rules(hour) for one in files)
            for tables in _side_by_side([reader.of_hour(hour) for reader in readers]):
                yield rules, tables
        for reader in readers:
            reader.check()


def _side_by_side(streams: Sequence[Iterator[pa.Table]]) -> Iterator[tuple[pa.Table, ...]]:
    """Ordered tables, each cut where the first of them ends; no rows of one place are in two cuts."""
    held = [next(stream, _NO_ROWS) for stream in streams]
    while any(table.num_rows for table in held):
        end = min(_place_after(table) for table in held if table.num_rows)
        upto = [_rows_upto(table, end) for table in held]
        yield tuple(table.slice(0, count) for table, count in zip(held, upto, strict=True))
        held = [
            next(stream, _NO_ROWS) if count == table.num_rows else table.slice(count)
            for stream, table, count in zip(streams, held, upto, strict=True)
        ]


def _rows_upto(table: pa.Table, end: Place) -> int:
    completed = table["completed"].cast(pa.int64())
    same = pc.and_(pc.equal(completed, end.completed_ms), pc.less_equal(table["did"], end.did))
    return pc.sum(pc.or_(pc.less(completed, end.completed_ms), same)).as_py() or 0
