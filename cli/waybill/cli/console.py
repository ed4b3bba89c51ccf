"""How the command speaks: results on stdout, everything else on stderr, colours only on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_UNBOUNDED_COLUMNS: Final = 1000


def _console(*, stderr: bool) -> Console:
    """A console that folds nothing where there is no terminal: a file has no width."""
    made = Console(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal:
        made.width = _UNBOUNDED_COLUMNS
    return made


RESULT: Final = _console(stderr=False)
"""What was asked for."""

NOTES: Final = _console(stderr=True)
"""Progress, remarks and errors, so that a result can be piped on."""


def line(text: str, style: str = "") -> None:
    """Print one line of the result; it is never folded, so that a path can be copied."""
    RESULT.print(Text(text, style=style), soft_wrap=True)


def note(text: str, style: str = "") -> None:
    """Print one line beside the result."""
    NOTES.print(Text(text, style=style), soft_wrap=True)


def error(text: str) -> None:
    """Say in one sentence what failed and what to do."""
    NOTES.print(Text.assemble(("waybill: ", "bold red"), " ".join(text.split())), soft_wrap=True)


def json(value: object) -> None:
    """Print one value as a line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned under headings on a terminal, else one line each with tabs between the cells."""
    if not RESULT.is_terminal:
        for row in (columns, *rows):
            sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")
        return
    drawing(grid(columns, rows))


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows aligned under headings."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def drawing(picture: RenderableType) -> None:
    """Print a tree or a grid, the same in a file as on a terminal but for the colours."""
    RESULT.print(picture)


def show_log() -> None:
    """Let the rooms' own log, otherwise silent here, go to stderr."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def progress() -> Progress:
    """A progress bar beside the result; it draws nothing where stderr is not a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=NOTES,
        transient=True,
        disable=not NOTES.is_terminal,
    )
