"""The ways in which a Spark job can end: the rows of the table in ``docs/spark.md``, each with its test.

A test says with `ending` which row it holds; `test_the_table` sees that each row has one.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

PAGE: Final = Path(__file__).parents[3] / "docs" / "spark.md"


class Ending(NamedTuple):
    """One row, by its first cells: what ends, and what happens to it."""

    family: str
    how: str


_held: set[Ending] = set()


def ending(family: str, how: str) -> Callable[[Test], Test]:
    """Say which row a test holds."""
    return endings([Ending(family, how)])


def endings(rows: Iterable[Ending]) -> Callable[[Test], Test]:
    """Say which rows a test holds."""
    _held.update(rows)
    return lambda test: test


def rows_held() -> set[Ending]:
    """The rows of all tests in this folder."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("test_endings_"):
            importlib.import_module(module.name)
    return _held


def rows_of_the_page() -> list[Ending]:
    """The rows that the page has."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| what | how it ends |")
    return [
        Ending(*cells)
        for cells in re.findall(r"^\| (.+?) \| (.+?) \|", table.partition("\n\n")[0], re.MULTILINE)
    ]
