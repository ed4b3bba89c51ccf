"""The record of a pipeline that is killed between START and COMPLETE, with the real runner."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from layouts import findings
from waiting import wait_until

from waybill.exporter import Source, Wanted, explain, rebuild
from waybill.exporter.sources import EventsSource, JournalSource
from waybill.exporter.verification.collisions import find_collisions
from waybill.facets import FinalState
from waybill.lineage import find
from waybill.transport import Journal, Settings, flush

TRACKER = """
import sys
from waybill.transport import Tracker

tracker = Tracker(home=sys.argv[1], provenance_enabled=True, system_name="east")
with tracker.file("a.csv", data_source="in") as f:
    with f.transform("decrypt"):
        pass
    with f.transform("unpack"):
        print("within", flush=True)
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
def test_the_record_of_a_killed_tracker_s_file_names_what_it_had_begun_wherever_it_is_rebuilt_from(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    settings = Settings.load({"home": home, "provenance_enabled": True}, env={}, cwd=tmp_path)
    command = [sys.executable, "-c", TRACKER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as pipeline:
        assert pipeline.stdout is not None
        assert pipeline.stdout.readline() == b"within\n"
        pipeline.kill()
    with contextlib.closing(Journal(home)) as journal:
        wait_until(lambda: any(b"waybill_inferred" in entry.body for entry in journal.read(0)), 60)
    assert flush(settings).left == {}
    (record,) = find(settings.root)
    assert (record.final_state, record.transforms) == (FinalState.CANCELLED, ("decrypt", "unpack"))
    why = "the program that ran it is gone; the last transform that it began is 'unpack'"
    assert record.annotations == {"waybill.evidence": f"inferred: {why}"}
    wanted = Wanted(system_name="east", rule=settings.annotation_rule)
    sources: list[Source] = [JournalSource(home), EventsSource(settings.root)]
    for at, source in enumerate(sources):
        assert rebuild(source, tmp_path / f"again{at}", wanted).is_whole
        assert find(tmp_path / f"again{at}") == [record]
    explained = explain(record.did, sources, settings.root, wanted)
    assert explained.is_proven
    assert [step.event_type for step in explained.steps] == ["START", "ABORT"]
    assert list(find_collisions(sources, system_name="east")) == []
    assert findings(settings.root) == []
