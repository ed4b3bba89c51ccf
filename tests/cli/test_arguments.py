"""Arguments that several commands share: moments."""

from __future__ import annotations

import time

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


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "6 h", "-1h", "12:00", "20260131"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["yesterday", "9" * 400 + "d"])
def test_the_error_of_an_invalid_moment_says_what_to_give(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="give 2026-01-31"):
        moment(text)
