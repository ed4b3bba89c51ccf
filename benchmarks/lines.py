"""Files of JSON lines: terminal events as the Tracker emits them, for the rebuild benchmarks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from benchmarks.records import HOUR_MS, records
from waybill.facets import PRODUCER
from waybill.facets.arrow import SCHEMA, from_table
from waybill.facets.event import facet_schema_url

ANNOTATIONS: Final = ("batchId", "customer", "priority", "region", "resent")
"""All annotation keys of the records."""

_CHUNK: Final = 1_000_000
_BATCH: Final = 20_000
_EVENT_TYPES: Final = {"ERROR": "FAIL", "CANCELLED": "ABORT"}


def write_lines(path: Path, count: int, *, hours: int, repeats: float, seed: int) -> int:
    """Write terminal events, one per line, and return their number.

    Args:
        path: the file.
        count: the number of different events; up to a million are in memory at once.
        hours: the number of hours they are spread over, at least one for each million.
        repeats: the share of events that come twice.
        seed: the same seed gives the same file.
    """
    chunks = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    each, written = max(hours // len(chunks), 1), 0
    with path.open("wb") as file:
        for at, size in enumerate(chunks):
            table = records(size, hours=each, systems=5, repeats=repeats, seed=seed + at)
            table = _later(table, at * each * HOUR_MS)
            for start in range(0, table.num_rows, _BATCH):
                file.writelines(_line(record) for record in from_table(table.slice(start, _BATCH)))
            written += table.num_rows
    return written


def _later(table: pa.Table, by_ms: int) -> pa.Table:
    import pyarrow.compute as pc

    for name in ("created", "completed"):
        moved = pc.add(table[name].cast(pa.int64()), by_ms).cast(SCHEMA.field(name).type)
        table = table.set_column(table.column_names.index(name), SCHEMA.field(name), moved)
    return table


def _line(record: Any) -> bytes:  # noqa: ANN401 - a provenance record
    completed = _instant(record.completed)
    facet = {
        "_producer": PRODUCER,
        "_schemaURL": facet_schema_url("WaybillDeltaFileRunFacet"),
        "did": record.did,
        "systemName": record.system_name,
        "dataSource": record.data_source,
        "filename": record.filename,
        "transforms": record.transforms,
        "finalState": record.final_state,
        "created": _instant(record.created),
        "completed": completed,
        "annotations": record.annotations,
    }
    if record.parent_did:
        facet["parentDid"] = record.parent_did
    if record.data_sink:
        facet["dataSink"] = record.data_sink
    event = {
        "eventTime": completed,
        "eventType": _EVENT_TYPES.get(record.final_state, "COMPLETE"),
        "producer": PRODUCER,
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": record.did, "facets": {"waybill_deltaFile": facet}},
        "job": {"namespace": record.system_name, "name": record.data_source, "facets": {}},
        "inputs": [{"namespace": record.system_name, "name": record.data_source}],
        "outputs": [{"namespace": record.system_name, "name": record.data_sink}] if record.data_sink else [],
    }
    return msgspec.json.encode(event) + b"\n"


def _instant(epoch_ms: int) -> str:
    seconds, milliseconds = divmod(epoch_ms, 1_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"
