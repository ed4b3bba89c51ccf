"""Options that several commands share, and the functions that read their values."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from waybill.facets import parse_instant_us
from waybill.transport.clock import SYSTEM_CLOCK

FORMS: Final = (
    "2026-01-31, 2026-01-31T12:00:00Z, today, yesterday, epoch seconds or milliseconds, or 90m, 6h, "
    "'2 days ago': that long ago"
)
"""The accepted forms of a time, for the help of an option."""

_AGO: Final = re.compile(
    r"(\d+(?:\.\d+)?)(?:([smhdw])|\s*(s|m|h|d|w|sec|min|hr|(?:second|minute|hour|day|week)s?)\s+ago)"
)
_DAY: Final = re.compile(r"(today|yesterday)(?:[ t](\d{2}:\d{2}(?::\d{2})?))?")
_EPOCH: Final = re.compile(r"\d{10}|\d{13}", re.ASCII)
_SECONDS_DIGITS: Final = 10
_SECONDS_MAX: Final = 1e9
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_Word = TypeVar("_Word", bound=StrEnum)


class Engine(StrEnum):
    """The engine that does a compaction or a rebuild."""

    EMBEDDED = "embedded"
    SPARK = "spark"


def _known_dialect(value: str | None) -> str | None:
    from waybill.lineage.analyzers import known_dialect

    try:
        known_dialect(value or "ansi")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return value


Dialect = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The SQL's dialect, where a log does not say it: spark, postgres, snowflake, bigquery, tsql, …",
        callback=_known_dialect,
    ),
]


def flag(name: str, says: str, *others: str, **more: Any) -> Any:  # noqa: ANN401 - as `typer.Option` has it
    """An option that is given or not."""
    return typer.Option(name, *others, help=says, **more)


def valued(metavar: str, says: str, *names: str, **more: Any) -> Any:  # noqa: ANN401 - as `typer.Option` has it
    """An option with a value; its name is that of the parameter, unless another is given."""
    return typer.Option(*names, metavar=metavar, help=says, **more)


def argument(metavar: str, says: str, **more: Any) -> Any:  # noqa: ANN401 - as `typer.Argument` has it
    """A value that is given by its place."""
    return typer.Argument(metavar=metavar, help=says, **more)


def seconds(name: str, says: str, least_s: float = 0.0, **more: Any) -> Any:  # noqa: ANN401 - as `typer.Option` has it
    """An option that is a number of seconds, which clocks can count."""
    return valued("SECONDS", says, name, min=least_s, max=_SECONDS_MAX, **more)


def repeated(metavar: str, says: str, **more: Any) -> Any:  # noqa: ANN401 - as `typer.Option` has it
    """An option that may be given several times."""
    return valued(metavar, f"{says} Repeatable.", show_default=False, **more)


Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master.", show_default="Spark's own settings, else local"),
]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonArray = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")]
Zone = Annotated[
    str,
    typer.Option(
        metavar="UTC|local|NAME", help="The time zone of the output, and of given times without one."
    ),
]
Timeout = Annotated[float | None, seconds("--timeout", "Wait no longer than this.", show_default="no limit")]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", min=1, help="Number of worker processes.", show_default="one for each core"
    ),
]
All = Annotated[bool, typer.Option("--all", help="Choose all of them.")]


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


def parse_moment(text: str, zone: tzinfo | None = UTC, *, now_ms: int | None = None) -> int:
    """Read a moment as epoch milliseconds.

    It is a date, ``2026-01-31``; a time, ``2026-01-31T12:00:00Z``; ``now``, ``today`` or ``yesterday``, which
    are the starts of these days, or with a time, ``yesterday 14:00``; a time ago, ``90m`` or ``2 hours ago``;
    or the ten digits of epoch seconds, or the thirteen of epoch milliseconds.

    Args:
        text: the moment.
        zone: of days, and of a time without a zone; None is the machine's own zone.
        now_ms: the present moment; None: that of the clock.

    Raises:
        ValueError: the text has none of these forms.
        OverflowError: it is too long ago.
    """
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
    if ago := _AGO.fullmatch(text.lower()):
        return now_ms - int(float(ago[1]) * _UNIT_MS[ago[2] or ago[3][0]])
    if _EPOCH.fullmatch(text):
        return int(text) * (1_000 if len(text) == _SECONDS_DIGITS else 1)
    if text.lower() == "now":
        return now_ms
    instant = f"{text}T00:00:00" if _DATE.fullmatch(text) else text
    if day := _DAY.fullmatch(text.lower()):
        today = datetime.fromtimestamp(now_ms / 1_000, UTC).astimezone(zone).date()
        instant = f"{today - timedelta(days=day[1] == 'yesterday')}T{day[2] or '00:00'}"
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
