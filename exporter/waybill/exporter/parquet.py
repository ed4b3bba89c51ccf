"""How the layout's files are encoded, and how they are read back.

Columns of few values stay dictionaries from file to file, which spares a compaction most of its decoding and
encoding. What is written carries no Arrow schema of its own: every reader, pyarrow included, sees the Parquet
types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets.arrow import SCHEMA

CODED: Final = ("system_name", "data_source", "data_sink", "final_state")
"""Columns that are dictionaries in memory too."""

CODED_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in CODED else field
        for field in SCHEMA
    ]
)
"""`SCHEMA` as this room holds tables between reading and writing."""

# Texts that hardly repeat gain nothing from a dictionary; times in order shrink to their differences.
_DICTIONARY: Final = [
    *CODED,
    "parent_did",
    "transforms.list.element",
    "annotations.key_value.key",
    "annotations.key_value.value",
]
_ENCODING: Final = {
    "did": "PLAIN",
    "filename": "PLAIN",
    "created": "DELTA_BINARY_PACKED",
    "completed": "DELTA_BINARY_PACKED",
}
_LEVEL: Final = 1


def encode(table: pa.Table, metadata: Mapping[bytes, bytes] | None = None) -> pa.Buffer:
    """A table of `SCHEMA` or `CODED_SCHEMA` as the bytes of a Parquet file, the same for the same rows.

    Args:
        table: the rows, in order.
        metadata: key-value pairs for the footer.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODING,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(dict(metadata or {}))
    return sink.getvalue()


def open_file(path: Path) -> pq.ParquetFile:
    """Open a file of the layout; what is read later comes from this very file, even if it is replaced.

    Raises:
        FileNotFoundError: it is not there.
        OSError, pa.ArrowException: it is no readable Parquet file of the layout.
    """
    file = pq.ParquetFile(pa.memory_map(str(path)), read_dictionary=list(CODED))
    if file.schema_arrow.remove_metadata() != CODED_SCHEMA:
        raise pa.ArrowInvalid("its columns are not those of the provenance layout")
    return file


def read(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of an open file."""
    return file.read(
        columns=None if columns is None else list(columns), use_threads=False
    ).replace_schema_metadata()


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of `CODED_SCHEMA` as one, in one chunk."""
    return pa.concat_tables(tables or [CODED_SCHEMA.empty_table()]).unify_dictionaries().combine_chunks()


def code(table: pa.Table) -> pa.Table:
    """A table of `SCHEMA` as one of `CODED_SCHEMA`."""
    return table.cast(CODED_SCHEMA)


def sort(table: pa.Table, *names: str, order: Literal["ascending", "descending"] = "ascending") -> pa.Table:
    """The rows in order of some columns, rows that are equal there in the order they had."""
    if table.num_rows < 2:  # noqa: PLR2004 - one row is in order
        return table
    return table.take(pc.sort_indices(table, [(name, order) for name in names]))
