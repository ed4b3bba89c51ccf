"""The schedule: when an hour is squashed or compacted."""

from __future__ import annotations

from manual_clock import ManualClock

from waybill.exporter.compaction import CompactionSchedule
from waybill.exporter.names import Hour

HOUR = Hour("20260101", "05")


def test_an_hour_is_compacted_two_minutes_after_its_end() -> None:
    clock = ManualClock(HOUR.end_ms)
    schedule = CompactionSchedule([HOUR], clock=clock)
    assert schedule.to_compact() == []
    clock.move(119)
    assert schedule.to_compact() == []
    clock.move(1)
    assert schedule.to_compact() == [HOUR]
    schedule.compacted([HOUR])
    assert schedule.to_compact() == []


def test_late_rows_of_an_hour_that_ended_wait_for_others() -> None:
    clock = ManualClock(HOUR.end_ms + 3_600_000)
    patient = CompactionSchedule([], gather_s=60, clock=clock)
    hasty = CompactionSchedule([], gather_s=0, clock=clock)
    for schedule in (patient, hasty):
        schedule.wrote([HOUR])
    assert (patient.to_compact(), hasty.to_compact()) == ([], [HOUR])
    clock.move(60)
    assert patient.to_compact() == [HOUR]


def test_an_hour_that_could_not_be_compacted_gathers_again() -> None:
    clock = ManualClock(HOUR.end_ms + 3_600_000)
    schedule = CompactionSchedule([HOUR], gather_s=60, clock=clock)
    assert schedule.to_compact() == [HOUR]
    schedule.postpone([HOUR])
    assert schedule.to_compact() == []
    clock.move(60)
    assert schedule.to_compact() == [HOUR]


def test_an_hour_with_many_new_raw_files_is_squashed_until_they_are_few() -> None:
    schedule = CompactionSchedule([])
    for _ in range(64):
        schedule.wrote([HOUR])
    assert schedule.to_squash() == []
    schedule.wrote([HOUR])
    assert schedule.to_squash() == [HOUR]
    schedule.squashed(HOUR)
    assert schedule.to_squash() == []
