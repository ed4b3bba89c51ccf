"""What is known of files beside their records: more parents, inputs, contents, and which have not ended.

The index of a home has it, and publishes it beside the compacted files, so that a root and an export answer
as their home does. A file has what was first told of a system's files on one day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from waybill.transport.files import publish

from . import parquet
from .directory import names
from .names import RELATIONS, parse_hour, relations_path

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


def write_relations(files: Files, root: Path, system_name: str, day: str, rows: Iterable[Relation]) -> None:
    """Publish all that is known of a system's files of a day; raises `OSError` if that fails."""
    path = root / relations_path(system_name, day)
    files.make_folder(path.parent)
    columns = list(zip(*rows, strict=True)) or [()] * len(RELATIONS_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RELATIONS_SCHEMA, strict=True)]
    publish(files, path, _encoded(pa.table(arrays, RELATIONS_SCHEMA)))


def relation_files(root: Path) -> Iterator[tuple[tuple[str, str], Path]]:
    """The files with relations, each with its system, by safe name, and its day."""
    for system in names(root / RELATIONS):
        for name in names(root / RELATIONS / system):
            day = name.removesuffix(_SUFFIX)
            if name.endswith(_SUFFIX) and parse_hour(day, "00"):
                yield (system, day), root / RELATIONS / system / name


def read_relations(data: Path | ReadableBuffer) -> pa.Table:
    """The rows of a file or of its bytes; raises `parquet.DAMAGED` if it cannot be read."""
    table = pq.read_table(data if isinstance(data, Path) else pa.BufferReader(data), partitioning=None)
    if table.schema.names != RELATIONS_SCHEMA.names:
        raise parquet.ForeignError("it has other columns")
    return table


def merge_relations(theirs: bytes, ours: bytes) -> ReadableBuffer:
    """The bytes of a file with the rows of both; those of theirs if ours has nothing new.

    Raises `parquet.DAMAGED` if one cannot be read.
    """
    known = read_relations(theirs)
    keys = RELATIONS_SCHEMA.names[:3]
    merged = pa.concat_tables([known, read_relations(ours)]).group_by(keys).aggregate([("time", "min")])
    if merged.num_rows == known.num_rows:
        return theirs
    return _encoded(merged.rename_columns(RELATIONS_SCHEMA.names).cast(RELATIONS_SCHEMA))


def _encoded(table: pa.Table) -> ReadableBuffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table.sort_by([("did", "ascending"), ("kind", "ascending")]), sink, compression="zstd")
    return memoryview(sink.getvalue())
