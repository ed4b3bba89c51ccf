"""The rows of some hours in order, from their files and beside them.

A compaction publishes an hour's compacted files first, and removes its raw files then. So raw files are
listed before compacted ones. Where a record may have several rows, the hours are read again if any file has
changed or gone meanwhile. Rows of a raw file that the compacted file of their system covers are left out.

DuckDB reads all files at once. Where their rows are large, or where it fails, which it does as a whole,
pyarrow reads them in windows of time that fit into memory, and the files that it cannot read are noted.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.arrow import SCHEMA

from .. import parquet
from ..directory import FileStamp
from ..names import RawName, safe_name
from ..parquet import CODED_SCHEMA, Covers, Span, TimeWindow, in_windows
from .database import FAILED, escaped, execute, is_short_of_memory, run
from .query import TooManyError
from .sums import Dimension
from .tail import IN_FILES, STEP, Tail

if TYPE_CHECKING:
    import duckdb
    import pyarrow.parquet as pq

    from ..parquet import Room
    from .access import Access
    from .sql import Conditions

_BATCH_ROWS: Final = 2_048
"""What DuckDB hands over at once: the rows of one such batch are in memory whole."""

_WINDOW_ROWS: Final = 32_768
"""About how many rows are read together where they are large, or as much memory as they usually take."""

_NOTES_KEPT: Final = 4_096
"""So many files' notes stay in memory for further questions, of about half a kilobyte each."""

_TOO_MANY_OPEN: Final = frozenset({errno.EMFILE, errno.ENFILE})

_FILE: Final = "file_of_row"
_PLACE: Final = "place_of_row"
_READ: Final = f"read_parquet($files, hive_partitioning = false, filename = '{_FILE}')"
_NO_ROWS: Final = CODED_SCHEMA.append(pa.field(STEP, pa.int32())).empty_table()
_WITHIN: Final = "epoch_ms(completed) >= $tail_since_ms AND epoch_ms(completed) < $tail_until_ms"
_KEY: Final = ("system_name", "did", "data_sink", "transforms", "final_state", "completed")
_RETRACTS: Final = " AND ".join(
    [
        f"held.{STEP} < retracted.{STEP}",
        *(f"held.{name} IS NOT DISTINCT FROM retracted.{name}" for name in _KEY),
    ]
)
_SUMS: Final = (
    "count(*) AS records",
    "min(epoch_ms(completed)) AS first",
    "max(epoch_ms(completed)) AS last",
)


_Read = TypeVar("_Read")


class MovedError(Exception):
    """Rows have moved to other files since the files were listed."""


class Place(NamedTuple):
    """Where reading goes on: after the rows of a file that ended at an instant, or with them."""

    completed_ms: int
    did: str
    is_included: bool


class Files(NamedTuple):
    """The files of some hours.

    Attributes:
        raws: the raw files.
        compacted: the compacted and late files.
        tail: when the rows of the tail ended that belong to these hours; None: it has none of them.
        is_merged: whether a record may have several rows.
    """

    raws: Mapping[Path, RawName]
    compacted: Sequence[Path]
    tail: TimeWindow | None
    is_merged: bool

    @property
    def number(self) -> int:
        """How many there are, the tail being one."""
        return len(self.raws) + len(self.compacted) + (self.tail is not None)

    def joined(self, more: Files) -> Files:
        """These and more, of hours that follow or come before."""
        tails = [files.tail for files in (self, more) if files.tail is not None]
        tail = TimeWindow(min(tails).since_ms, max(tails).until_ms) if tails else None
        return Files(
            {**self.raws, **more.raws},
            [*self.compacted, *more.compacted],
            tail,
            self.is_merged or more.is_merged,
        )


_There = Mapping[Path, tuple[Path, FileStamp]]
"""The files that are there: where each is on this machine, and in which version."""


