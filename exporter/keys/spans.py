"""The files of a span: written from a query's rows, and read with their checksums.

They are Parquet files whose pages have checksums, so damage is noticed where it is read. DuckDB does not look
at these, so `check` reads a file before it. The contents have a digest of each footer: a file with fewer rows
would be whole as Parquet has it, and an answer from it would say that there is nothing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.transport.files import TEMPORARY_SUFFIX

from ..names import Hour
from ..parquet import DAMAGED, TimeWindow
from ..query import run
from .contents import KINDS, DamagedError

if TYPE_CHECKING:
    import duckdb

    from waybill.transport.files import Files

    from .contents import Span

log = logging.getLogger("waybill.exporter")

_GROUP_ROWS: Final = 20_480
"""A look-up reads so many keys."""

_GROUPS_KEPT: Final = 128
"""So many row groups of keys stay in memory for further questions, of 250 kB each."""

_END_BYTES: Final = 8
"""What is behind a footer: its length, and Parquet's magic number."""

_TEXTS: Final = ["final_state", "system_name", "data_source", "data_sink"]


class KnownFile(NamedTuple):
    """A compacted or late file as it was when it was read: a row of a span's files.

    Attributes:
        number: its number in the keys.
        path: relative to the root.
        first_ms: the earliest `completed`, in epoch milliseconds.
        last_ms: the latest `completed`.
        stamp: identifies this version of the file.
        is_summed: whether the sums have its records.
    """

    number: int
    path: str
    first_ms: int
    last_ms: int
    stamp: str
    is_summed: bool

    @property
    def system(self) -> str:
        """The safe name of its system."""
        return self.path.split("/")[2]

    @property
    def hour(self) -> Hour:
        """The hour of its records."""
        return hour_of_file(self.path)


def stamp_of(status: os.stat_result) -> str:
    """What identifies a version of a file: publishing another at its path changes it."""
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def version_of(stamp: str) -> str:
    """A stamp without the inode: some file systems give a file another one at each mount."""
    return stamp.partition("-")[2]


def hour_of_file(path: str) -> Hour:
    """The hour of a compacted or late file."""
    *_, day, name = path.split("/")
    return Hour(day, name[:2])


def known_files(table: pa.Table) -> Iterator[KnownFile]:
    """The rows of a span's files."""
    return (KnownFile(*row) for row in zip(*table.to_pydict().values(), strict=True))


def write_rows(
    connection: duckdb.DuckDBPyConnection, query: str, params: Mapping[str, Any], files: Files, path: Path
) -> int:
    """Publish the rows of a query as a Parquet file; returns how many there are.

    The caller makes the name durable, and is the only one who writes there. Raises `OSError`.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
    try:
        rows = _write(run(connection, query, params).to_arrow_reader(_GROUP_ROWS), temporary)
        files.fsync(temporary)
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    return rows


def _write(reader: pa.RecordBatchReader, path: Path) -> int:
    rows = 0
    numbers = [field.name for field in reader.schema if pa.types.is_integer(field.type)]
    with pq.ParquetWriter(
        path,
        reader.schema,
        compression="zstd",
        use_dictionary=_TEXTS,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    ) as writer:
        for batch in reader:
            writer.write_batch(batch, _GROUP_ROWS)
            rows += batch.num_rows
    return rows


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Raise `DamagedError` for what pyarrow raises, but not for the system's own errors."""
    try:
        yield
    except DAMAGED as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise DamagedError(path) from error


def set_aside(path: Path, error: Exception) -> str:
    """Remove a file of a span that is damaged, so that it is made again; until then, answers take longer.

    Returns:
        The sentence that says so. Damaged contents stay: whoever makes new ones replaces them.
    """
    if isinstance(error, DamagedError) and path.suffix == ".parquet":
        log.warning("%s", error)
        with contextlib.suppress(OSError):  # in a root that only others may write
            path.unlink()
    return str(DamagedError(path))


def check(root: Path, span: Span, kind: str) -> None:
    """Read a file of a span, as far as to see that it is whole; raises `DamagedError` and `OSError`."""
    path = span.path(root, kind)
    with _damage_named(path), _opened(path, span.footers[KINDS.index(kind)]) as file:
        for at in range(file.num_row_groups):
            file.read_row_group(at, use_threads=False)


