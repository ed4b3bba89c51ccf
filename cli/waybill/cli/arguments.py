"""Options that several commands share, and the functions that read their values."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from waybill.facets import parse_instant_us
from waybill.transport import NotFoundError

FORMS: Final = "2026-01-31, 2026-01-31T12:00:00Z, or 90m, 6h, 2d: that long ago"
"""The accepted forms of a time, for the help of an option."""

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_T = TypeVar("_T")
_Id = TypeVar("_Id", int, str)
_Word = TypeVar("_Word", bound=StrEnum)


class Engine(StrEnum):
    """The engine that does a compaction or a rebuild."""

    EMBEDDED = "embedded"
    SPARK = "spark"


Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master.", show_default="Spark's own settings, else local"),
]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonArray = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.0, help="Wait no longer than this.", show_default="no limit"
    ),
]
All = Annotated[bool, typer.Option("--all", help="Choose all of them.")]


def choose(
    found: Iterable[_T],
    ids: Collection[_Id] | None,
    *,
    everything: bool,
    id_of: Callable[[_T], _Id],
    what: str,
    listed_by: str,
) -> list[_T]:
    """The items of `found` that the user named, or all of them if the user said so explicitly.

    `what` is the word for one item, `listed_by` the command that lists them; both are for error messages.

    Raises:
        typer.BadParameter: the user named some and chose all, or did neither.
        NotFoundError: an item that the user named does not exist.
    """
    if everything == bool(ids):
        raise typer.BadParameter(f"give the ones to use, as listed by `{listed_by}`, or --all")
    wanted = set(ids or ())
    kept = [one for one in found if everything or id_of(one) in wanted]
    if unknown := sorted(wanted.difference(map(id_of, kept))):
        raise NotFoundError(f"{', '.join(map(str, unknown))}: no such {what}; `{listed_by}` shows them")
    return kept


def word(*flags: str, of: type[_Word], help: str) -> Any:  # noqa: A002, ANN401 - as `typer.Option` has it
    """An option whose value is a word of an enumeration, in upper or lower case."""

    def read(text: str) -> _Word:
        try:
            return of(text.upper())
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(of)}") from None

    def starting(incomplete: str) -> list[str]:
        # A shell drops completions that do not begin exactly as typed.
        cased = str.upper if incomplete.isupper() or not incomplete else str.lower
        return [
            incomplete + cased(one[len(incomplete) :]) for one in of if one.startswith(incomplete.upper())
        ]

    return typer.Option(*flags, parser=read, metavar="|".join(of), autocompletion=starting, help=help)


def parse_moment(text: str, zone: tzinfo | None = UTC) -> int:
    """Read ``2026-01-31``, ``2026-01-31T12:00:00Z`` or ``90m`` (that long ago) as epoch milliseconds.

    A time without a zone is read in `zone`; None is the machine's own zone.

    Raises:
        ValueError: the text has none of these forms.
    """
    if ago := _AGO.fullmatch(text):
        return time.time_ns() // 1_000_000 - int(float(ago[1]) * _UNIT_MS[ago[2]])
    instant = f"{text}T00:00:00" if _DATE.fullmatch(text) else text
    if _DATE.match(instant):
        with contextlib.suppress(ValueError):  # reported below
            if (read := datetime.fromisoformat(instant)).tzinfo is None:
                local = read.astimezone() if zone is None else read.replace(tzinfo=zone)
                instant = local.isoformat()
    return parse_instant_us(instant) // 1000


def moment(text: str, zone: tzinfo | None = UTC, option: str | None = None) -> int:
    """Read an option's value as `parse_moment` does, with an error for the command line."""
    try:
        return parse_moment(text, zone)
    except (ValueError, OverflowError):
        says = f"{text[:40]!r} is not a date or time from 1970 on; give {FORMS}"
        raise typer.BadParameter(says, param_hint=option) from None


def check_span(
    since_ms: int | None, until_ms: int | None, since: str = "--since", until: str = "--until"
) -> None:
    """Raise a `typer.BadParameter` if a span of time, given by two options, ends before it begins."""
    if since_ms is not None and until_ms is not None and until_ms < since_ms:
        raise typer.BadParameter(f"this is before {since}; give a later time", param_hint=until)


def is_did(text: str) -> bool:
    """Whether a text can be the did of a file that Waybill named: a UUID."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def check_did(text: str, param: str) -> None:
    """Raise a `typer.BadParameter` if a did that was not found cannot be one; `param` is its parameter."""
    if not is_did(text):
        says = f"no file has the did {text!r}, which is not a UUID; give a did from `waybill find`"
        raise typer.BadParameter(says, param_hint=param)


Since = Annotated[
    int | None,
    typer.Option(
        "--since",
        parser=moment,
        metavar="WHEN",
        help=f"Only records that ended at this time or later: {FORMS}.",
    ),
]
Until = Annotated[
    int | None,
    typer.Option("--until", parser=moment, metavar="WHEN", help="Only records that ended before this time."),
]
