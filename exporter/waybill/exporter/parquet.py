"""How the layout's files are encoded, and how they are read back.

Columns of few values stay dictionaries from file to file, which spares a compaction most of its decoding and
encoding. What is written carries no Arrow schema of its own: every reader, pyarrow included, sees the Parquet
types.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets.arrow import SCHEMA

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from _typeshed import ReadableBuffer

CODED: Final = ("system_name", "data_source", "data_sink", "final_state")
"""Columns that are dictionaries in memory too."""

CODED_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in CODED else field
        for field in SCHEMA
    ]
)
"""`SCHEMA` as this room holds tables between reading and writing."""

ROW_GROUP: Final = 131_072
"""Rows of a row group: enough to compress well, few enough to be skipped by their statistics."""

# Texts that hardly repeat gain nothing from a dictionary. Identifiers in order of time begin alike, names of
# files mostly have the same length; times in order shrink to their differences.
_DICTIONARY: Final = [
    *CODED,
    "parent_did",
    "transforms.list.element",
    "annotations.key_value.key",
    "annotations.key_value.value",
]
_ENCODING: Final = {
    "did": "DELTA_BYTE_ARRAY",
    "filename": "DELTA_LENGTH_BYTE_ARRAY",
    "created": "DELTA_BINARY_PACKED",
    "completed": "DELTA_BINARY_PACKED",
}
# Of zstd, by column: only the values of annotations become smaller for more effort.
_LEVEL: Final = {
    "did": 1,
    "parent_did": 1,
    "system_name": 1,
    "data_source": 1,
    "filename": 1,
    "transforms.list.element": 1,
    "data_sink": 1,
    "final_state": 1,
    "created": 1,
    "completed": 1,
    "annotations.key_value.key": 1,
    "annotations.key_value.value": 3,
}

# A Bloom filter takes an absent value for one that may be there so often, at about half a byte for each row:
# enough for a search over many files to leave out most of them.
_FALSE_POSITIVES: Final = 0.3

DAMAGED: Final = (pa.ArrowException, ValueError, OSError)
"""What reading a damaged file raises: an `OSError` where a page does not decompress."""


def encode(
    table: pa.Table, metadata: Mapping[bytes, bytes] | None = None, *, filters: bool = False
) -> pa.Buffer:
    """A table of `SCHEMA` or `CODED_SCHEMA` as the bytes of a Parquet file, the same for the same rows.

    Args:
        table: the rows, in order.
        metadata: key-value pairs for the footer.
        filters: with Bloom filters for what single files are looked for by.
    """
    sink = pa.BufferOutputStream()
    with _writer(sink, table.schema, _filters(table) if filters else None) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata(dict(metadata or {}))
    return sink.getvalue()


def encode_stream(tables: Iterable[pa.Table]) -> pa.Buffer:
    """Tables of `CODED_SCHEMA` as the bytes of a Parquet file, each a row group, one at a time in memory."""
    sink = pa.BufferOutputStream()
    with _writer(sink, CODED_SCHEMA) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=table.num_rows)
    return sink.getvalue()


def _writer(
    sink: pa.NativeFile, schema: pa.Schema, filters: dict[str, dict[str, float]] | None = None
) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODING,
        bloom_filter_options=filters,
        store_schema=False,
    )


def _filters(table: pa.Table) -> dict[str, dict[str, float]]:
    rows = max(min(table.num_rows, ROW_GROUP), 1)
    parents = pc.count_distinct(table["parent_did"]).as_py()
    distinct = {"did": rows, "parent_did": min(max(parents, 1), rows), "filename": rows}
    return {name: {"ndv": count, "fpp": _FALSE_POSITIVES} for name, count in distinct.items()}


def open_file(path: Path) -> pq.ParquetFile:
    """Open a file of the layout to read all of it.

    Raises:
        FileNotFoundError: it is not there.
        DAMAGED: it is no readable Parquet file of the layout.
    """
    return _open(pa.OSFile(str(path)))


def open_bytes(data: ReadableBuffer) -> pq.ParquetFile:
    """Open the bytes of a file of the layout to read all of it.

    Raises:
        DAMAGED: they are no readable Parquet file of the layout.
    """
    return _open(pa.BufferReader(data))


def _open(source: pa.NativeFile) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(source, read_dictionary=list(CODED))
    except KeyError as error:  # which pyarrow raises for a column that is not there
        raise pa.ArrowInvalid(f"it has no column {error}") from None
    _check(file.schema_arrow)
    return file


def open_fragment(path: Path) -> ds.ParquetFileFragment:
    """Open a file of the layout to select from it, by its statistics where they help.

    What is read later comes from this very file, even if it is replaced or removed meanwhile.

    Raises:
        FileNotFoundError: it is not there.
        DAMAGED: it is no readable Parquet file of the layout.
    """
    fragment = _format().make_fragment(pa.OSFile(str(path)))
    _check(fragment.physical_schema)
    return fragment


def spans(file: ds.ParquetFileFragment) -> list[tuple[int, int]]:
    """Of each row group with rows: its earliest `completed` in epoch milliseconds, and how many they are."""
    metadata = file.metadata
    place = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == "completed")
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    return [
        (0 if (known := group.column(place).statistics) is None else known.min_raw, group.num_rows)
        for group in groups
        if group.num_rows
    ]


@functools.cache
def _format() -> ds.ParquetFileFormat:
    # It loads pandas where that is installed, which takes longer than all the rest of a command.
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat(dictionary_columns=list(CODED))


def unreadable(path: Path, error: Exception) -> str:
    """The sentence about a damaged file."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read ({reason}); put a good copy in its place, or move it away"


def unreachable(path: Path, error: Exception) -> str:
    """The sentence about a file that may be as good as ever, though it cannot be read now."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read now ({reason}); see to the disk and its permissions, and it is tried again"


def _check(schema: pa.Schema) -> None:
    if schema.remove_metadata() != CODED_SCHEMA:
        raise pa.ArrowInvalid("its columns are not those of the provenance layout")


def read_groups(paths: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of files in tables of about a row group each, however small the files are.

    Raises:
        FileNotFoundError: one is not there.
        DAMAGED: one is no readable Parquet file of the layout.
    """
    waiting: list[pa.Table] = []
    rows = 0
    for path in paths:
        file = open_file(path)
        for at in range(file.num_row_groups):
            if rows and rows + file.metadata.row_group(at).num_rows > ROW_GROUP:
                yield join(waiting)
                waiting, rows = [], 0
            waiting.append(file.read_row_group(at, use_threads=False))
            rows += waiting[-1].num_rows
    if rows:
        yield join(waiting)


def read(file: pq.ParquetFile) -> pa.Table:
    """All rows of an open file."""
    return file.read(use_threads=False)


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of `CODED_SCHEMA` as one, in one chunk."""
    plain = [table.replace_schema_metadata() for table in tables]
    return pa.concat_tables(plain or [CODED_SCHEMA.empty_table()]).unify_dictionaries().combine_chunks()


def code(table: pa.Table) -> pa.Table:
    """A table of `SCHEMA` as one of `CODED_SCHEMA`."""
    return table.cast(CODED_SCHEMA)


def sort(table: pa.Table, *names: str, order: Literal["ascending", "descending"] = "ascending") -> pa.Table:
    """The rows in order of some columns, rows that are equal there in the order they had."""
    if table.num_rows < 2:  # noqa: PLR2004 - one row is in order
        return table
    return table.take(pc.sort_indices(table, [(name, order) for name in names]))
