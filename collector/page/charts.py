"""Small charts as SVG. They have only classes: a stylesheet says how they look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

_WIDTH: Final = 960
_HEIGHT: Final = 110
_EDGE: Final = 18
"""The room above and below the bars."""
_GAP: Final = 0.15
_BAR_MIN: Final = 1.5
_ROW: Final = 8

_STANDALONE: Final = (
    "<style>.bar{fill:#1d56c9}.bar.wrong{fill:#b3261e}"
    ".axis{stroke:#d4dae2}text{fill:#556070;font:11px sans-serif}</style>"
)
"""How a chart looks outside the page."""


class Bar(NamedTuple):
    """A bar of a histogram.

    Attributes:
        value: its height, of which `wrong` are failures.
        text: what it says, for a tooltip and for those who cannot see it.
        url: where it leads; None: nowhere.
    """

    value: int
    wrong: int
    text: str
    url: str | None = None


def histogram(bars: Sequence[Bar], first: str, last: str, name: str, *, is_alone: bool) -> str:
    """Bars side by side.

    Args:
        bars: at least one.
        first: what stands below the first one.
        last: what stands below the last one.
        name: what the chart shows, for those who cannot see it.
        is_alone: whether the chart is a file of its own. The page writes the texts itself, in letters that do
            not shrink with it.
    """
    most = max(1, *(bar.value for bar in bars))
    step, room = _WIDTH / len(bars), _HEIGHT - 2 * _EDGE
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {size} role="group" '
    parts = [f"{head}aria-label={quoteattr(name)}>"]
    for at, bar in enumerate(bars):
        x, width = step * (at + _GAP / 2), step * (1 - _GAP)
        drawn = []
        for value, kind in ((bar.value, "bar"), (bar.wrong, "bar wrong")):
            height = max(room * value / most, _BAR_MIN if value else 0)
            y = _HEIGHT - _EDGE - height
            drawn.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
            )
        whole = f'<rect x="{step * at:.1f}" y="{_EDGE}" width="{step:.1f}" height="{room}" fill-opacity="0"/>'
        shown = f"<title>{escape(bar.text)}</title>{whole}{''.join(drawn)}"
        if bar.url is None or not bar.value:
            parts.append(f"<g>{shown}</g>")
        else:
            parts.append(f"<a href={quoteattr(bar.url)} aria-label={quoteattr(bar.text)}>{shown}</a>")
    base = _HEIGHT - _EDGE + 0.5
    parts.append(f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{base}" y2="{base}"/>')
    if is_alone:
        parts += [
            _STANDALONE,
            f'<text x="0" y="10">{most:,}</text><text x="0" y="{_HEIGHT - 4}">{escape(first)}</text>',
            f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{escape(last)}</text>',
        ]
    return "".join([*parts, "</svg>"])


class Span(NamedTuple):
    """A part of a row of a time line.

    Attributes:
        begin: where it begins, as a share of the row.
        end: where it ends.
        kind: the class of how it looks: a final state, or another one.
        text: what it says.
    """

    begin: float
    end: float
    kind: str
    text: str


def time_row(spans: Sequence[Span], name: str) -> str:
    """A row of a time line; the page writes beside it what it is about."""
    head = f'<svg class="chart" viewBox="0 0 {_WIDTH} {_ROW}" preserveAspectRatio="none" role="img" '
    parts = [f"{head}aria-label={quoteattr(name)}>"]
    for one in spans:
        width = max(_WIDTH * (one.end - one.begin), 2 * _BAR_MIN)
        x = min(_WIDTH * one.begin, _WIDTH - width)
        drawn = f'<rect class="bar {one.kind}" x="{x:.1f}" y="0" width="{width:.1f}" height="{_ROW}"/>'
        parts.append(f"<g><title>{escape(one.text)}</title>{drawn}</g>")
    return "".join([*parts, "</svg>"])


def sparkline(values: Sequence[float], name: str) -> str:
    """A line of values from left to right, from the least of them to the most."""
    width, height, edge = 140, 28, 2
    low, high = min(values), max(values)

    def y_of(value: float) -> float:
        return height - edge - (height - 2 * edge) * ((value - low) / (high - low) if high > low else 0.5)

    step = width / max(len(values) - 1, 1)
    points = " ".join(f"{step * at:.1f},{y_of(value):.1f}" for at, value in enumerate(values))
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label={quoteattr(name)}><polyline class="line" points="{points}"/></svg>'
    )
