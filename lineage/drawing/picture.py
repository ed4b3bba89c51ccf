"""A journey as a drawing in SVG: a line of text for each file, with the tree on its left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape

from .lines import Fold, Line
from .wording import state_of, words_of
from .writing import COLOURS, xml_text

_ROW: Final = 22
_INDENT: Final = 24
_MARGIN: Final = 12
_LETTER: Final = 7.3
"""About how wide a letter is; a drawing that is too wide only has a margin."""


def svg(lines: Iterable[Line], *, about: str) -> str:
    """A drawing that any browser shows, in letters and lines only; it loads nothing.

    Args:
        lines: of `outline`.
        about: the did of the file that the journey is about; its name is bold.
    """
    parts: list[str] = []
    hangs: dict[int, int] = {}
    """By depth, the row of the last file there: from it a line leads to what hangs on it."""
    row, width = 0, 0.0
    for line in lines:
        depth = len(line.is_last)
        x, y = _MARGIN + depth * _INDENT, _MARGIN + row * _ROW
        if depth:
            top = _MARGIN + hangs[depth - 1] * _ROW + 8
            parts.append(f'<path d="M{x - 15},{top}V{y}H{x - 5}" fill="none" stroke="#9aa0a6"/>')
        hangs[depth] = row
        _, colour = COLOURS[state_of(line.of)]
        if not line.is_repeat:
            parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>')
        for at, words in enumerate(_rows_of(line)):
            is_about = not at and not isinstance(line.of, Fold) and line.of.did == about
            weight = ' font-weight="bold"' if is_about else ""
            text = escape(xml_text(words))
            parts.append(f'<text x="{x + 11}" y="{_MARGIN + row * _ROW + 4}"{weight}>{text}</text>')
            width = max(width, x + 11 + len(words) * _LETTER)
            row += 1
    size = f'width="{width + _MARGIN:.0f}" height="{row * _ROW + _MARGIN}"'
    # No style sheet: within a page, as in a notebook, it would change the page's other drawings.
    look = 'font-family="sans-serif" font-size="13" fill="#202124"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look}>'
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, paper, *parts, "</svg>"]) + "\n"


def _rows_of(line: Line) -> list[str]:
    words = words_of(line.of)
    return [f"{words[0]} (above)"] if line.is_repeat else words
