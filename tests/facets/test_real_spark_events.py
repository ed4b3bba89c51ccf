"""Real events of the OpenLineage Spark listener against records that were written by reading them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from waybill.facets import ProvenanceRecord, RunEvent, decode_event, fold

FOLDER = Path(__file__).parent / "expected"
JOBS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def events_of(job: str) -> list[RunEvent]:
    decoded = map(decode_event, (FOLDER / f"{job}.jsonl").read_bytes().splitlines())
    return [event for event in decoded if isinstance(event, RunEvent)]


def test_every_recorded_job_has_its_expected_records() -> None:
    assert len(JOBS) == 10
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == JOBS


@pytest.mark.parametrize("job", JOBS)
def test_the_events_of_a_real_job_fold_to_the_records_read_out_of_them(job: str) -> None:
    expected = msgspec.json.decode((FOLDER / f"{job}.json").read_bytes(), type=list[ProvenanceRecord])
    assert fold(events_of(job), system_name="host") == expected
