"""A file of another format than this version of Waybill reads is refused, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from layouts import NODE, Layout, event, record

from waybill.exporter import IncompleteError
from waybill.exporter.archive import read_entries
from waybill.exporter.archive.files import ArchivedEntry, encode_entries
from waybill.exporter.parquet import FORMAT, FormatError, open_file
from waybill.lineage import find
from waybill.transport.journal import Entry, Kind


def put_number(path: Path, number: bytes) -> None:
    """Write a file again, with another number of its format."""
    file = pq.ParquetFile(path)
    table, metadata = file.read(), file.metadata.metadata
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**metadata, **dict.fromkeys(FORMAT, number)})


def raw_file(root: Path) -> Path:
    layout = Layout(root)
    layout.write(record("a"))
    return layout.raw()[0]


def archive_file(root: Path) -> Path:
    entry = Entry(1, 0, Kind.OPENLINEAGE, "", event("r", "COMPLETE", 0))
    root.mkdir()
    path = root / "archived.parquet"
    path.write_bytes(encode_entries(NODE, [ArchivedEntry.of(entry)], None)[0])
    return path


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (raw_file, open_file),
        (archive_file, lambda path: list(read_entries(path))),
    ],
)
def test_a_parquet_file_of_another_format_is_refused(
    make: Callable[[Path], Path], read: Callable[[Path], object], root: Path
) -> None:
    path = make(root)
    read(path)
    put_number(path, b"2")
    with pytest.raises(FormatError, match="its format is 2, and this Waybill reads 1; use the Waybill that"):
        read(path)


def test_texts_are_in_encodings_that_every_reader_knows(layout: Layout) -> None:
    """`findings/parquet-delta-text.sh` shows who reads no others."""
    layout.write(record("a"), record("b"))
    for path in layout.raw():
        group = pq.ParquetFile(path).metadata.row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        used = {column.path_in_schema: set(column.encodings) for column in columns}
        assert used["did"] | used["filename"] == {"PLAIN", "RLE"}
        texts = [column for column in columns if column.physical_type == "BYTE_ARRAY"]
        assert all(set(one.encodings) <= {"PLAIN", "RLE", "RLE_DICTIONARY"} for one in texts)


def test_nothing_is_answered_and_nothing_is_moved_where_a_file_has_another_format(layout: Layout) -> None:
    layout.write(record("a"))
    (raw,) = layout.raw()
    put_number(raw, b"2")
    with pytest.raises(IncompleteError, match="use the Waybill that wrote it"):
        list(find(layout.root))
    report = layout.compactor().compact()
    assert (report.aside, len(report.unreadable), layout.raw()) == ((), 1, [raw])
