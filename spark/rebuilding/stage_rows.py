"""The rows between the stages of a rebuild on Spark: records, runs and reports in one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.names import HOUR_MS
from waybill.exporter.rebuilding import StatesByRun, encode_state
from waybill.facets.arrow import SCHEMA

Batches = Iterable[pa.RecordBatch]

PIECE_RECORDS: Final = 5_000
"""The most records in one batch."""

PASSING: Final = (
    "report binary, run_id string, state binary, hour long, did string, parent_did string, "
    "system_name string, data_source string, filename string, transforms array<string>, "
    "data_sink string, final_state string, created long, completed long, annotations map<string, string>"
)
"""The columns for Spark: a row is the report of a part, or the state of a run, or a record."""

_INSTANTS: Final = ("created", "completed")

# Instants go to Spark and back as numbers, so that no session's time zone can change them.
ROWS: Final = pa.schema(
    [
        pa.field("report", pa.binary()),
        pa.field("run_id", pa.string()),
        pa.field("state", pa.binary()),
        pa.field("hour", pa.int64()),
        *(pa.field(one.name, pa.int64() if one.name in _INSTANTS else one.type) for one in SCHEMA),
    ]
)
"""The columns for Arrow."""


def record_rows(records: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of records, given as a table of `waybill.facets.arrow.SCHEMA`, in bounded batches."""
    for batch in records.combine_chunks().to_batches(PIECE_RECORDS):
        columns = {name: batch[name] for name in SCHEMA.names}
        for name in _INSTANTS:
            columns[name] = columns[name].cast(pa.int64())
        yield _rows(hour=pc.divide(columns["completed"], HOUR_MS), **columns)


def run_rows(runs: StatesByRun) -> Iterator[pa.RecordBatch]:
    """Rows of runs with their states."""
    if runs:
        yield _rows(run_id=list(runs), state=[encode_state(state) for state in runs.values()])


def report_row(report: bytes) -> pa.RecordBatch:
    """The row of a part's report."""
    return _rows(report=[report])


def _rows(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401 - lists or arrays, by column
    """One batch, with nulls in the columns that are not given."""
    length = max(map(len, columns.values()))
    arrays = [
        pa.nulls(length, field.type) if field.name not in columns else _array(columns[field.name], field.type)
        for field in ROWS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a list or an array
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
