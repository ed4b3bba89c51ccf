"""Arguments that several commands share: moments."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import typer

from waybill.cli.arguments import moment, parse_moment

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


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


@pytest.mark.parametrize(
    "words", [("find",), ("rebuild", "--from", "journal", "--to", "again")], ids=lambda words: words[0]
)
@pytest.mark.parametrize("step", [1, -1], ids=["since-first", "until-first"])
def test_a_span_that_ends_before_it_begins_is_refused(
    called: Run, home: Path, words: tuple[str, ...], step: int
) -> None:
    home.mkdir()
    span = [("--since", "2026-02-01"), ("--until", "2026-01-31T23:59:59Z")]
    done = called(*words, "--home", home, *(word for pair in span[::step] for word in pair))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--until: this is before --since; give a later time" in done.stderr


def test_a_date_that_there_is_not_is_named_as_it_was_given() -> None:
    with pytest.raises(typer.BadParameter, match="'2026-13-45' is not a date or time from 1970 on; give"):
        moment("2026-13-45")
