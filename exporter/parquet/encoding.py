"""How tables are encoded as files of the layout.

Columns of few values stay dictionaries from file to file, which spares a compaction most of its decoding and
encoding. The files carry no Arrow schema of their own: every reader, pyarrow included, sees the Parquet
types.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets.arrow import SCHEMA

from .decoded import DICTIONARY_BYTES, in_pieces, largest_bytes, row_bytes

FORMAT: Final = {b"waybill.format": b"1"}
"""The number of the format of Waybill's Parquet files, for the key-value metadata of their footers."""

LARGE_ROWS: Final = b"waybill.large_rows"
"""The key in a footer that says that some rows of the file take more than `_LARGEST_ROW_BYTES`."""

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

_GROUP_BYTES: Final = 64 * 2**20
"""A row group takes at most so much memory: where texts are long it has fewer rows."""

_PAGE_BYTES: Final = 32 * 2**10
"""Who wants a few rows need not decompress the other pages; smaller ones cost more than they save."""

LARGE_ROW_BYTES: Final = 4 * 2**10
"""Rows that are larger than this on average are large."""

_LARGEST_ROW_BYTES: Final = 8 * 2**10
"""A reader takes few larger rows at once: DuckDB holds thousands that its limit of memory does not count."""

_LARGE_GROUP_BYTES: Final = 8 * 2**20
"""A row group of large rows takes at most so much, since a reader wants few of them at a time."""

# Texts that hardly repeat gain nothing from a dictionary. They are plain, since fastparquet and Kuzu read no
# texts in delta encodings, which would spare 2 % of a file. Times in order shrink to their differences.
_ANNOTATIONS: Final = ("annotations.key_value.key", "annotations.key_value.value")
_DICTIONARY: Final = [*CODED, "parent_did", "transforms.list.element", *_ANNOTATIONS]
_ENCODING: Final = {
    "did": "PLAIN",
    "filename": "PLAIN",
    "created": "DELTA_BINARY_PACKED",
    "completed": "DELTA_BINARY_PACKED",
}
_LEAVES: Final = [*SCHEMA.names[:5], "transforms.list.element", *SCHEMA.names[6:10], *_ANNOTATIONS]
# Of zstd, by column: only the values of annotations become smaller for more effort.
_LEVEL: Final = {name: 3 if name == _ANNOTATIONS[-1] else 1 for name in _LEAVES}

COMPACTED_FILTERS: Final[Mapping[str, float]] = {"did": 0.3, "parent_did": 0.3, "filename": 0.3}
"""Columns of compacted files with a Bloom filter, and the rate of its false positives: at about half a byte
for each row, a search over many files leaves out most of them."""

RAW_FILTERS: Final[Mapping[str, float]] = {"did": 0.01}
"""Those of raw files, which are searched most: for two bytes a row nearly all of them are left out."""


def encode(table: pa.Table, filters: Mapping[str, float]) -> memoryview:
    """A table of `SCHEMA` or `CODED_SCHEMA` as the bytes of a Parquet file, the same for the same rows."""
    encoder = Encoder(filters)
    encoder.add(table)
    return encoder.finish()


