"""Real events of the OpenLineage Spark listener against records that were written by reading them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from waybill.facets import FinalState, ProvenanceRecord, RunEvent, decode_event, fold

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


@pytest.mark.parametrize("job", JOBS)
def test_backwards_and_twice_give_the_same_records(job: str) -> None:
    events = events_of(job)
    assert fold([*reversed(events), *events], system_name="host") == fold(events, system_name="host")


def test_a_write_whose_fail_is_followed_by_complete_is_an_error_with_its_reason() -> None:
    records = fold(events_of("4.0.5-fail2"), system_name="host")
    (failed,) = [record for record in records if (record.data_sink or "").endswith("/bad_noshuffle")]
    assert failed.final_state is FinalState.ERROR
    assert failed.annotations == {"errorCause": "ValueError: boom at 151"}
