"""Processes that run out of resources other than disk."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from events import event as event_of
from forking import in_fork
from openlineage.client import OpenLineageClient
from seam.bounded import RUNNER_BYTES, flush_and_measure
from seam.emissions import emission
from seam.emitter import events_of
from seam.homes import kill_runner, settings_in
from seam.ledger import Ledger
from seam.oracle import recover_and_check

from waybill.transport import Journal, Kind, WaybillConfig, WaybillTransport

pytestmark = pytest.mark.faults

AFTER_THE_NEXT_LOOK_S = 2.1
"""An emitter that has started a runner checks on it two seconds later."""


def test_a_pipeline_without_a_free_descriptor_emits_all_the_same(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    given = {"home": settings.home, "root": settings.root, "provenance_enabled": True}

    def work() -> None:
        client = OpenLineageClient(transport=WaybillTransport(WaybillConfig.from_dict(given)))
        for event in events_of(emission(0)):
            client.emit(event)
        try:
            while True:
                os.open(os.devnull, os.O_RDONLY)
        except OSError:
            pass
        time.sleep(AFTER_THE_NEXT_LOOK_S)
        for event in events_of(emission(1)):
            client.emit(event)

    try:
        assert in_fork(work) == 0
    finally:
        kill_runner(settings.home)
    recover_and_check(settings, Ledger([0, 1], {0, 1}))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("records", "texts"), [(1_600, "shared"), (320, "different")])
def test_the_runner_stays_within_its_memory_whatever_its_records_share(
    tmp_path: Path, records: int, texts: str, seed: int
) -> None:
    settings = settings_in(tmp_path)
    journal = Journal(settings.home, packs=True)
    chance = random.Random(seed)  # noqa: S311 - it guards no secret
    step = "t" * 900_000
    sent = {"systemName": "edge", "finalState": "COMPLETE", "created": 1, "completed": 2}
    for first in range(0, records, 8):
        batch = [
            {
                "did": f"d{at}",
                **sent,
                "transforms": [step if texts == "shared" else chance.randbytes(450_000).hex()],
            }
            for at in range(first, first + 8)
        ]
        journal.append(Kind.PROVENANCE, json.dumps(batch).encode())
    outputs = [f"o/out-{at}" for at in range(1_000)]
    long = event_of(
        "r",
        at="2026-01-01T00:00:00Z",
        job=f"edge/{'j' * 90_000}",
        inputs=[f"n/{'i' * 90_000}"],
        outputs=outputs,
    )
    journal.append(Kind.OPENLINEAGE, long)
    journal.close()
    assert flush_and_measure(tmp_path).peak_bytes <= RUNNER_BYTES
    files = (settings.root / "provenance/compacted").rglob("*.parquet")
    assert sum(pq.read_metadata(file).num_rows for file in files) == records + 1_000
