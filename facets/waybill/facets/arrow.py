"""The provenance record as Arrow: the schema of every Parquet file, and the way there and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from waybill.facets.record import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    columns = [
        [record.did for record in records],
        [record.parent_did for record in records],
        [record.system_name for record in records],
        [record.data_source for record in records],
        [record.filename for record in records],
        [record.transforms for record in records],
        [record.data_sink for record in records],
        [record.final_state.value for record in records],
        [record.created for record in records],
        [record.completed for record in records],
        [None if record.annotations is None else list(record.annotations.items()) for record in records],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def from_table(table: pa.Table) -> list[ProvenanceRecord]:
    """Return the records of a table that has the columns of `SCHEMA`."""
    columns = {name: table.column(name) for name in SCHEMA.names}
    for name in ("created", "completed"):
        columns[name] = columns[name].cast(pa.int64())
    return [
        ProvenanceRecord(
            did=did,
            parent_did=parent_did,
            system_name=system_name,
            data_source=data_source,
            filename=filename,
            transforms=tuple(transforms),
            data_sink=data_sink,
            final_state=FinalState(final_state),
            created=created,
            completed=completed,
            annotations=None if annotations is None else dict(annotations),
        )
        for (
            did,
            parent_did,
            system_name,
            data_source,
            filename,
            transforms,
            data_sink,
            final_state,
            created,
            completed,
            annotations,
        ) in zip(*(columns[name].to_pylist() for name in SCHEMA.names), strict=True)
    ]
