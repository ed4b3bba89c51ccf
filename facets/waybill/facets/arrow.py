"""The provenance record in Arrow: the schema of every Parquet file, and the conversion in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from waybill.facets.record import FinalState, record_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waybill.facets.record import ProvenanceRecord

_INSTANT = pa.timestamp("ms", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("did", pa.string(), nullable=False),
        pa.field("parent_did", pa.string()),
        pa.field("system_name", pa.string(), nullable=False),
        pa.field("data_source", pa.string(), nullable=False),
        pa.field("filename", pa.string(), nullable=False),
        # Parquet's own name for what a list holds, so that a file gives back this very schema.
        pa.field("transforms", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("data_sink", pa.string()),
        pa.field("final_state", pa.string(), nullable=False),
        pa.field("created", _INSTANT, nullable=False),
        pa.field("completed", _INSTANT, nullable=False),
        pa.field("annotations", pa.map_(pa.string(), pa.string())),
    ]
)
"""The columns of the provenance layout, in order."""


def to_table(records: Sequence[ProvenanceRecord]) -> pa.Table:
    """Return the records as a table of `SCHEMA`, in the order given."""
    columns = ([getattr(record, field.name) for record in records] for field in SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def from_table(table: pa.Table) -> list[ProvenanceRecord]:
    """Return the records of a table that has the columns of `SCHEMA`."""
    columns = {name: table.column(name) for name in SCHEMA.names}
    for name in ("created", "completed"):
        columns[name] = columns[name].cast(pa.int64())
    *texts, transforms, data_sink, states, created, completed, maps = (
        column.to_pylist() for column in columns.values()
    )
    annotations = [None if one is None else dict(one) for one in maps]
    paths = (map(tuple, transforms), data_sink, map(FinalState, states))
    return list(map(record_of, *texts, *paths, created, completed, annotations))