class HourRows:
    """Reads the rows of hours for one question.

    Args:
        connection: a connection of its own.
        conditions: those of the question.
        access: finds the files on this machine.
        tail: what is in no file yet.
        unreadable: the files that cannot be read, with the error; it is added to.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        conditions: Conditions,
        access: Access,
        tail: Tail,
        unreadable: dict[Path, Exception],
    ) -> None:
        self._connection = connection
        self._conditions = conditions
        self._access = access
        self._tail = tail
        self._unreadable = unreadable

    def ordered(
        self,
        files: Files,
        columns: Sequence[str],
        *,
        oldest_first: bool,
        place: Place | None,
        rows_max: int | None,
    ) -> Iterator[pa.Table]:
        """The rows that meet the conditions, in order of `completed`, then `did`, a few at a time.

        If a record may have several rows, only the conditions on the natural key apply, and the tables have
        all columns.

        Raises:
            MovedError: the files have to be listed again, to go on after the rows that were returned.
            TooManyError: rows that belong together do not fit into memory.
        """
        direction, further = ("ASC", ">") if oldest_first else ("DESC", "<")
        conditions, params = self._conditions_on(files), dict(self._conditions.params)
        if place is not None:
            params |= {"place_us": place.completed_ms * 1_000, "place_did": place.did}
            instant, did = "make_timestamptz($place_us)", further + ("=" if place.is_included else "")
            conditions += f" AND completed {further}= {instant}"
            conditions += f" AND (completed {further} {instant} OR did {did} $place_did)"
        schema = SCHEMA if files.is_merged else pa.schema([SCHEMA.field(name) for name in columns])
        order = f"ORDER BY completed {direction}, did {direction}"
        limit = "" if rows_max is None else f"LIMIT {rows_max}"
        asked = _Asked(schema.names, f"WHERE {conditions} {order} {limit}", params, not oldest_first)
        rows = 0
        for table in self._run(files, asked):
            yield table.cast(schema)
            rows += table.num_rows
            if rows_max is not None and rows >= rows_max:
                return

    def unordered(self, files: Files, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The records that meet the conditions, each of which has one row, in any order."""
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        query = f"WHERE {self._conditions_on(files)}"
        for table in self._run(files, _Asked(columns, query, self._conditions.params, is_held=True)):
            yield table.cast(schema)

    def summed(self, files: Files, by: Collection[Dimension]) -> Iterator[pa.Table]:
        """Sums of the records that meet the conditions, each of which has one row; see `summed`."""
        kinds = [f"{_value_of(one)} AS {one.value}" for one in Dimension if one in by]
        query = f"WHERE {self._conditions_on(files)} GROUP BY ALL HAVING count(*) > 0"
        yield from self._run(files, _Asked([*kinds, *_SUMS], query, self._conditions.params))

    def _conditions_on(self, files: Files) -> str:
        return self._conditions.by_key if files.is_merged else self._conditions.all

    def _run(self, files: Files, asked: _Asked) -> Iterator[pa.Table]:
        """Run a query over the rows: over all of them, or over windows of time, one after the other."""
        there = self._find(files)
        try:
            source = self._together(files, there)
            stream = None if source is None else self._stream(files, source, asked)
            first = None if stream is None else next(stream, None)
        except FAILED:
            stream = None
        if stream is None:
            yield from self._run_in_windows(files, there, asked)
            return
        try:
            # It has read all rows before it gives the first.
            self._check_unmoved(files, there)
            while first is not None:
                yield pa.Table.from_batches([first])
                first = next(stream, None)
        finally:
            stream.close()

    def _run_in_windows(self, files: Files, there: _There, asked: _Asked) -> Iterator[pa.Table]:
        footers = self._read_files(files, there, lambda file: file.metadata)
        spans = [span for footer in footers.values() for span in parquet.spans(footer)]
        if files.tail is not None:
            spans.append(Span(files.tail.since_ms, files.tail.until_ms - 1, self._tail.records.num_rows))
        covered = _covered(files, {path: Covers.read(footer.metadata) for path, footer in footers.items()})
        read = functools.partial(self._read_window, files, there, covered)
        is_of_rows = set(asked.wanted) <= set(SCHEMA.names)
        told = asked._replace(wanted=[_PLACE]) if is_of_rows else asked
        for window in in_windows(spans, _WINDOW_ROWS, read, newest_first=asked.newest_first):
            # DuckDB would copy large texts several times: it only says where the rows are.
            places = pa.array(range(window.num_rows), pa.int64())
            self._connection.register("window_rows", window.append_column(_PLACE, places))
            try:
                found = self._execute(_Source("window_rows", {}), told).read_all()
            except FAILED as error:
                if is_short_of_memory(error):
                    raise TooManyError("the records of one file take too much memory") from error
                raise
            self._connection.unregister("window_rows")
            if is_of_rows:
                found = window.select(list(asked.wanted)).take(found[_PLACE])
            del window  # before the next is read
            if found.num_rows:
                yield found
            del found

    def _read_window(
        self, files: Files, there: _There, covered: Collection[_Covered], room: Room
    ) -> pa.Table:
        """The rows of a window, with `STEP`."""
        tables = [_NO_ROWS]
        in_files = self._read_files(files, there, functools.partial(parquet.read_window, room=room))
        for path, table in in_files.items():
            names = table["system_name"].unique().to_pylist()
            systems = [name for name in names if (path, safe_name(name)) in covered]
            rows = table.filter(pc.invert(pc.is_in(table["system_name"], pa.array(systems, pa.string()))))
            steps = pa.repeat(pa.scalar(IN_FILES, pa.int32()), rows.num_rows)
            tables.append(rows.append_column(_NO_ROWS.schema.field(STEP), steps))
        if files.tail is not None:
            table = self._tail.records.filter(room.holds(self._tail.records)).cast(_NO_ROWS.schema)
            room.take(table)
            tables.append(table)
        return pa.concat_tables(tables)

    def _read_files(
        self, files: Files, there: _There, read: Callable[[pq.ParquetFile], _Read]
    ) -> dict[Path, _Read]:
        """What `read` gives of each file that can be read, all of them as they are now."""
        found = {}
        for path, (place, _) in there.items():
            try:
                if path not in self._unreadable:
                    found[path] = read(parquet.open_file(place))
            except FileNotFoundError:
                if files.is_merged:
                    raise MovedError from None
            except parquet.DAMAGED as error:
                self._note_unreadable(path, error)
        self._check_unmoved(files, there)
        return found

    def _find(self, files: Files) -> _There:
        """The files that are there and can be read, as far as is known."""
        found = {}
        for path in (*files.raws, *files.compacted):
            if path in self._unreadable:
                continue
            try:
                place = self._access.place(path)
                found[path] = place, FileStamp.of(place.stat())
            except FileNotFoundError:
                if path in files.raws:
                    raise MovedError from None
            except parquet.DAMAGED as error:
                self._note_unreadable(path, error)
        return found

    def _note_unreadable(self, path: Path, error: Exception) -> None:
        if getattr(error, "errno", None) in _TOO_MANY_OPEN:
            raise error
        self._unreadable[path] = error

    def _check_unmoved(self, files: Files, there: _There) -> None:
        """Raise `MovedError` if rows may have been read twice, or not at all."""
        readable = {path: found for path, found in there.items() if path not in self._unreadable}
        if files.is_merged and self._find(files) != readable:
            raise MovedError

    def _stream(self, files: Files, source: _Source, asked: _Asked) -> pa.RecordBatchReader:
        """What a query says of the rows of files and of those of the tail."""
        if source.text is not None and files.tail is None and not self._tail.retracted.num_rows:
            return self._execute(source, asked)  # with less for DuckDB to plan
        columns = ", ".join(SCHEMA.names)
        rows = [] if source.text is None else [f"(FROM {source.text} SELECT {columns}, {IN_FILES} AS {STEP})"]
        params = dict(source.params)
        if files.tail is not None or not rows:
            self._connection.register("tail", self._tail.records)
            since_ms, until_ms = files.tail or (0, 0)
            params |= {"tail_since_ms": since_ms, "tail_until_ms": until_ms}
            rows.append(f"(FROM tail SELECT {columns}, {STEP} WHERE {_WITHIN})")
        return self._execute(_Source(f"({' UNION ALL '.join(rows)})", params), asked)

    def _execute(self, source: _Source, asked: _Asked) -> pa.RecordBatchReader:
        every = source.text
        if self._tail.retracted.num_rows:
            self._connection.register("retracted", self._tail.retracted)
            every = f"(FROM {every} AS held WHERE NOT EXISTS (FROM retracted WHERE {_RETRACTS}))"
        query = f"FROM {every} SELECT {', '.join(asked.wanted)} {asked.rest}"
        if asked.is_held:
            query = f"WITH found AS MATERIALIZED ({query}) FROM found"
        found = run(self._connection, query, {**asked.params, **source.params})
        return found.to_arrow_reader(_BATCH_ROWS)

    def _together(self, files: Files, there: _There) -> _Source | None:
        """The rows of all files, to be read at once; None if some are large."""
        if files.tail is not None and self._tail.has_large_rows:
            return None
        if not there:
            return _NOTHING
        covers: dict[Path, Covers] = {}
        for path, (place, stamp) in there.items():
            notes = _read_notes(place, stamp)
            if notes.has_large_rows:
                return None
            covers[path] = notes.covers
        covered = {(str(there[path][0]), system) for path, system in _covered(files, covers) if path in there}
        source = _Source(_READ, {"files": escaped(place for place, _ in there.values())})
        return self._uncovered(source, covered)

    def _uncovered(self, source: _Source, covered: Collection[tuple[str, str]]) -> _Source:
        """The rows, without those of the systems of files that are `covered`."""
        if not covered:
            return source
        systems = f"FROM {source.text} SELECT DISTINCT {_FILE}, system_name"
        found = execute(self._connection, systems, source.params)
        pairs = [f"{file}\n{system}" for file, system in found if (file, safe_name(system)) in covered]
        is_covered = f"list_contains($covered, {_FILE} || chr(10) || system_name)"
        return _Source(f"(FROM {source.text} WHERE NOT {is_covered})", {**source.params, "covered": pairs})


