"""How the command speaks: results on stdout, everything else on stderr, colours only on a terminal."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

# Rich takes longer to load than most commands to run, and completion in a shell runs the command at each key.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

Part = str | tuple[str, str]
"""A text, or a text and its style."""

_UNBOUNDED_COLUMNS: Final = 1000


def line(*parts: Part) -> None:
    """Print one line of the result; it is never folded, so that a path can be copied."""
    _print_line(_result(), parts)


def note(*parts: Part) -> None:
    """Print one line beside the result."""
    _print_line(_notes(), parts)


def error(text: str) -> None:
    """Say in one sentence what failed and what to do."""
    note(("waybill: ", "bold red"), " ".join(text.split()))


def on_terminal() -> bool:
    """Whether the result is read by a person."""
    return sys.stdout.isatty()


def json(value: object) -> None:
    """Print one value as a line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned under headings on a terminal, else one line each with tabs between the cells."""
    if not on_terminal():
        for row in (columns, *rows):
            sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")
        return
    drawing(grid(columns, rows))


def grid(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Rows aligned under headings."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def drawing(picture: RenderableType) -> None:
    """Print a tree or a grid, the same in a file as on a terminal but for the colours."""
    _result().print(picture)


def show_log() -> None:
    """Let the rooms' own log, otherwise silent here, go to stderr."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def progress() -> Progress:
    """A progress bar beside the result; it draws nothing where stderr is not a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_notes(),
        transient=True,
        disable=not _notes().is_terminal,
    )


@functools.cache
def _result() -> Console:
    """Where goes what was asked for."""
    return _console(stderr=False)


@functools.cache
def _notes() -> Console:
    """Where go progress, remarks and errors, so that a result can be piped on."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """A console that folds nothing where there is no terminal: a file has no width."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal:
        made.width = _UNBOUNDED_COLUMNS
    return made


def _print_line(console: Console, parts: Sequence[Part]) -> None:
    from rich.text import Text

    console.print(Text.assemble(*parts), soft_wrap=True)