def read_files(root: Path, span: Span) -> pa.Table:
    """The files of a span, with the columns of `KnownFile`; raises `DamagedError` and `OSError`."""
    path = span.path(root, "files")
    with _damage_named(path), _opened(path, span.footers[KINDS.index("files")]) as file:
        return file.read(use_threads=False)


def footer_of(path: Path) -> str:
    """A digest of the footer of a Parquet file; raises `OSError`."""
    with path.open("rb") as file:
        end = file.seek(max(file.seek(0, os.SEEK_END) - _END_BYTES, 0))
        length = int.from_bytes(file.read(_END_BYTES)[:4], "little")
        file.seek(max(end - length, 0))
        return sha256(file.read()).hexdigest()


def _opened(path: Path, footer: str = "", metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a file; one without its metadata must have the digest of a footer, else it is damaged."""
    if metadata is None and footer_of(path) != footer:
        raise DamagedError(path)
    return pq.ParquetFile(pa.OSFile(str(path)), metadata=metadata, page_checksum_verification=True)


class OpenSpan:
    """A span whose footers are read once."""

    def __init__(self, root: Path, span: Span) -> None:
        self._root = root
        self.span = span

    @functools.cached_property
    def files(self) -> pa.Table:
        """Its files; see `read_files`."""
        return read_files(self._root, self.span)

    @functools.cached_property
    def window(self) -> TimeWindow:
        """The time of its records."""
        bounds = pc.min(self.files["first_ms"]), pc.max(self.files["last_ms"])
        first_ms, last_ms = (one.as_py() for one in bounds)
        return TimeWindow(first_ms, last_ms + 1)

    @functools.cached_property
    def is_summed(self) -> bool:
        """Whether the sums have the records of all its files."""
        return bool(pc.all(self.files["is_summed"]).as_py())

    @functools.cached_property
    def sums(self) -> Path:
        """Its sums, which are whole; raises `DamagedError` and `OSError`."""
        path = self.span.path(self._root, "sums")
        check(self._root, self.span, "sums")
        return path

    def numbers(self, hashed: int) -> set[int]:
        """The numbers of its files that have a text with a hash; raises `DamagedError` and `OSError`."""
        found: set[int] = set()
        firsts, lasts = self._bounds
        at = bisect_left(lasts, hashed)
        while at < len(firsts) and firsts[at] <= hashed:
            hashes, numbers = _group(self, at)
            found.update(numbers[bisect_left(hashes, hashed) : bisect_right(hashes, hashed)])
            at += 1
        return found

    def read_group(self, at: int) -> tuple[memoryview, memoryview]:
        """The hashes of a row group of its keys, and the numbers of their files."""
        with _damage_named(self._keys), _opened(self._keys, metadata=self._metadata) as file:
            group = file.read_row_group(at, use_threads=False).combine_chunks()
        hashes, numbers = (column.chunk(0).buffers()[1] for column in group.columns)
        rows = group.num_rows
        return memoryview(hashes).cast("Q")[:rows], memoryview(numbers).cast("I")[:rows]

    @property
    def _keys(self) -> Path:
        return self.span.path(self._root, "keys")

    @functools.cached_property
    def _metadata(self) -> pq.FileMetaData:
        with _damage_named(self._keys), _opened(self._keys, self.span.footers[KINDS.index("keys")]) as file:
            return file.metadata

    @functools.cached_property
    def _bounds(self) -> tuple[list[int], list[int]]:
        """The first and the last hash of each row group."""
        groups = range(self._metadata.num_row_groups)
        known = [self._metadata.row_group(at).column(0).statistics for at in groups]
        return [one.min for one in known], [one.max for one in known]


@functools.lru_cache(_GROUPS_KEPT)
def _group(span: OpenSpan, at: int) -> tuple[memoryview, memoryview]:
    return span.read_group(at)


def numbers_of(kind: pa.DataType, code: str, values: Iterable[int]) -> pa.Array:
    """Numbers as an Arrow array; of a list of Python's own values, Arrow would load pandas."""
    data = array(code, values)
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])
