"""How files of the layout are read back, whole or an hour in windows of `completed`.

Repeats of a record share their `completed`, so each is in the same window as the others: what is done window
by window gives the same as if it were done at once. A footer tells how many rows there are, and not how large
they are in memory, where a text is repeated in each row. So a window that turns out to be too large is cut
while it is read.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets.record import AFTER_LAST_MS

from ..remedies import repair_command
from .decoded import trimmed
from .encoding import CODED, CODED_SCHEMA, FORMAT

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DAMAGED: Final = (pa.ArrowException, ValueError, OSError)
"""What reading a damaged file raises: an `OSError` where a page does not decompress."""

_ROW_BYTES: Final = 256
"""A row group of larger rows, as they are encoded, counts for as many rows of this size."""

WINDOW_ROWS: Final = 250_000
"""About how many rows of an hour are in memory at once."""

_CUT_BY: Final = ("completed", "did", "data_sink")
_Value = int | str
_Bounds = tuple[Any, Any]
"""The least value, and the least after all values."""

_Read = TypeVar("_Read")


class TimeWindow(NamedTuple):
    """A span of time in epoch milliseconds; `until_ms` is the first instant after it."""

    since_ms: int
    until_ms: int


ALWAYS: Final = TimeWindow(0, AFTER_LAST_MS)


class Span(NamedTuple):
    """The facts about a row group from a footer."""

    first_ms: int
    """Its earliest `completed`, in epoch milliseconds."""
    last_ms: int
    """Its latest `completed`, in epoch milliseconds."""
    rows: int
    """How many rows it has, or counts for where they are large; see `_ROW_BYTES`."""


class WindowTooLargeError(Exception):
    """A window holds more than there is room for; `parts` of it can be read instead, in order."""

    def __init__(self, parts: Sequence[Room]) -> None:
        super().__init__(parts)
        self.parts = parts


class Room:
    """A window, and the memory for its rows.

    Where a single instant is too large it is cut by `did`, and where a single file is, by `data_sink`: rows
    that share a natural key are in one window all the same, and windows that follow each other are in order.

    Args:
        size_bytes: how much memory there is.
        expected_bytes: how much memory the rows may take, for all that is known.
    """

    def __init__(self, bounds: Mapping[str, _Bounds], size_bytes: int, expected_bytes: int) -> None:
        self.bounds = bounds
        self._size_bytes = self._left_bytes = size_bytes
        self._expected_bytes = expected_bytes
        self._taken: list[pa.Table] = []

    def holds(self, table: pa.Table) -> pa.ChunkedArray:
        """For each row of a table whether it is within the window."""
        return functools.reduce(pc.and_, (_within(table[name], one) for name, one in self.bounds.items()))

    def take(self, table: pa.Table) -> None:
        """Take room for rows of the window; raises `WindowTooLargeError` where there is too little."""
        self._left_bytes -= table.nbytes
        self._taken.append(table.select([name for name in _CUT_BY if name in table.column_names]))
        if self._left_bytes >= 0:
            return
        for name in self._taken[0].column_names:
            if edges := self._edges(name):
                since, until = self.bounds.get(name, (None, None))
                bounds = [{**self.bounds, name: part} for part in pairwise([since, *edges, until])]
                expected_bytes = self._expected_bytes // len(bounds)
                raise WindowTooLargeError([Room(one, self._size_bytes, expected_bytes) for one in bounds])
        self._left_bytes = sys.maxsize  # It cannot be cut.

    def _edges(self, name: str) -> list[_Value]:
        """Where to cut by a column, in order: by what was taken, which is some of what is there."""
        values = sorted({value for table in self._taken for value in _distinct(table[name])})
        if len(values) == 1:
            # Others may be there: a column is only cut by once the one before it has a single value.
            [value] = values
            edges = [value, value + 1 if isinstance(value, int) else value + "\0"]
        else:
            parts = min(self._expected_bytes // self._size_bytes + 2, len(values))
            edges = sorted({values[len(values) * at // parts] for at in range(1, parts)})
        since, until = self.bounds.get(name, (None, None))
        # No text comes before the empty one, for which none counts as well.
        return [
            edge
            for edge in edges
            if edge != "" and (since is None or edge > since) and (until is None or edge < until)
        ]


def _distinct(column: pa.ChunkedArray) -> list[Any]:
    unique = column.unique()
    if pa.types.is_dictionary(unique.type):
        unique = unique.dictionary_decode()
    if pa.types.is_timestamp(unique.type):
        unique = unique.cast(pa.int64())
    return ["" if value is None else value for value in unique.to_pylist()]


def in_windows(
    spans: Iterable[Span],
    rows_max: int,
    read: Callable[[Room], _Read],
    *,
    newest_first: bool = False,
) -> Iterator[_Read]:
    """Read row groups in windows, oldest first, of about `rows_max` rows and the memory for as many.

    `read` gives what is in the window of a room, and takes the room for it; it is called again for the parts
    of a window that is too large.
    """
    spans = list(spans)
    step = 1 if newest_first else -1
    waiting = []
    for since_ms, until_ms in cut(spans, rows_max)[::step]:
        rows = sum(span.rows for span in spans if span.first_ms < until_ms and span.last_ms >= since_ms)
        size_bytes = rows_max * 2 * _ROW_BYTES
        waiting.append(Room({"completed": (since_ms, until_ms)}, size_bytes, rows * _ROW_BYTES))
    while waiting:
        room = waiting.pop()
        try:
            found = read(room)
        except WindowTooLargeError as error:
            waiting += error.parts[::step]
        else:
            del room
            yield found
            del found  # before the next is read
        pa.default_memory_pool().release_unused()


def cut(spans: Iterable[Span], rows_max: int) -> list[TimeWindow]:
    """Cut all of time into windows, oldest first, of about `rows_max` rows; a row group is never cut."""
    edges, rows = [0], 0
    for span in sorted(spans):
        if rows + span.rows > rows_max and edges[-1] < span.first_ms:
            edges.append(span.first_ms)
            rows = 0
        rows += span.rows
    return [TimeWindow(*edge) for edge in pairwise([*edges, AFTER_LAST_MS])]


def open_file(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a file of the layout; give its metadata where they are known already.

    Raises:
        FileNotFoundError: the file does not exist.
        DAMAGED: it is not a readable Parquet file of the layout.
    """
    return _open(pa.OSFile(str(path)), metadata)


