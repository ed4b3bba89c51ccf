"""The rows of some hours in order, from their files and beside them.

A compaction publishes an hour's compacted files first, and removes its raw files then. So raw files are
listed before compacted ones. Where a record may have several rows, the hours are read again if any file has
changed or gone meanwhile. Rows of a raw file that the compacted file of their system covers are left out.

DuckDB fails as a whole where it cannot read a file. Then the files are read one by one, and those that cannot
be read are noted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from waybill.facets.arrow import SCHEMA

from .. import parquet
from ..directory import FileStamp
from ..names import RawName, safe_name
from ..parquet import Covers, TimeWindow
from .database import FAILED, escaped, execute, is_short_of_memory, run
from .sums import Dimension
from .tail import STEP, Tail

if TYPE_CHECKING:
    from collections.abc import Collection

    from .access import Access
    from .sql import Conditions

_BATCH_ROWS: Final = 2_048
"""What DuckDB hands over at once: the rows of one such batch are in memory whole."""

_FILE: Final = "file_of_row"
_COLUMNS: Final = ", ".join([*SCHEMA.names, _FILE])
_READ: Final = f"read_parquet($files, hive_partitioning = false, filename = '{_FILE}')"
_NOTED: Final = (
    "FROM parquet_kv_metadata($files) SELECT file_name, key, value WHERE key IN ($covers, $format)"
)
_STAGE: Final = f"CREATE OR REPLACE TEMP TABLE staged AS FROM no_rows SELECT *, '' AS {_FILE}"
_COVERS: Final = b"waybill.covers"
_WITHIN: Final = "epoch_ms(completed) >= $tail_since_ms AND epoch_ms(completed) < $tail_until_ms"
_KEY: Final = ("system_name", "did", "data_sink", "transforms", "final_state", "completed")
_RETRACTS: Final = " AND ".join(
    [
        f"held.{STEP} < retracted.{STEP}",
        *(f"held.{name} IS NOT DISTINCT FROM retracted.{name}" for name in _KEY),
    ]
)
_SUMS: Final = "count(*) AS records, min(epoch_ms(completed)) AS first, max(epoch_ms(completed)) AS last"


class MovedError(Exception):
    """Rows have moved to other files since the files were listed."""


class NoRoomError(Exception):
    """The rows take more memory than there is."""


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
            MovedError: the files have to be listed again; nothing was returned.
            NoRoomError: the rows do not fit into memory; some may have been returned.
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
        query = f"SELECT {', '.join(schema.names)} WHERE {conditions} {order} {limit}"
        for table in self._run(files, query, params):
            yield table.cast(schema)

    def summed(self, files: Files, by: Collection[Dimension]) -> Iterator[pa.Table]:
        """Sums of the records that meet the conditions, each of which has one row; see `summed`."""
        kinds = [f"{_value_of(one)} AS {one.value}" for one in Dimension if one in by]
        wanted = ", ".join([*kinds, _SUMS])
        query = f"SELECT {wanted} WHERE {self._conditions_on(files)} GROUP BY ALL HAVING count(*) > 0"
        yield from self._run(files, query, self._conditions.params)

    def _conditions_on(self, files: Files) -> str:
        return self._conditions.by_key if files.is_merged else self._conditions.all

    def _run(self, files: Files, query: str, params: Mapping[str, Any]) -> Iterator[pa.Table]:
        """Run a query over the rows; it has read all of them before it gives the first."""
        there = self._find(files)
        first, stream = self._begin(files, there, query, params)
        try:
            if files.is_merged and self._find(files) != there:
                raise MovedError
            while first is not None:
                yield pa.Table.from_batches([first])
                first = next(stream, None)
        except FAILED as error:
            raise _too_large_or(error) from error
        finally:
            stream.close()

    def _find(self, files: Files) -> _There:
        """Those of the files that are there and can be read, as far as is known."""
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
                self._unreadable[path] = error
        return found

    def _begin(
        self, files: Files, there: _There, query: str, params: Mapping[str, Any]
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatchReader]:
        """Run a query over the rows of the files, of all at once if that works; also gives the first rows."""
        try:
            return self._stream(files, self._together(files, there), query, params)
        except FAILED as error:
            if is_short_of_memory(error):
                raise NoRoomError from error
        try:
            return self._stream(files, self._one_by_one(files, there), query, params)
        except FAILED as error:
            raise _too_large_or(error) from error

    def _stream(
        self, files: Files, source: _Source, query: str, params: Mapping[str, Any]
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatchReader]:
        columns = ", ".join(SCHEMA.names)
        rows = [] if source.text is None else [f"(FROM {source.text} SELECT {columns}, -1 AS {STEP})"]
        params = {**params, **source.params}
        if files.tail is not None or not rows:
            self._connection.register("tail", self._tail.records)
            since_ms, until_ms = files.tail or (0, 0)
            params |= {"tail_since_ms": since_ms, "tail_until_ms": until_ms}
            rows.append(f"(FROM tail SELECT {columns}, {STEP} WHERE {_WITHIN})")
        every = f"({' UNION ALL '.join(rows)})"
        if self._tail.retracted.num_rows:
            self._connection.register("retracted", self._tail.retracted)
            every = f"(FROM {every} AS held WHERE NOT EXISTS (FROM retracted WHERE {_RETRACTS}))"
        query = f"FROM {every} {query}"
        stream = run(self._connection, query, params).to_arrow_reader(_BATCH_ROWS)
        return next(stream, None), stream

    def _together(self, files: Files, there: _There) -> _Source:
        """The rows of all files, to be read at once."""
        if not there:
            return _NOTHING
        paths = {str(place): path for path, (place, _) in there.items()}
        params = {"files": escaped(place for place, _ in there.values())}
        names = {"covers": _COVERS, "format": next(iter(parquet.FORMAT))}
        covers: dict[Path, Covers] = {}
        for name, key, value in run(self._connection, _NOTED, {**params, **names}).fetchall():
            parquet.check_format({key: value})
            if key == _COVERS:
                covers[paths[name]] = Covers.decode(value)
        return self._uncovered(files, there, covers, _Source(_READ, params))

    def _one_by_one(self, files: Files, there: _There) -> _Source:
        """The rows that meet the conditions on the natural key, of those files that can be read."""
        covers: dict[Path, Covers] = {}
        self._connection.register("no_rows", SCHEMA.empty_table())
        execute(self._connection, _STAGE, {})
        statement = f"INSERT INTO staged FROM {_READ} SELECT {_COLUMNS} WHERE {self._conditions.by_key}"
        for path, (place, _) in there.items():
            try:
                covered = Covers.read(parquet.open_file(place).metadata.metadata)
                execute(self._connection, statement, {**self._conditions.params, "files": escaped([place])})
                covers[path] = covered
            except FileNotFoundError:
                if files.is_merged:
                    raise MovedError from None
            except (*FAILED, ValueError) as error:
                if is_short_of_memory(error):
                    raise NoRoomError from error
                self._unreadable[path] = _explained(place, error)
        return self._uncovered(files, there, covers, _Source("staged", {}))

    def _uncovered(
        self, files: Files, there: _There, covers: Mapping[Path, Covers], source: _Source
    ) -> _Source:
        """The rows, without those of raw files that the compacted file of their system covers."""
        covered = {
            (str(there[path][0]), compacted.parent.parent.name)
            for compacted, cover in covers.items()
            if compacted not in files.raws
            for path, raw in files.raws.items()
            if path in there and _is_of_hour(path, compacted) and cover.has(raw)
        }
        if not covered:
            return source
        found = run(
            self._connection, f"FROM {source.text} SELECT DISTINCT {_FILE}, system_name", source.params
        )
        pairs = [
            f"{file}\n{system}" for file, system in found.fetchall() if (file, safe_name(system)) in covered
        ]
        is_covered = f"list_contains($covered, {_FILE} || chr(10) || system_name)"
        return _Source(f"(FROM {source.text} WHERE NOT {is_covered})", {**source.params, "covered": pairs})


class _Source(NamedTuple):
    """Rows that a query can read: the text for them, if there are any, and the parameters that it names."""

    text: str | None
    params: Mapping[str, Any]


_NOTHING: Final = _Source(None, {})


def _is_of_hour(raw: Path, compacted: Path) -> bool:
    return (raw.parent.parent.name, raw.parent.name) == (compacted.parent.name, compacted.stem)


def _value_of(one: Dimension) -> str:
    if one is Dimension.HOUR:
        return "epoch_ms(completed) - epoch_ms(completed) % 3_600_000"
    return one.column


def _too_large_or(error: Exception) -> Exception:
    return NoRoomError() if is_short_of_memory(error) else error


def _explained(path: Path, error: Exception) -> Exception:
    """The error that pyarrow has about a file that DuckDB cannot read; DuckDB's own if it has none."""
    try:
        for _ in parquet.row_groups(parquet.open_file(path)):
            pass
    except parquet.DAMAGED as explained:
        return explained
    if isinstance(error, duckdb.ProgrammingError) and not isinstance(error, duckdb.InvalidInputException):
        raise error  # It is the query that is wrong.
    return error
