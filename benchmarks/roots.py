"""A root full of compacted files, in a tenth of the time that their compaction would take.

The files are encoded, sealed and put into the ledger as a compaction does it, but from tables of records,
without a journal and raw files: a year by hours has 43,800 of them. The rest is the product's own: a flush of
one record makes the root with its marker and claims, and a flush of another one makes the keys.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.records import HOUR_MS, START_MS, records
from waybill.exporter.ledger import recorded
from waybill.exporter.names import compacted_path, hour_in, hour_of
from waybill.exporter.parquet import COMPACTED_FILTERS, Covers, Encoder, Rules, finish_sealed
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.files import Files

_SYSTEMS: Final = 5
_PART_RECORDS: Final = 250_000
_BEFORE_MS: Final = START_MS - HOUR_MS
"""When single records ended: in an hour that has no others."""
Sample = list[dict[str, Any]]
"""Some records, by the names of their columns."""


def fill(home: Path, *, count: int, hours: int, sampled: int) -> tuple[Sample, Sample]:
    """Give the root of a home so many compacted records; return some of them, and some that have a parent."""
    flush_one(home, "first")
    parts = min(hours, -(-count // _PART_RECORDS))
    edges = [hours * at // parts for at in range(parts + 1)]
    rows = [count * at // hours for at in edges]
    tasks = [
        (first, last - first, end - begin)
        for (first, last), (begin, end) in zip(
            itertools.pairwise(edges), itertools.pairwise(rows), strict=True
        )
    ]
    some: Sample = []
    children: Sample = []
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        write = partial(_write_part, home, -(-sampled // parts))
        for seals, *samples in pool.imap(write, tasks):
            hours_there = {hour for path in seals if (hour := hour_in(path)) is not None}
            with recorded(home, Files(), hours_there) as changed:
                changed.update(seals)
            some += samples[0]
            children += samples[1]
    return some[:sampled], children[:sampled]


def flush_one(home: Path, did: str) -> None:
    """Put a record into the journal of a home, and flush it."""
    record = {
        "did": did,
        "systemName": "deltafi-test",
        "dataSource": "ds-00-ingest",
        "filename": "one.csv",
        "finalState": "COMPLETE",
        "created": _BEFORE_MS,
        "completed": _BEFORE_MS,
    }
    with contextlib.closing(Journal(home)) as journal:
        journal.append(Kind.PROVENANCE, json.dumps([record]).encode(), "")
    given = {"home": home, "provenance_enabled": True, "archive_enabled": False}
    report = flush(Settings.load(given, env={}))
    if report.left or report.problems:
        raise SystemExit(f"the flush left {report.left} entries: {report.problems}")


def _write_part(
    home: Path, sampled: int, task: tuple[int, int, int]
) -> tuple[dict[str, str | None], Sample, Sample]:
    """Write the files of some hours; return their seals by path, and the samples."""
    first_hour, hours, count = task
    pa.set_cpu_count(1)
    table = records(count, hours=hours, systems=_SYSTEMS, repeats=0.0, seed=first_hour, first_hour=first_hour)
    noted = Covers().metadata() | Rules().metadata()
    seals: dict[str, str | None] = {}
    for system in pc.unique(table["system_name"]).to_pylist():
        part = table.filter(pc.equal(table["system_name"], system)).combine_chunks()
        part = part.sort_by([("completed", "ascending"), ("did", "ascending")])
        numbers = part["completed"].cast(pa.int64()).to_numpy() // HOUR_MS
        found, begins = np.unique(numbers, return_index=True)
        for number, (begin, end) in zip(
            found.tolist(), itertools.pairwise([*begins.tolist(), len(numbers)]), strict=True
        ):
            encoder = Encoder(COMPACTED_FILTERS)
            encoder.add(part.slice(begin, end - begin))
            data, seal = finish_sealed(encoder, noted, None)
            place = compacted_path(system, hour_of(number * HOUR_MS))
            (home / place).parent.mkdir(parents=True, exist_ok=True)
            (home / place).write_bytes(data)
            seals[str(place)] = seal
    with_parent = table.filter(pc.is_valid(table["parent_did"]))
    return seals, _sample(table, sampled, first_hour), _sample(with_parent, sampled, first_hour)


def _sample(table: pa.Table, count: int, seed: int) -> Sample:
    chosen = np.random.default_rng(seed).permutation(table.num_rows)[:count]
    rows: Sample = table.take(pa.array(chosen)).to_pylist()
    return [{**row, "annotations": dict(row["annotations"] or ())} for row in rows]