class Encoder:
    """Rows on their way to the bytes of a Parquet file, a table at a time.

    Args:
        filters: the columns that get a Bloom filter, as `COMPACTED_FILTERS` has them.
        rows: how many rows the first row groups may fall short of what is still to come.
        spool: a folder that holds what is encoded until it is finished; None: memory does.
    """

    def __init__(self, filters: Mapping[str, float], *, rows: int = 0, spool: Path | None = None) -> None:
        self._filters = filters
        self._rows = rows
        self._spool = None if spool is None else _UnnamedFile(spool)
        self._buffer = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._has_large_rows = False

    def add(self, table: pa.Table) -> None:
        """Go on with the rows of a table, of `SCHEMA` or `CODED_SCHEMA`, in row groups of their own."""
        writer = self._open(table)
        self._has_large_rows = self._has_large_rows or has_large_rows(table)
        for start in range(0, table.num_rows, ROW_GROUP):
            for group in _row_groups(table.slice(start, ROW_GROUP)):
                writer.write_table(group)

    def finish(self, metadata: Mapping[bytes, bytes] | None = None) -> memoryview:
        """The bytes of the file, which may be changed in place; without a table, it has no rows.

        Raises:
            OSError: there is no room for it.
        """
        writer = self._open(CODED_SCHEMA.empty_table())
        large = {LARGE_ROWS: b"1"} if self._has_large_rows else {}
        writer.add_key_value_metadata({**FORMAT, **large, **(metadata or {})})
        writer.close()
        return self._spool.finish() if self._spool else memoryview(self._buffer.getvalue()).cast("B")

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        """What writes the file, whose columns and filters follow from the first table."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._spool.sink if self._spool else self._buffer,
                table.schema,
                compression="zstd",
                compression_level=_LEVEL,
                use_dictionary=_DICTIONARY,
                column_encoding=_ENCODING,
                bloom_filter_options=self._bloom_filters(table),
                data_page_size=_PAGE_BYTES,
                store_schema=False,
            )
        return self._writer

    def _bloom_filters(self, table: pa.Table) -> dict[str, dict[str, float]]:
        rows = min(max(table.num_rows, self._rows, 1), ROW_GROUP)
        distinct = dict.fromkeys(self._filters, rows)
        if "parent_did" in distinct:  # the others hardly repeat
            share = pc.count_distinct(table["parent_did"]).as_py() / max(table.num_rows, 1)
            distinct["parent_did"] = max(round(share * rows), 1)
        return {name: {"ndv": distinct[name], "fpp": false} for name, false in self._filters.items()}


def _row_groups(table: pa.Table) -> Iterable[pa.Table]:
    size_bytes = _plain_bytes(table)
    is_large = size_bytes > table.num_rows * LARGE_ROW_BYTES
    limit_bytes = _LARGE_GROUP_BYTES if is_large else _GROUP_BYTES
    return [table] if size_bytes <= limit_bytes else in_pieces(table, limit_bytes)


def has_large_rows(table: pa.Table) -> bool:
    """Whether a row takes more than `_LARGEST_ROW_BYTES` once it is decoded."""
    largest = (max(map(largest_bytes, column.chunks), default=0) for column in table.columns)
    if sum(largest) <= _LARGEST_ROW_BYTES:
        return False
    return bool(pc.any(pc.greater(row_bytes(table), _LARGEST_ROW_BYTES)).as_py())


def _plain_bytes(table: pa.Table) -> int:
    """How much memory a table takes with every text in its row, as a large dictionary is written."""
    size_bytes = 0
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        if pa.types.is_dictionary(chunk.type) and chunk.dictionary.nbytes > DICTIONARY_BYTES:
            size_bytes += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        else:
            size_bytes += chunk.nbytes
    return size_bytes


class _UnnamedFile:
    """A large file while it is written: on the disk rather than in memory, and gone when it is abandoned."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - `finish` closes it
        self.sink = pa.PythonFile(self._file, "w")
        """What to write to."""

    def finish(self) -> memoryview:
        """All that was written; it may be changed in place. Raises `OSError` if there was no room for it."""
        self._file.flush()
        view = memoryview(mmap.mmap(self._file.fileno(), 0))
        self._file.close()
        return view


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of one coded schema as one, in one chunk; of `CODED_SCHEMA` where there are none."""
    plain = [table.replace_schema_metadata() for table in tables]
    return pa.concat_tables(plain or [CODED_SCHEMA.empty_table()]).unify_dictionaries().combine_chunks()


def code(table: pa.Table) -> pa.Table:
    """A table of `SCHEMA` as one of `CODED_SCHEMA`."""
    return table.cast(CODED_SCHEMA)


def sort(table: pa.Table, *names: str, order: Literal["ascending", "descending"] = "ascending") -> pa.Table:
    """The rows in order of some columns, rows that are equal there in the order they had."""
    if table.num_rows < 2 or not names:  # noqa: PLR2004 - one row is in order
        return table
    return table.take(pc.sort_indices(table, [(name, order) for name in names]))
