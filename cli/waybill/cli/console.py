"""How the command speaks: results on stdout, everything else on stderr, colours only on a terminal."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

# Rich takes longer to load than most commands to run, and a shell runs the command at each press of Tab.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

Part = str | tuple[str, str]
"""A text, or a text and its style."""

_UNBOUNDED_COLUMNS: Final = 1000


def line(*parts: Part) -> None:
    """Print one line of the result; it is never folded, so that a path can be copied."""
    _print_line(parts, stderr=False)


def note(*parts: Part) -> None:
    """Print one line to stderr, beside the result."""
    _print_line(parts, stderr=True)


def error(text: str) -> None:
    """Say in one sentence what failed and what to do."""
    note(("waybill: ", "bold red"), " ".join(text.split()))


def on_terminal() -> bool:
    """Whether a person reads the result."""
    return sys.stdout.isatty()


def json(value: object) -> None:
    """Print one value as a line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def body(content: bytes) -> None:
    """Print bytes as they are, and end the line."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content + b"\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned under headings on a terminal, else one line each with tabs between the cells."""
    if on_terminal():
        drawing(grid(columns, rows))
        return
    for row in (columns, *rows):
        sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")


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
    """Print a tree or a grid; in a file it lacks only the colours."""
    _console(stderr=False).print(picture)


def show_log() -> None:
    """Send the rooms' log to stderr; otherwise it is not shown."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")


@contextlib.contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr, if that is a terminal; yields its update (`completed`, `total`, ...)."""
    from rich import progress as rich

    console = _console(stderr=True)
    with rich.Progress(
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=30),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield functools.partial(bar.update, bar.add_task(description, total=total))


@functools.cache
def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal:
        # A file has no width, so nothing is folded there.
        made.width = _UNBOUNDED_COLUMNS
    return made


def _print_line(parts: Sequence[Part], *, stderr: bool) -> None:
    from rich.text import Text

    _console(stderr=stderr).print(Text.assemble(*parts), soft_wrap=True)
