"""A home with a million records whose numbers follow from how they are made."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from events import event

from waybill.exporter.ledger import recorded
from waybill.exporter.names import compacted_path, hour_in, hour_of
from waybill.exporter.parquet import COMPACTED_FILTERS, Covers, Encoder, Rules, finish_sealed
from waybill.facets.arrow import SCHEMA
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.files import Files

RECORDS: Final = 1_000_000
SYSTEMS: Final = 2
SOURCES: Final = 10
SINKS: Final = 4
CUSTOMERS: Final = ("acme", "globex", "initech")
STATES: Final = ("ERROR", "FILTERED", "CANCELLED", *["COMPLETE"] * 97)
"""Of a hundred records, each in its turn; only those that are complete got to a sink."""

BEGAN_MS: Final = 1_769_860_800_000
"""2026-01-31T12:00:00Z."""
HOUR_MS: Final = 3_600_000
APART_MS: Final = 172
"""So far apart they ended: all within 48 hours."""

TOLD: Final = (
    event(
        "run-load",
        at="2026-01-31T11:00:00Z",
        job="etl/load",
        inputs=["lake/raw"],
        outputs=[
            {
                "namespace": "lake",
                "name": "orders",
                "facets": {"schema": {"fields": [{"name": "total", "type": "int"}]}},
            }
        ],
    ),
    event("run-open", "START", at="2026-01-31T11:00:00Z", job="etl/sum", inputs=["lake/orders"]),
)
"""Beside them: a job that ran, which has a record too, and one that has not ended."""


def did(number: int) -> str:
    return f"01a1fd6a-9e75-7d78-870f-{number:012}"


def filename(number: int) -> str:
    return f"orders-{number:07}.csv"


def completed_ms(number: int) -> int:
    return BEGAN_MS + number * APART_MS


def fill(home: Path) -> None:
    """Put them into compacted files as a compaction does, without a journal and raw files."""
    settings = Settings.load({"home": home, "provenance_enabled": True, "archive_enabled": False}, env={})
    _flush(settings, TOLD[0])
    hours = [
        list(some) for _, some in itertools.groupby(range(RECORDS), lambda one: hour_of(completed_ms(one)))
    ]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for seals in pool.imap(partial(_write_hour, home), hours):
            with recorded(
                home, Files(), {hour for path in seals if (hour := hour_in(path)) is not None}
            ) as changed:
                changed.update(seals)
    _flush(settings, TOLD[1])


def _flush(settings: Settings, body: bytes) -> None:
    """Keep an event, and file it; this makes the root at first, and its keys."""
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.append(Kind.OPENLINEAGE, body, "tests")
    report = flush(settings)
    assert (report.left, report.problems) == ({}, {})


def _write_hour(home: Path, numbers: list[int]) -> dict[str, str | None]:
    """Write the files of an hour; return their seals by path."""
    pa.set_cpu_count(1)
    seals: dict[str, str | None] = {}
    for system in range(SYSTEMS):
        some = [number for number in numbers if number % SYSTEMS == system]
        encoder = Encoder(COMPACTED_FILTERS)
        encoder.add(_table(some))
        data, seal = finish_sealed(encoder, Covers().metadata() | Rules().metadata(), None)
        place = compacted_path(f"edge-{system}", hour_of(completed_ms(some[0])))
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_bytes(data)
        seals[str(place)] = seal
    return seals


def _table(numbers: list[int]) -> pa.Table:
    states = [STATES[number % len(STATES)] for number in numbers]
    ended = [completed_ms(number) for number in numbers]
    columns = {
        "did": [did(number) for number in numbers],
        "parent_did": [None] * len(numbers),
        "system_name": [f"edge-{number % SYSTEMS}" for number in numbers],
        "data_source": [f"source-{number % SOURCES}" for number in numbers],
        "filename": [filename(number) for number in numbers],
        "transforms": [["unpack", "validate"]] * len(numbers),
        "data_sink": [
            f"sink-{number % SINKS}" if state == "COMPLETE" else None
            for number, state in zip(numbers, states, strict=True)
        ],
        "final_state": states,
        "created": [at_ms - 1_000 for at_ms in ended],
        "completed": ended,
        "annotations": [[("customer", CUSTOMERS[number % len(CUSTOMERS)])] for number in numbers],
    }
    arrays = [
        pa.array(columns[field.name], pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
