"""The provenance record in Arrow: the schema of every Parquet file, and the conversion in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from .chunks import in_chunks
from .record import FinalState, record_of

if TYPE_CHECKING:
    from .record import ProvenanceRecord

_INSTANT = pa.timestamp("ms", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("did", pa.string(), nullable=False),
        pa.field("parent_did", pa.string()),
        pa.field("system_name", pa.string(), nullable=False),
        pa.field("data_source", pa.string(), nullable=False),
        pa.field("filename", pa.string(), nullable=False),
        # Parquet's own name for a list's elements, so that reading a file returns exactly this schema.
        pa.field("transforms", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("data_sink", pa.string()),
        pa.field("final_state", pa.string(), nullable=False),
        pa.field("created", _INSTANT, nullable=False),
        pa.field("completed", _INSTANT, nullable=False),
        pa.field("annotations", pa.map_(pa.string(), pa.string())),
    ]
)
"""The columns of the provenance layout, in order."""


PIECE_BYTES = 16 * 2**20
"""The size of a table when rows are created, or their texts written out, in pieces."""

_FIXED_BYTES = 80  # of a row, besides its texts


def to_table(records: Sequence[ProvenanceRecord], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return the records as a table of `SCHEMA`, or of one with its columns coded, in the order given."""
    columns = ([getattr(record, field.name) for record in records] for field in schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def to_tables(records: Iterable[ProvenanceRecord], *, size_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Return the records as tables of `SCHEMA` of about this size, in the order given.

    Records share the texts that they have in common, and rows repeat them, so that few records can be a large
    table.
    """
    return map(to_table, in_chunks(records, _row_bytes, size_bytes))


def _row_bytes(record: ProvenanceRecord) -> int:
    texts = len(record.did) + len(record.system_name) + len(record.data_source) + len(record.filename)
    texts += len(record.parent_did or "") + len(record.data_sink or "") + sum(map(len, record.transforms))
    annotations = record.annotations
    return (
        _FIXED_BYTES + texts + (len("".join(chain.from_iterable(annotations.items()))) if annotations else 0)
    )


def from_table(table: pa.Table) -> list[ProvenanceRecord]:
    """Return the records of a table that has the columns of `SCHEMA`, whether plain or coded.

    A text that is coded once is one object in all records that have it.
    """
    columns = {name: table.column(name) for name in SCHEMA.names}
    for name in ("created", "completed"):
        columns[name] = columns[name].cast(pa.int64())
    *texts, transforms, data_sink, states, created, completed, maps = (
        [value for chunk in column.chunks for value in _values(chunk)] for column in columns.values()
    )
    annotations = [None if one is None else dict(one) for one in maps]
    paths = (map(tuple, transforms), data_sink, map(FinalState, states))
    return list(map(record_of, *texts, *paths, created, completed, annotations))


def _values(array: pa.Array) -> list[Any]:
    if pt.is_dictionary(array.type):
        texts = array.dictionary.to_pylist()
        return [None if at is None else texts[at] for at in array.indices.to_pylist()]
    if pt.is_map(array.type):
        return _lists(array, array.keys, array.items)
    return _lists(array, array.values) if pt.is_list(array.type) else array.to_pylist()


def _lists(array: pa.Array, *children: pa.Array) -> list[list[Any] | None]:
    """The values of the only child for each row, or pairs of both."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    columns = [_values(child.slice(first, last - first)) for child in children]
    values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    edges = zip(pairwise(offsets.to_pylist()), array.is_valid().to_pylist(), strict=True)
    return [values[start - first : end - first] if is_valid else None for (start, end), is_valid in edges]