class _Asked(NamedTuple):
    """What is asked of rows.

    Attributes:
        wanted: columns of records, or sums.
        rest: the rest of the query, after the columns.
        params: the values that it names.
        newest_first: where rows are read in windows, the order of these.
        is_held: whether rows are held until all were read, as those are that are sorted or summed: an error
            is one before the first row is given.
    """

    wanted: Sequence[str]
    rest: str
    params: Mapping[str, Any]
    newest_first: bool = False
    is_held: bool = False


class _Source(NamedTuple):
    """Rows that a query can read: the text for them, if there are any, and the parameters that it names."""

    text: str | None
    params: Mapping[str, Any]


_NOTHING: Final = _Source(None, {})


class _Notes(NamedTuple):
    """What the footer of a file says of it."""

    covers: Covers
    has_large_rows: bool


@functools.lru_cache(_NOTES_KEPT)
def _read_notes(place: Path, stamp: FileStamp) -> _Notes:  # noqa: ARG001 - another version has other notes
    noted = parquet.open_file(place).metadata.metadata
    return _Notes(Covers.read(noted), parquet.LARGE_ROWS in (noted or {}))


_Covered = tuple[Path, str]
"""A raw file, and the safe name of a system whose rows of it are in the compacted file as well."""


def _covered(files: Files, covers: Mapping[Path, Covers]) -> set[_Covered]:
    return {
        (path, compacted.parent.parent.name)
        for compacted, cover in covers.items()
        if compacted not in files.raws
        for path, raw in files.raws.items()
        if path.parts[-3:-1] == (compacted.parent.name, compacted.stem) and cover.has(raw)
    }


def _value_of(one: Dimension) -> str:
    if one is Dimension.HOUR:
        return "epoch_ms(completed) - epoch_ms(completed) % 3_600_000"
    return one.column
