"""Arguments that several commands share: moments."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
import typer

from waybill.cli.arguments import moment, parse_moment


@pytest.mark.parametrize(
    ("text", "epoch_ms"),
    [
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00.5+01:00", 1_769_860_800_500),
    ],
)
def test_an_instant_is_epoch_milliseconds_and_without_a_zone_utc(text: str, epoch_ms: int) -> None:
    assert parse_moment(text) == epoch_ms


@pytest.mark.parametrize(
    ("text", "ago_s"), [("90s", 90), ("1.5m", 90), ("6h", 21_600), ("2d", 172_800), ("1w", 604_800)]
)
def test_a_duration_means_that_long_ago(text: str, ago_s: float) -> None:
    assert parse_moment(text) / 1000 == pytest.approx(time.time() - ago_s, abs=5)


NOW_MS = 1_774_751_400_000
"""2026-03-29T02:30:00Z, 22:30 of the day before in New York, and 90 minutes after clocks changed in Paris."""


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        ("now", "UTC", "2026-03-29T02:30:00+00:00"),
        ("today", "UTC", "2026-03-29T00:00:00+00:00"),
        ("Yesterday", "UTC", "2026-03-28T00:00:00+00:00"),
        ("yesterday 14:00", "UTC", "2026-03-28T14:00:00+00:00"),
        ("today", "Europe/Paris", "2026-03-28T23:00:00+00:00"),
        ("today 14:00:30", "Europe/Paris", "2026-03-29T12:00:30+00:00"),
        ("today", "America/New_York", "2026-03-28T04:00:00+00:00"),
        ("yesterday", "America/New_York", "2026-03-27T04:00:00+00:00"),
        ("2 hours ago", "Europe/Paris", "2026-03-29T00:30:00+00:00"),
        ("1 day ago", "UTC", "2026-03-28T02:30:00+00:00"),
        ("90 min ago", "UTC", "2026-03-29T01:00:00+00:00"),
        ("1.5h ago", "UTC", "2026-03-29T01:00:00+00:00"),
        ("90m", "UTC", "2026-03-29T01:00:00+00:00"),
        ("1774751400", "Europe/Paris", "2026-03-29T02:30:00+00:00"),
        ("1774751400500", "UTC", "2026-03-29T02:30:00.500000+00:00"),
    ],
)
def test_a_moment_may_be_told_as_people_and_as_programs_do(text: str, zone: str, instant: str) -> None:
    read_ms = parse_moment(text, ZoneInfo(zone), now_ms=NOW_MS)
    assert datetime.fromtimestamp(read_ms / 1_000, UTC).isoformat() == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-13-01",
        "6 h",
        "-1h",
        "12:00",
        "20260131",
        "2 years ago",
        "yesterday 25:00",
        "12345",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["soon", "9" * 400 + "d"])
def test_the_error_of_an_invalid_moment_says_what_to_give(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="give 2026-01-31"):
        moment(text)


def test_a_date_that_there_is_not_is_named_as_it_was_given() -> None:
    with pytest.raises(typer.BadParameter, match="'2026-13-45' is not a date or time from 1970 on; give"):
        moment("2026-13-45")
