"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer

from waybill.facets import parse_instant_us
from waybill.transport import WaybillError

FORMS: Final = "2026-01-31, 2026-01-31T12:00:00Z, or 90m, 6h, 2d: that long ago"
"""The forms of a moment, for the help of an option."""

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_T = TypeVar("_T")
_Id = TypeVar("_Id", int, str)


class Engine(StrEnum):
    """What does the work of a compaction or a rebuild."""

    EMBEDDED = "embedded"
    SPARK = "spark"


Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master.", show_default="Spark's own settings, else local"),
]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
JsonArray = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.0, help="Wait no longer than this.", show_default="no limit"
    ),
]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


def choose(
    found: Iterable[_T],
    ids: Collection[_Id] | None,
    *,
    everything: bool,
    id_of: Callable[[_T], _Id],
    what: str,
    listed_by: str,
) -> list[_T]:
    """Those of `found` that the user named, or all of them if the user says so explicitly.

    `what` is the word for one of them, `listed_by` the command that lists them, both for error messages.

    Raises:
        typer.BadParameter: the user named some and asked for all, or did neither.
        WaybillError: one that the user named is not there.
    """
    if everything == bool(ids):
        raise typer.BadParameter(f"name some, as `{listed_by}` shows them, or give --all")
    wanted = set(ids or ())
    kept = [one for one in found if everything or id_of(one) in wanted]
    if unknown := sorted(wanted.difference(map(id_of, kept))):
        raise WaybillError(f"{', '.join(map(str, unknown))}: no such {what}; `{listed_by}` shows them")
    return kept


def parse_moment(text: str) -> int:
    """Read ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``90m`` (that long ago) as epoch milliseconds.

    A time without a zone is in UTC.

    Raises:
        ValueError: the text has none of these forms.
    """
    if ago := _AGO.fullmatch(text):
        return time.time_ns() // 1_000_000 - int(float(ago[1]) * _UNIT_MS[ago[2]])
    instant = f"{text}T00:00:00" if _DATE.fullmatch(text) else text
    return parse_instant_us(instant) // 1000


def moment(text: str) -> int:
    """Read an option's value as `parse_moment` does, with an error for the command line."""
    try:
        return parse_moment(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{error}; give {FORMS}") from None


Since = Annotated[
    int | None,
    typer.Option(
        "--since", parser=moment, metavar="WHEN", help=f"Only records that ended then or later: {FORMS}."
    ),
]
Until = Annotated[
    int | None,
    typer.Option("--until", parser=moment, metavar="WHEN", help="Only records that ended before then."),
]
