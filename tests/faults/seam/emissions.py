"""The events that the fault tests emit, and the record that each must become.

A number alone identifies an emission, so a dying process needs to leave nothing else behind.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from waybill.facets import FinalState, ProvenanceRecord
from waybill.transport import Kind

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z; everything completes within the two hours that follow."""
HOURS: Final = 2
HOUR_MS: Final = 3_600_000
SYSTEMS: Final = ("edge", "core/7")

Item = tuple[Kind, bytes, str]


@dataclass(frozen=True)
class Emission:
    """One emission of a producer: entries that are kept together, and their record.

    Attributes:
        number: identifies it.
        items: entries as `Journal.append_many` takes them.
        record: the record that must be in the layout.
    """

    number: int
    items: tuple[Item, ...]
    record: ProvenanceRecord


@functools.cache
def emission(number: int) -> Emission:
    """In turn, an event with the facet of a file, the two of a plain run, and records of DeltaFi's."""
    record = _record(number)
    if number % 3 == 0:
        return Emission(number, (_facet_event(record),), record)
    if is_plain_run(number):
        return _derived(number, record)
    return Emission(number, ((Kind.PROVENANCE, body_of(record), ""),), record)


def is_plain_run(number: int) -> bool:
    """Whether the emission is a run without a facet, which has no record before its end."""
    return number % 3 == 1


def did_of(number: int) -> str:
    """The identity of an emission's file."""
    return f"01940000-0000-7000-8000-{number:012d}"


def instant(epoch_ms: int) -> str:
    """An instant as events carry it."""
    return datetime.fromtimestamp(epoch_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _record(number: int) -> ProvenanceRecord:
    completed_ms = START_MS + (number % HOURS) * HOUR_MS + number * 17
    return ProvenanceRecord(
        did=did_of(number),
        system_name=SYSTEMS[number // HOURS % len(SYSTEMS)],
        data_source="in",
        filename=f"file-{number}.csv",
        transforms=("unpack", "check"),
        data_sink="out",
        final_state=FinalState.COMPLETE,
        created=completed_ms - 5,
        completed=completed_ms,
    )


def _with(record: ProvenanceRecord, **changes: object) -> ProvenanceRecord:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return ProvenanceRecord(**{**fields, **changes})


def _event(record: ProvenanceRecord, kind: str, at_ms: int) -> dict[str, object]:
    return {
        "eventTime": instant(at_ms),
        "eventType": kind,
        "producer": "https://example.org/faults",
        "run": {"runId": record.did},
        "job": {"namespace": record.system_name, "name": "job"},
    }


def _facet_event(record: ProvenanceRecord) -> Item:
    facet = {
        "did": record.did,
        "systemName": record.system_name,
        "dataSource": record.data_source,
        "filename": record.filename,
        "transforms": list(record.transforms),
        "dataSink": record.data_sink,
        "finalState": record.final_state,
        "created": instant(record.created),
        "completed": instant(record.completed),
        "_producer": "https://example.org/faults",
        "_schemaURL": "https://example.org/faults.json",
    }
    event = _event(record, "COMPLETE", record.completed)
    event["run"] = {"runId": record.did, "facets": {"waybill_deltaFile": facet}}
    return Kind.OPENLINEAGE, json.dumps(event).encode(), "tests"


def _derived(number: int, record: ProvenanceRecord) -> Emission:
    start = _event(record, "START", record.created)
    start["inputs"] = [{"namespace": "in", "name": f"inbox/{record.filename}"}]
    end = _event(record, "COMPLETE", record.completed)
    end["outputs"] = [{"namespace": "out", "name": "lake"}]
    items = tuple((Kind.OPENLINEAGE, json.dumps(event).encode(), "tests") for event in (start, end))
    derived = _with(
        record,
        data_source=f"in/inbox/{record.filename}",
        transforms=("job",),
        data_sink="out/lake",
    )
    return Emission(number, items, derived)


def body_of(record: ProvenanceRecord) -> bytes:
    """A record as DeltaFi sends it: an array with an object."""
    fields = {
        "did": record.did,
        "parentDid": None,
        "systemName": record.system_name,
        "dataSource": record.data_source,
        "filename": record.filename,
        "transforms": list(record.transforms),
        "dataSink": record.data_sink,
        "finalState": record.final_state,
        "created": record.created,
        "completed": record.completed,
        "annotations": record.annotations or {},
    }
    return json.dumps([fields]).encode()
