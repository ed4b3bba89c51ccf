"""The output of the command: results on stdout, everything else on stderr, colours only on a terminal.

Names come from whoever sends events. Characters that would control a terminal, or reverse the order of
letters, are shown as escapes, such as ``\\x1b``; all output goes through this module.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import typer

from waybill.transport import counting

# Rich takes longer to load than most commands take to run, and a shell runs the command on each press of Tab.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

counted: Final = counting.counted
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INCOMPLETE: Final = 3

Part = str | tuple[str, str]
"""A text, or a text and its style."""

_UNBOUNDED_COLUMNS: Final = 1000
_GAP: Final = 2
"""The spaces between two columns."""

_WORD: Final = re.compile(r"\S+")
_ID: Final = re.compile(r"[0-9a-f-]{32}")
"""The beginning of a did, a fingerprint or another id."""

# Control characters except tab and line feed, direction marks, and code points that are not characters.
_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def shown(text: str) -> str:
    """Foreign text on one line: its control characters and line ends become escapes."""
    return _guarded(text).replace("\n", r"\n")


def line(*parts: Part) -> None:
    """Print one line of the result; it is not wrapped, so that a path can be copied."""
    _print_line(parts, stderr=False)


def note(*parts: Part) -> None:
    """Print one line to stderr, beside the result."""
    _print_line(parts, stderr=True)


def error(text: str) -> None:
    """Print an error: one sentence that says what failed and what to do."""
    note(("waybill: ", "bold red"), " ".join(text.split()))


def result(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: as one JSON object, or else as lines."""
    if as_json:
        json(value)
        return
    for text in lines:
        line(text)


def fail_for(sentences: Iterable[str]) -> None:
    """Print errors, and end the command with exit code 1 if there is one."""
    failed = list(sentences)
    for sentence in failed:
        error(sentence)
    fail_if(failed)


def fail_if(has_failed: object) -> None:
    """End the command with exit code 1 if something has failed; what it was is printed already."""
    if has_failed:
        raise typer.Exit(EXIT_FAILED)


def on_terminal() -> bool:
    """Whether stdout is a terminal, so that a person reads the result."""
    return sys.stdout.isatty()


def json(value: object) -> None:
    """Print one value as a line of JSON."""
    text = msgspec.json.encode(value).decode()
    # Such characters occur only inside strings, where JSON has escapes for all of them.
    sys.stdout.write(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def body(content: bytes) -> None:
    """Print bytes unchanged, and end the line; a terminal gets them as text."""
    if on_terminal():
        from rich.text import Text

        _console(stderr=False).print(
            Text(_guarded(content.decode(errors="backslashreplace"))), soft_wrap=True
        )
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content + b"\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, as_csv: bool = False) -> None:
    """Print rows: aligned under headings on a terminal, else one line each with tabs between the cells.

    CSV is the same everywhere, and a cell may contain line ends.
    """
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        for row in (columns, *rows):
            writer.writerow([_guarded(cell) for cell in row])
        return
    if on_terminal():
        _draw_table(columns, [tuple(map(shown, row)) for row in rows])
        return
    for row in (columns, *rows):
        sys.stdout.write("\t".join(shown(" ".join(cell.split())) for cell in row) + "\n")


def grid(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Rows aligned under headings."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(shown(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw rows under headings or, where an id would have to be folded, each row as a block of its own."""
    from rich.cells import cell_len

    columns_wide = sum(max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True))
    width = _console(stderr=False).width
    if columns_wide + _GAP * (len(columns) - 1) <= width or not any(map(_ids, chain(*rows))):
        drawing(grid(columns, rows))
        return
    for at, row in enumerate(rows):
        if at:
            line("")
        cells = [(column, cell) for column, cell in zip(columns, row, strict=True) if cell]
        block = grid(("", ""), cells)
        block.show_header = False
        widest_id = max((cell_len(found[0]) for _, cell in cells for found in _ids(cell)), default=0)
        block.columns[0].max_width = max(width - _GAP - widest_id, _GAP)
        drawing(block)


def drawing(picture: RenderableType) -> None:
    """Print a tree or a grid; in a file, only the colours are missing."""
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
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=30),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=on_terminal(),  # else results would go to the terminal instead of their file
        disable=not console.is_terminal,
    ) as bar:
        yield functools.partial(bar.update, bar.add_task(shown(description), total=total))


@functools.cache
def _console(*, stderr: bool) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Guarded(Console):
        """Escapes all text that would control a terminal, in whatever it is drawn."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - Rich calls it where it caught the error, and would end the process with 1

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(_guarded(one.text), one.style)

    made = Guarded(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal:
        # A file has no width, so nothing is wrapped there.
        made.width = _UNBOUNDED_COLUMNS
    return made


def _print_line(parts: Sequence[Part], *, stderr: bool) -> None:
    from rich.text import Text

    safe = (shown(part) if isinstance(part, str) else (shown(part[0]), part[1]) for part in parts)
    # Beside a bar, only its console knows where a line begins.
    console, text = _console(stderr=stderr or hasattr(sys.stdout, "rich_proxied_file")), Text.assemble(*safe)
    if console.is_terminal:
        text = Text("\n").join(text.divide(_starts_of_cut_ids(text.plain, console.width)))
    console.print(text, soft_wrap=True)


def _starts_of_cut_ids(text: str, width: int) -> Iterator[int]:
    """Where the ids begin that a terminal's edge would cut: each of them gets a line of its own."""
    from rich.cells import cell_len

    begun = 0
    for found in _ids(text):
        column = cell_len(text[begun : found.start()]) % width
        if column + cell_len(found[0]) > width >= cell_len(found[0]):
            begun = found.start()
            yield begun


def _ids(text: str) -> list[re.Match[str]]:
    """The words of a text that hold an id; a terminal shows each in one piece."""
    return [word for word in _WORD.finditer(text) if _ID.search(word[0])]


def _guarded(text: str) -> str:
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
