"""How the layout's files are encoded, and how they are read back.

Columns of few values stay dictionaries from file to file, which spares a compaction most of its decoding and
encoding. What is written carries no Arrow schema of its own: every reader, pyarrow included, sees the Parquet
types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.exporter.parquet.time_window import Span, TimeWindow
from waybill.exporter.parquet.unnamed_file import UnnamedFile
from waybill.facets.arrow import SCHEMA
from waybill.facets.record import AFTER_LAST_MS

if TYPE_CHECKING:
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

_GROUP_BYTES: Final = 64 * 2**20
"""What a row group takes in memory, about: where texts are huge it has fewer rows."""

_ROW_BYTES: Final = 256
"""A row group of larger rows, as they are encoded, counts for as many rows of this size."""

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

KEPT_FILTERS: Final[Mapping[str, float]] = {"did": 0.3, "parent_did": 0.3, "filename": 0.3}
"""Columns of compacted files with a Bloom filter, and how often it takes an absent value for one that may be
there: at about half a byte for each row, a search over many files leaves out most of them."""

RAW_FILTERS: Final[Mapping[str, float]] = {"did": 0.01}
"""Those of raw files, which are short-lived and asked most: for two bytes a row nearly all are left out."""

DAMAGED: Final = (pa.ArrowException, ValueError, OSError)
"""What reading a damaged file raises: an `OSError` where a page does not decompress."""


def encode(table: pa.Table, filters: Mapping[str, float]) -> memoryview:
    """A table of `SCHEMA` or `CODED_SCHEMA` as the bytes of a Parquet file, the same for the same rows.

    Args:
        table: the rows.
        filters: see `Encoder`.
    """
    encoder = Encoder(filters)
    encoder.add(table)
    return encoder.finish()


class Encoder:
    """Rows on their way to the bytes of a Parquet file, a table at a time.

    Args:
        filters: the columns that get a Bloom filter, as `KEPT_FILTERS` has them.
        rows: how many rows the first row groups may fall short of what is still to come.
        spool: a folder that holds what is encoded until it is finished; None: memory does.
    """

    def __init__(self, filters: Mapping[str, float], *, rows: int = 0, spool: Path | None = None) -> None:
        self._filters = filters
        self._rows = rows
        self._spool = None if spool is None else UnnamedFile(spool)
        self._buffer = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Go on with the rows of a table, of `SCHEMA` or `CODED_SCHEMA`, in row groups of their own."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._spool.sink if self._spool else self._buffer,
                table.schema,
                compression="zstd",
                compression_level=_LEVEL,
                use_dictionary=_DICTIONARY,
                column_encoding=_ENCODING,
                bloom_filter_options=self._bloom_filters(table),
                store_schema=False,
            )
        rows = table.num_rows * _GROUP_BYTES // max(table.nbytes, 1)
        self._writer.write_table(table, row_group_size=max(min(rows, ROW_GROUP), 1))

    @property
    def is_empty(self) -> bool:
        """Whether no table was added."""
        return self._writer is None

    def finish(self, metadata: Mapping[bytes, bytes] | None = None) -> memoryview:
        """The bytes of the file, which may be changed in place.

        Args:
            metadata: key-value pairs for the footer.

        Raises:
            ValueError: no table was added.
            OSError: there is no room for it.
        """
        if self._writer is None:
            raise ValueError("there is nothing to encode: add a table first")
        self._writer.add_key_value_metadata(dict(metadata or {}))
        self._writer.close()
        return self._spool.finish() if self._spool else memoryview(self._buffer.getvalue()).cast("B")

    def _bloom_filters(self, table: pa.Table) -> dict[str, dict[str, float]]:
        rows = min(max(table.num_rows, self._rows, 1), ROW_GROUP)
        distinct = dict.fromkeys(self._filters, rows)
        if "parent_did" in distinct:  # the others hardly repeat
            share = pc.count_distinct(table["parent_did"]).as_py() / max(table.num_rows, 1)
            distinct["parent_did"] = max(round(share * rows), 1)
        return {name: {"ndv": distinct[name], "fpp": false} for name, false in self._filters.items()}


def open_file(path: Path, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a file of the layout to read all of it.

    Args:
        path: the file.
        metadata: what its footer says, where that is known already.

    Raises:
        FileNotFoundError: it is not there.
        DAMAGED: it is no readable Parquet file of the layout.
    """
    return _open(pa.OSFile(str(path)), metadata)


def open_bytes(data: ReadableBuffer) -> pq.ParquetFile:
    """Open the bytes of a file of the layout to read all of it.

    Raises:
        DAMAGED: they are no readable Parquet file of the layout.
    """
    return _open(pa.BufferReader(data))


def open_stream(source: BinaryIO) -> pq.ParquetFile:
    """Open a file of the layout that stays the caller's, to read all of it.

    Raises:
        DAMAGED: it is no readable Parquet file of the layout.
    """
    return _open(pa.PythonFile(source, "r"))


def _open(source: pa.NativeFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=list(CODED))
    except KeyError as error:  # which pyarrow raises for a column that is not there
        raise pa.ArrowInvalid(f"it has no column {error}") from None
    check(file.schema_arrow)
    return file


def spans(metadata: pq.FileMetaData) -> list[Span]:
    """What is known of the row groups of a file, in order."""
    place = next(at for at in range(metadata.num_columns) if metadata.schema.column(at).path == "completed")
    return [_span(metadata.row_group(at), place) for at in range(metadata.num_row_groups)]


def _span(group: pq.RowGroupMetaData, place: int) -> Span:
    known = group.column(place).statistics
    # A file of somebody else's may tell nothing: then it may hold anything.
    first, last = (0, AFTER_LAST_MS) if known is None else (known.min_raw, known.max_raw)
    return Span(first, last, max(group.num_rows, group.total_byte_size // _ROW_BYTES))


def unreadable(path: Path | str, error: Exception) -> str:
    """The sentence about a damaged file."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read ({reason}); put a good copy in its place, or move it away"


def unreachable(path: Path, error: Exception) -> str:
    """The sentence about a file that may be as good as ever, though it cannot be read now."""
    reason = " ".join(str(error).split())
    return f"{path} cannot be read now ({reason}); see to the disk and its permissions, and it is tried again"


def check(schema: pa.Schema) -> None:
    """See to it that a file has the columns of the layout.

    Raises:
        ArrowInvalid: it has others.
    """
    if schema.remove_metadata() != CODED_SCHEMA:
        raise pa.ArrowInvalid("its columns are not those of the provenance layout")


def read(file: pq.ParquetFile) -> pa.Table:
    """All rows of an open file."""
    return file.read(use_threads=False)


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
    return table if whole else table.filter(_is_within(window))


def _is_within(window: TimeWindow) -> pc.Expression:
    since, until = (pa.scalar(epoch_ms, SCHEMA.field("completed").type) for epoch_ms in window)
    return (pc.field("completed") >= since) & (pc.field("completed") < until)


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
