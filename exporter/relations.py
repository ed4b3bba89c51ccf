"""What is known of files beside their records: more parents, inputs, contents, and which have not ended.

The index of a home has it, and publishes it beside the compacted files, so that a root and an export answer
as their home does. A file has what one journal has been told first of a system's files on one day.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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

_SUFFIX: Final = ".parquet"
_OPEN: Final = "open"
"""The kind of a row that does not stay: it tells that a file has begun and not ended."""


def write_relations(files: Files, path: Path, rows: Iterable[Relation]) -> None:
    """Publish what a journal knows of a system's files of a day; raises `OSError` if that fails.

    What an index that was made again does not know any more stays. A file that cannot be read is replaced.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(RELATIONS_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RELATIONS_SCHEMA, strict=True)]
    table = pa.table(arrays, RELATIONS_SCHEMA)
    with contextlib.suppress(FileNotFoundError, *parquet.DAMAGED):
        table = _merged(read_relations(path), table)
    publish_alone(files, path, _encoded(table))


def relation_files(root: Path) -> Iterator[tuple[tuple[str, str], Path]]:
    """The files with relations, each with its system, by safe name, and its day."""
    for system in names(root / RELATIONS):
        for name in names(root / RELATIONS / system):
            day = name.partition("-")[0]
            if name.endswith(_SUFFIX) and parse_hour(day, "00"):
                yield (system, day), root / RELATIONS / system / name


def read_relations(data: Path | ReadableBuffer) -> pa.Table:
    """The rows of a file or of its bytes; raises `parquet.DAMAGED` if it cannot be read."""
    table = pq.read_table(data if isinstance(data, Path) else pa.BufferReader(data), partitioning=None)
    if table.schema.names != RELATIONS_SCHEMA.names:
        raise parquet.ForeignError("it has other columns")
    return table


def merge_relations(theirs: bytes, ours: bytes) -> ReadableBuffer:
    """The bytes of a file with the rows of both; what is open is what ours says.

    Raises `parquet.DAMAGED` if one cannot be read.
    """
    return _encoded(_merged(read_relations(theirs), read_relations(ours)))


def _merged(theirs: pa.Table, ours: pa.Table) -> pa.Table:
    stay = theirs.filter(pc.not_equal(theirs["kind"], _OPEN))
    both = pa.concat_tables([stay, ours]).group_by(RELATIONS_SCHEMA.names[:3]).aggregate([("time", "min")])
    return both.rename_columns(RELATIONS_SCHEMA.names).cast(RELATIONS_SCHEMA)


def _encoded(table: pa.Table) -> ReadableBuffer:
    sink = pa.BufferOutputStream()
    in_order = [(name, "ascending") for name in RELATIONS_SCHEMA.names]
    pq.write_table(table.sort_by(in_order), sink, compression="zstd")
    return memoryview(sink.getvalue())