def open_bytes(data: ReadableBuffer) -> pq.ParquetFile:
    """Open the bytes of a file of the layout; raises `DAMAGED` as `open_file` does."""
    return _open(pa.BufferReader(data))


def open_stream(source: BinaryIO) -> pq.ParquetFile:
    """Open a file of the layout that the caller closes; raises `DAMAGED` as `open_file` does."""
    return _open(pa.PythonFile(source, "r"))


def _open(source: pa.NativeFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=list(CODED))
    except KeyError as error:  # which pyarrow raises for a column that is not there
        raise ForeignError(f"it has no column {error}") from None
    check(file.schema_arrow)
    check_format(file.metadata.metadata)
    return file


def spans(metadata: pq.FileMetaData) -> list[Span]:
    """The facts about each row group of a file from its footer, in order."""
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    place = paths.index("completed")
    return [_span(metadata.row_group(at), place) for at in range(metadata.num_row_groups)]


def _span(group: pq.RowGroupMetaData, place: int) -> Span:
    known = group.column(place).statistics
    # A file that Waybill did not write may have no statistics: then it may hold anything.
    first, last = (0, AFTER_LAST_MS) if known is None else (known.min_raw, known.max_raw)
    return Span(first, last, max(group.num_rows, group.total_byte_size // _ROW_BYTES))


class ForeignError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """A file is not one of Waybill's, or not as Waybill wrote it; one of `DAMAGED`, in plain words."""


class FormatError(ForeignError):
    """A file has another format than this version of Waybill reads; one of `DAMAGED`."""


def check_format(metadata: Mapping[bytes, bytes] | None) -> None:
    """Raise `FormatError` if a footer's key-value metadata name another format."""
    for key, number in FORMAT.items():
        if (found := (metadata or {}).get(key, number)) != number:
            told = (
                f"its format is {found.decode('ascii', 'replace')}, and this Waybill reads {number.decode()}"
            )
            raise FormatError(f"{told}; use the Waybill that wrote it")


def unreadable(path: Path | str, error: Exception, root: Path | None) -> str:
    """The sentence about a file that could not be read, which is damaged if it was not the system's fault.

    `root` is the one that the file belongs to, if `waybill repair` works on that.
    """
    # A system's own error says nothing about the bytes.
    if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
        return unreachable(path, error)
    if isinstance(error, FormatError):
        return f"{path} cannot be read: {error}"
    way_out = "put a good copy in its place" if root is None else f"run `{repair_command(root)}`"
    return f"{path} is damaged ({damage_of(error)}); {way_out}"


def damage_of(error: Exception) -> str:
    """What is wrong with a file that raised one of `DAMAGED`: what a library says of it is for nobody."""
    return str(error) if isinstance(error, ForeignError) else "it is not a whole Parquet file"


def unreachable(path: Path | str, error: Exception) -> str:
    """The sentence about a file that cannot be read now, though it may be undamaged."""
    number = getattr(error, "errno", None)
    reason = "there is no memory for it" if number is None else os.strerror(number)
    return f"{path} cannot be read now ({reason}); see to the disk and its permissions, and it is tried again"


def check(schema: pa.Schema) -> None:
    """Raise `ForeignError` unless a file has the columns of the layout."""
    if schema.remove_metadata() != CODED_SCHEMA:
        raise ForeignError("its columns are not those of the provenance layout")


def row_groups(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """All rows of an open file, a row group at a time."""
    for at in range(file.num_row_groups):
        yield file.read_row_group(at, use_threads=False)


def systems_in(file: pq.ParquetFile) -> list[str]:
    """The names of the systems whose rows an open file has."""
    names: list[str] = file.read(["system_name"], use_threads=False)["system_name"].unique().to_pylist()
    return names


def read_window(file: pq.ParquetFile, room: Room) -> pa.Table:
    """The rows of an open file that are within a window, a row group at a time.

    Raises:
        WindowTooLargeError: there is no room for them.
    """
    since_ms, until_ms = room.bounds["completed"]
    tables = [CODED_SCHEMA.empty_table()]
    for at, span in enumerate(spans(file.metadata)):
        if not (span.first_ms < until_ms and span.last_ms >= since_ms):
            continue
        within = None
        if len(room.bounds) > 1 or not (since_ms <= span.first_ms and span.last_ms < until_ms):
            # Most of a row group need not be read to see whether any of its rows is wanted.
            within = room.holds(file.read_row_group(at, list(room.bounds), use_threads=False))
            if not pc.any(within).as_py():
                continue
        table = file.read_row_group(at, use_threads=False).replace_schema_metadata()
        if within is not None:
            table = trimmed(table.filter(within.combine_chunks()))
        room.take(table)
        tables.append(table)
    return pa.concat_tables(tables)


def _within(column: pa.ChunkedArray, bounds: _Bounds) -> pa.ChunkedArray:
    """For each value whether it is within bounds; none counts as an empty text."""
    found = []
    for chunk in column.chunks:
        is_coded = pa.types.is_dictionary(chunk.type)
        values = chunk.dictionary if is_coded else chunk
        since, until = (None if one is None else pa.scalar(one, values.type) for one in bounds)
        within = pa.repeat(True, len(values))  # noqa: FBT003 - the value of all
        within = within if since is None else pc.and_(within, pc.greater_equal(values, since))
        within = within if until is None else pc.and_(within, pc.less(values, until))
        found.append(pc.fill_null(within.take(chunk.indices) if is_coded else within, not bounds[0]))
    return pa.chunked_array(found, pa.bool_())
