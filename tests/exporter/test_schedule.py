"""The schedule: when an hour is squashed or compacted."""

from __future__ import annotations

from waybill.exporter.compaction import CompactionSchedule
from waybill.exporter.names import Hour

HOUR = Hour("20260101", "05")
END_S = HOUR.end_ms / 1_000


def test_an_hour_is_compacted_two_minutes_after_its_end() -> None:
    now_s = END_S
    schedule = CompactionSchedule([HOUR], clock=lambda: now_s)
    assert schedule.to_compact() == []
    now_s = END_S + 119
    assert schedule.to_compact() == []
    now_s = END_S + 120
    assert schedule.to_compact() == [HOUR]
    schedule.compacted([HOUR])
    assert schedule.to_compact() == []


def test_late_rows_of_an_hour_that_ended_wait_for_others() -> None:
    patient = CompactionSchedule([], gather_s=60, clock=lambda: END_S + 3_600)
    hasty = CompactionSchedule([], gather_s=0, clock=lambda: END_S + 3_600)
    for schedule in (patient, hasty):
        schedule.wrote([HOUR])
    assert (patient.to_compact(), hasty.to_compact()) == ([], [HOUR])


def test_an_hour_that_could_not_be_compacted_gathers_again() -> None:
    schedule = CompactionSchedule([HOUR], gather_s=60, clock=lambda: END_S + 3_600)
    assert schedule.to_compact() == [HOUR]
    schedule.postpone([HOUR])
    assert schedule.to_compact() == []


def test_an_hour_with_many_new_raw_files_is_squashed_until_they_are_few() -> None:
    schedule = CompactionSchedule([])
    for _ in range(64):
        schedule.wrote([HOUR])
    assert schedule.to_squash() == []
    schedule.wrote([HOUR])
    assert schedule.to_squash() == [HOUR]
    schedule.squashed(HOUR)
    assert schedule.to_squash() == []
