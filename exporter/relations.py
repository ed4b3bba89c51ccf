"""What is known of files beside their records: more parents, inputs, contents, and which have not ended.

The index of a home has it, and publishes it beside the compacted files, so that a root and an export answer
as their home does. A file has what one journal has been told first of a system's files on one day.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets.chunks import in_chunks
from waybill.transport.files import publish_alone

from . import parquet
from .directory import names
from .names import RELATIONS, parse_hour

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from waybill.transport.files import Files

RELATIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("did", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
)
"""A file, what is told of it, and when that was told first."""

Relation = tuple[str, str, str, int]
"""A row: did, kind, value, and the time in epoch milliseconds."""

_ROW_BYTES: Final = 160
_BYTES_MAX: Final = 8 * 2**20
_SUFFIX: Final = ".parquet"
_OPEN: Final = "open"
"""The kind of a row that does not stay: it tells that a file has begun and not ended."""


def write_relations(files: Files, path: Path, rows: Iterable[Relation]) -> None:
    """Publish what a journal knows of a system's files of a day; raises `OSError` if that fails.

    What an index that was made again does not know any more stays. A file that cannot be read is replaced.

    Args:
        files: how the file is written.
        path: the file.
        rows: what is to be in it, by did, kind and value in ascending order.
    """
    before: Iterable[Relation] = ()
    with contextlib.suppress(FileNotFoundError, *parquet.DAMAGED):
        for _ in _tables(path):
            pass
        before = _rows_of(path)
    publish_alone(files, path, _merged(before, rows))


def relation_files(root: Path) -> Iterator[tuple[tuple[str, str], Path]]:
    """The files with relations, each with its system, by safe name, and its day."""
    for system in names(root / RELATIONS):
        for name in names(root / RELATIONS / system):
            day = name.partition("-")[0]
            if name.endswith(_SUFFIX) and parse_hour(day, "00"):
                yield (system, day), root / RELATIONS / system / name


def read_relations(data: Path | ReadableBuffer) -> pa.Table:
    """The rows of a file or of its bytes; raises `parquet.DAMAGED` if it cannot be read."""
    return pa.concat_tables([RELATIONS_SCHEMA.empty_table(), *_tables(data)])


def tells_of_open_file(path: Path) -> bool:
    """Whether a file tells that something has begun and not ended; False if it cannot be read."""
    try:
        return any(pc.any(pc.equal(table["kind"], _OPEN)).as_py() for table in _tables(path))
    except parquet.DAMAGED:
        return False


def merge_relations(theirs: bytes, ours: bytes) -> ReadableBuffer:
    """The bytes of a file with the rows of both; what is open is what ours says.

    Raises `parquet.DAMAGED` if one cannot be read.
    """
    return _merged(_rows_of(theirs), _rows_of(ours))


def _tables(data: Path | ReadableBuffer) -> Iterator[pa.Table]:
    """The row groups of a file; raises `parquet.DAMAGED`."""
    with pq.ParquetFile(data if isinstance(data, Path) else pa.BufferReader(data)) as file:
        if file.schema_arrow.names != RELATIONS_SCHEMA.names:
            raise parquet.ForeignError("it has other columns")
        for at in range(file.num_row_groups):
            yield file.read_row_group(at).cast(RELATIONS_SCHEMA)


def _rows_of(data: Path | ReadableBuffer) -> Iterator[Relation]:
    for table in _tables(data):
        *texts, times = table.columns
        yield from zip(*(text.to_pylist() for text in texts), times.cast(pa.int64()).to_pylist(), strict=True)


def _merged(theirs: Iterable[Relation], ours: Iterable[Relation]) -> ReadableBuffer:
    """The bytes of a file with the rows of both, a batch at a time: a day may not fit into memory."""
    stay = (row for row in theirs if row[1] != _OPEN)
    sink = pa.BufferOutputStream()

    def size_of(row: Relation) -> int:
        return _ROW_BYTES + len(row[0]) + len(row[2])

    with pq.ParquetWriter(sink, RELATIONS_SCHEMA, compression="zstd") as writer:
        for batch in in_chunks(_earliest(heapq.merge(stay, ours)), size_of, _BYTES_MAX):
            columns = zip(RELATIONS_SCHEMA, zip(*batch, strict=True), strict=True)
            arrays = [pa.array(column, field.type) for field, column in columns]
            writer.write_table(pa.table(arrays, RELATIONS_SCHEMA))
    return memoryview(sink.getvalue())


def _earliest(rows: Iterable[Relation]) -> Iterator[Relation]:
    """Each thing that is told once, with its earliest time, given that equal ones are side by side."""
    groups = itertools.groupby(rows, itemgetter(0, 1, 2))
    return (next(same) for _, same in groups)  # no group is empty
