"""The display of how many records there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from . import console
from .records import instant_of, iso, name_of

if TYPE_CHECKING:
    from waybill.exporter.query import Dimension

_COUNT = "count"
_HOUR = "hour"


def show_total(count: int, unit: str, *, as_json: bool, as_csv: bool) -> None:
    """Print how many there are, and on a terminal of what: programs that read it want a number."""
    if as_json:
        console.json({_COUNT: count})
    elif as_csv:
        console.table((_COUNT,), [(str(count),)], as_csv=True)
    else:
        console.line(console.counted(count, unit) if console.on_terminal() else str(count))


def show(
    sums: Mapping[tuple[str | int | None, ...], int],
    by: Sequence[Dimension],
    zone: tzinfo | None = UTC,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the number of records of each kind, in a line each; in JSON as records name their fields."""
    if as_json:
        names = [one.field for one in by]
        for kind, count in sums.items():
            values = (iso(value) if isinstance(value, int) else value for value in kind)
            console.json(dict(zip(names, values, strict=True)) | {_COUNT: count})
        return
    headings = [f"{_HOUR} ({name_of(zone)})" if one == _HOUR else one.value for one in by]
    rows = ([*(_text(value, zone) for value in kind), str(count)] for kind, count in sums.items())
    console.table([*headings, _COUNT], rows, as_csv=as_csv)


def _text(value: str | int | None, zone: tzinfo | None) -> str:
    return instant_of(value, zone)[:16] if isinstance(value, int) else value or ""
