"""How files of the layout are read back, whole or an hour in windows of `completed`.

Repeats of a record share their `completed`, so each is in the same window as the others: what is done window
by window gives the same as if it were done at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.exporter.parquet.encoding import CODED, CODED_SCHEMA
from waybill.facets.arrow import SCHEMA
from waybill.facets.record import AFTER_LAST_MS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

DAMAGED: Final = (pa.ArrowException, ValueError, OSError)
"""What reading a damaged file raises: an `OSError` where a page does not decompress."""

_ROW_BYTES: Final = 256
"""A row group of larger rows, as they are encoded, counts for as many rows of this size."""

WINDOW_ROWS: Final = 250_000
"""About how many rows of an hour are in memory at once."""


class TimeWindow(NamedTuple):
    """A span of time in epoch milliseconds; `until_ms` is the first instant after it."""

    since_ms: int
    until_ms: int


class Span(NamedTuple):
    """What a footer tells of a row group."""

    first_ms: int
    """Its earliest `completed`, in epoch milliseconds."""
    last_ms: int
    """Its latest `completed`, in epoch milliseconds."""
    rows: int
    """How many rows it has, or counts for where they are large; see `_ROW_BYTES`."""


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
        raise pa.ArrowInvalid(f"it has no column {error}") from None
    check(file.schema_arrow)
    return file


def spans(metadata: pq.FileMetaData) -> list[Span]:
    """What the footer tells of the row groups of a file, in order."""
    place = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == "completed")
    return [_span(metadata.row_group(at), place) for at in range(metadata.num_row_groups)]


def _span(group: pq.RowGroupMetaData, place: int) -> Span:
    known = group.column(place).statistics
    # A file that Waybill did not write may have no statistics: then it may hold anything.
    first, last = (0, AFTER_LAST_MS) if known is None else (known.min_raw, known.max_raw)
    return Span(first, last, max(group.num_rows, group.total_byte_size // _ROW_BYTES))


def unreadable(path: Path | str, error: Exception) -> str:
    """The sentence about a damaged file."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read ({reason}); put a good copy in its place, or move it away"


def unreachable(path: Path, error: Exception) -> str:
    """The sentence about a file that cannot be read now, though it may be undamaged."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read now ({reason}); see to the disk and its permissions, and it is tried again"


def check(schema: pa.Schema) -> None:
    """Raise `ArrowInvalid` unless a file has the columns of the layout."""
    if schema.remove_metadata() != CODED_SCHEMA:
        raise pa.ArrowInvalid("its columns are not those of the provenance layout")


def row_groups(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """All rows of an open file, a row group at a time."""
    for at in range(file.num_row_groups):
        yield file.read_row_group(at, use_threads=False)


def systems_in(file: pq.ParquetFile) -> list[str]:
    """The names of the systems whose rows an open file has."""
    names: list[str] = file.read(["system_name"], use_threads=False)["system_name"].unique().to_pylist()
    return names


def read_window(file: pq.ParquetFile, window: TimeWindow) -> pa.Table:
    """The rows of an open file whose `completed` is within a window."""
    known = spans(file.metadata)
    groups = [
        at
        for at, span in enumerate(known)
        if span.first_ms < window.until_ms and span.last_ms >= window.since_ms
    ]
    table = file.read_row_groups(groups, use_threads=False)
    whole = all(
        window.since_ms <= known[at].first_ms and known[at].last_ms < window.until_ms for at in groups
    )
    if whole:
        return table
    since, until = (pa.scalar(epoch_ms, SCHEMA.field("completed").type) for epoch_ms in window)
    return table.filter((pc.field("completed") >= since) & (pc.field("completed") < until))
