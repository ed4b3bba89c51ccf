"""How the command speaks: results on stdout, everything else on stderr, colours only on a terminal.

Names come from whoever sends events. What would steer a terminal, or turn the order of letters around, is
shown as an escape, such as ``\\x1b``; nothing is printed by another way than this module.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

# Rich takes longer to load than most commands to run, and a shell runs the command at each press of Tab.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

Part = str | tuple[str, str]
"""A text, or a text and its style."""

_UNBOUNDED_COLUMNS: Final = 1000
_LATIN_MAX: Final = 0xFF
# Control characters but for tab and line feed, the marks of writing direction, and what is no character.
_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def shown(text: str) -> str:
    """A text of others within one line: its control characters and line ends as escapes."""
    return _guarded(text).replace("\n", r"\n")


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
    text = msgspec.json.encode(value).decode()
    # Such characters are in texts only, where JSON has escapes for all of them.
    sys.stdout.write(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def body(content: bytes) -> None:
    """Print bytes as they are, and end the line; a terminal gets them as text."""
    if on_terminal():
        from rich.text import Text

        _console(stderr=False).print(
            Text(_guarded(content.decode(errors="backslashreplace"))), soft_wrap=True
        )
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content + b"\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: aligned under headings on a terminal, else one line each with tabs between the cells."""
    if on_terminal():
        drawing(grid(columns, rows))
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
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(bar_width=30),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield functools.partial(bar.update, bar.add_task(shown(description), total=total))


@functools.cache
def _console(*, stderr: bool) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Guarded(Console):
        """Lets no text through that steers a terminal, whatever it is drawn as."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(_guarded(one.text), one.style)

    made = Guarded(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal:
        # A file has no width, so nothing is folded there.
        made.width = _UNBOUNDED_COLUMNS
    return made


def _print_line(parts: Sequence[Part], *, stderr: bool) -> None:
    from rich.text import Text

    safe = (shown(part) if isinstance(part, str) else (shown(part[0]), part[1]) for part in parts)
    _console(stderr=stderr).print(Text.assemble(*safe), soft_wrap=True)


def _guarded(text: str) -> str:
    return _STEERING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= _LATIN_MAX else f"\\u{code:04x}"
