"""The ways in which a Spark job can end: the rows of the table in ``docs/spark.md``, each beside its test.

A test takes its row with `ending`; `table` makes the page's table of them, so that the page says nothing that
no test holds.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

FAMILIES: Final = (
    "a write",
    "a table",
    "an RDD",
    "a read",
    "threads and sessions",
    "a stream",
    "a driver",
    "a notebook",
    "a cluster",
    "Spark Connect",
)


class Ending(NamedTuple):
    """One row.

    Attributes:
        family: what ends, one of `FAMILIES`.
        how: what happens to it.
        really: what can be seen without Waybill: exit status, exceptions, files.
        record: what Waybill says.
    """

    family: str
    how: str
    really: str
    record: str


_rows: dict[Ending, None] = {}


def ending(family: str, how: str, *, really: str, record: str) -> Callable[[Test], Test]:
    """Say which row a test holds."""
    return endings([Ending(family, how, really, record)])


def endings(rows: Iterable[Ending]) -> Callable[[Test], Test]:
    """Say which rows a test holds."""

    def take(test: Test) -> Test:
        for row in rows:
            assert row.family in FAMILIES
            _rows[row] = None
        return test

    return take


def table() -> str:
    """The rows of all tests in this folder, as the page has them."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("test_endings_"):
            importlib.import_module(module.name)
    rows = sorted(_rows, key=lambda row: FAMILIES.index(row.family))
    lines = ["| what | how it ends | visible result | record |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2] / "shared"))
    # The tests take their rows from the module by its name, which this is not.
    sys.stdout.write(importlib.import_module("endings").table() + "\n")
