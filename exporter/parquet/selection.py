"""Selecting rows of a file of the layout while reading as little of it as possible.

A row group is skipped if its statistics or Bloom filters show that it cannot match; of the others, the
columns in the conditions are read first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from .bloom import can_hold
from .encoding import CODED, CODED_SCHEMA
from .reading import ForeignError, check_format

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq


_FEW_ROWS: Final = 1_000

_SHARED: Final = ("parent_did", "transforms.list.element", "annotations.key_value.value")
"""The further leaves that are dictionaries in `SELECTED_SCHEMA`."""

_CODE: Final = pa.dictionary(pa.int32(), pa.string())

SELECTED_SCHEMA: Final = pa.schema(
    [
        field.with_type(
            {
                "parent_did": _CODE,
                "transforms": pa.list_(pa.field("element", _CODE)),
                "annotations": pa.map_(pa.string(), _CODE),
            }.get(field.name, field.type)
        )
        for field in CODED_SCHEMA
    ]
)
"""`SCHEMA` as rows are selected: a text that many rows share is in memory once."""


class Selectable:
    """An open file of the layout; what is read later comes from this very file, even if it is replaced.

    Raises:
        DAMAGED: it is not a readable Parquet file of the layout.
    """

    def __init__(self, source: pa.NativeFile) -> None:
        self.source = source
        self.fragment = _format().make_fragment(source)
        if self.fragment.physical_schema.remove_metadata() != SELECTED_SCHEMA:
            raise ForeignError("its columns are not those of the provenance layout")
        check_format(self.metadata.metadata)

    @property
    def metadata(self) -> pq.FileMetaData:
        """What its footer says."""
        return self.fragment.metadata


def open_selectable(path: Path) -> Selectable:
    """Open a file of the layout to select from it; raises what `open_file` does."""
    return Selectable(pa.OSFile(str(path)))


@functools.cache
def _format() -> ds.ParquetFileFormat:
    # It loads pandas where that is installed, which takes longer than all the rest of a command.
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat(dictionary_columns=[*CODED, *_SHARED])


def rows_where(table: pa.Table, wanted: pc.Expression) -> pa.Table:
    """The rows of a table that meet a condition, in order.

    `Table.filter` would wake all threads of Arrow, which takes longer than to look at a few rows.
    """
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    rows = acero.Declaration("filter", acero.FilterNodeOptions(wanted), [source])
    return rows.to_table(use_threads=False)


def matching_row_groups(
    file: Selectable, wanted: pc.Expression, texts: Mapping[str, Sequence[str]]
) -> Iterator[ds.ParquetFileFragment]:
    """The row groups of an open file that may hold rows which meet a condition; see `select`."""
    schema = file.metadata.schema
    places = {schema.column(at).path: at for at in range(len(schema)) if texts}
    for part in file.fragment.split_by_row_group(wanted):
        group = file.metadata.row_group(part.row_groups[0].id)
        if not all(
            any(can_hold(file.source, group.column(places[name]), text) for text in some)
            for name, some in texts.items()
        ):
            continue
        # Counting reads only the columns asked about, which does not pay where there is little to read.
        if group.num_rows <= _FEW_ROWS or part.count_rows(
            filter=wanted, use_threads=False, batch_readahead=1, fragment_readahead=1
        ):
            yield part
