"""The record of a pipeline that is killed between START and COMPLETE, with the real runner."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from waybill.exporter import find
from waybill.facets import FinalState, ProvenanceRecord
from waybill.transport import Journal, Settings, flush
from waybill.transport.home import Home

PIPELINE = """
import sys
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
from waybill.transport import WaybillConfig, WaybillTransport

config = WaybillConfig.from_dict({"home": sys.argv[1], "provenance_enabled": True, "archive_enabled": False})
client = OpenLineageClient(transport=WaybillTransport(config))
client.emit(
    RunEvent(
        eventTime="2026-01-01T00:00:00Z",
        eventType=RunState.START,
        run=Run("01941111-2222-7333-8444-555555555555"),
        job=Job("ns", "job"),
        producer="https://example.com",
        outputs=[OutputDataset("file", "/out")],
    )
)
print("started", flush=True)
input()
"""
COMPLETE = {
    "eventTime": "2026-01-01T00:05:00Z",
    "eventType": "COMPLETE",
    "producer": "https://example.com",
    "run": {"runId": "01941111-2222-7333-8444-555555555555"},
    "job": {"namespace": "ns", "name": "job"},
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes")
def test_a_killed_pipeline_is_cancelled_by_inference_until_its_own_end_comes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    given = {"home": home, "provenance_enabled": True, "archive_enabled": False}
    settings = Settings.load(given, env={}, cwd=tmp_path)

    def records() -> list[ProvenanceRecord]:
        flush(settings)
        return find(settings.root)

    with subprocess.Popen(
        [sys.executable, "-c", PIPELINE, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as pipeline:
        assert pipeline.stdout is not None
        assert pipeline.stdout.readline() == b"started\n"
        assert records() == []
        pipeline.kill()
    journal, deadline_s = Journal(home), time.monotonic() + 60
    while not any(b"waybill_inferred" in entry.body for entry in journal.read(0)):
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.1)
    journal.close()
    (gone,) = records()
    assert (gone.final_state, gone.data_sink) == (FinalState.CANCELLED, "file//out")
    assert gone.annotations == {"waybill.evidence": "inferred: the program that ran it is gone"}
    emitter = Home.open(settings)
    emitter.emit(json.dumps(COMPLETE).encode())
    (done,) = records()
    assert (done.final_state, done.annotations) == (FinalState.COMPLETE, None)
    emitter.close()
