"""Moments on the command line: a date, an instant, or how long ago."""

from __future__ import annotations

import re
import time
from typing import Final

import typer

from waybill.facets import parse_instant_us

FORMS: Final = "2026-01-31, 2026-01-31T12:00:00Z, or 90m, 6h, 2d: that long ago"
"""What a moment may look like, for the help of an option."""

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_moment(text: str) -> int:
    """Read ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``90m`` (that long ago) as epoch milliseconds.

    What names no zone is UTC.

    Raises:
        ValueError: it is none of these.
    """
    if ago := _AGO.fullmatch(text):
        return time.time_ns() // 1_000_000 - int(float(ago[1]) * _UNIT_MS[ago[2]])
    instant = f"{text}T00:00:00" if _DATE.fullmatch(text) else text
    return parse_instant_us(instant) // 1000


def moment(text: str) -> int:
    """Read an option's value; see `parse_moment`.

    Raises:
        typer.BadParameter: it is no moment.
    """
    try:
        return parse_moment(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{error}; give {FORMS}") from None
