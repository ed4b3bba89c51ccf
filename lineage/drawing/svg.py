"""Boxes and arrows as a drawing in SVG: in layers from left to right, as the data flow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from .lines import FOLDED_FROM
from .writing import Arrow, Box, Link, TooLargeForMermaidError, plain, write_dot, write_mermaid, xml_text

_MARGIN: Final = 16
_GAP_X: Final = 64
_GAP_Y: Final = 14
_ROW: Final = 17
_LETTER: Final = 7.3
"""About how wide a letter is, in pixels, as for all of these; a box that is too wide only has a margin."""

_LID: Final = 5
_SWEEPS: Final = 4
"""How often the layers are gone through to bring near to each other what arrows join."""

_WAY_MAX: Final = 100
"""An arrow over more layers has no place in them, so that thousands of those take no longer than others."""

_Lanes = list[list[int]]
"""By layer, from the top down, the boxes and, with further numbers, the places that long arrows pass."""


def write_svg(boxes: Sequence[Box], arrows: Sequence[Arrow], *, title: str = "") -> str:
    """A drawing that any browser shows, in letters and lines only; it loads nothing, and has no styles.

    Args:
        boxes: at least one.
        arrows: between them; one that leads back, in a circle, goes from right to left.
        title: what it shows, for a reader who does not see it.
    """
    sizes = [_size(box) for box in boxes]
    layers = _layers(boxes, arrows)
    lanes, joined, ways = _lanes(layers, arrows)
    heights = defaultdict(lambda: float(_GAP_Y), enumerate(height for _, height in sizes))
    tops = _tops(lanes, joined, heights)
    lefts: dict[int, float] = {}
    x = float(_MARGIN)
    for lane in lanes:
        width = max((sizes[one][0] for one in lane if one < len(boxes)), default=0.0)
        for one in lane:
            lefts[one] = x if one < len(boxes) else x + width / 2
            if one < len(boxes):  # as wide as all in its layer, so that no arrow passes behind a box
                sizes[one] = (width, sizes[one][1])
        x += width + _GAP_X
    places = {one: (lefts[one], tops[one]) for one in lefts}
    parts = [_arrow(arrow, way, places, sizes) for arrow, way in zip(arrows, ways, strict=True)]
    parts += [_box(box, *places[at], *sizes[at]) for at, box in enumerate(boxes)]
    height = max(tops[one] + heights[one] for lane in lanes for one in lane) + _MARGIN
    size = f'width="{x - _GAP_X + _MARGIN:.0f}" height="{height:.0f}"'
    look = 'font-family="sans-serif" font-size="13" fill="#202124"'
    # A picture hides what is in it from who does not see it, so what has links is none.
    role = f' role="{"group" if any(box.links for box in boxes) else "img"}"' if title else ""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look}{role}>'
    named = [f"<title>{escape(plain(title))}</title>"] if title else []
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, *named, paper, *parts, "</svg>"]) + "\n"


def _layers(boxes: Sequence[Box], arrows: Iterable[Arrow]) -> list[int]:
    """The layer of each box: right of all that lead to it, and what leads to the main one near to it."""
    after: list[list[int]] = [[] for _ in boxes]
    for arrow in arrows:
        after[arrow.source].append(arrow.target)
    ended = _ended(after)
    place = {box: at for at, box in enumerate(ended)}
    # An arrow that leads back closes a circle, and decides nothing.
    ahead = [[far for far in some if place[far] < place[box]] for box, some in enumerate(after)]
    layers, down = [0] * len(boxes), {at for at, box in enumerate(boxes) if box.is_about}
    for box in reversed(ended):
        down.update(ahead[box] if box in down else ())
        for far in ahead[box]:
            layers[far] = max(layers[far], layers[box] + 1)
    for box in ended:
        if box not in down and ahead[box]:
            layers[box] = min(layers[far] for far in ahead[box]) - 1
    return layers


def _ended(after: Sequence[Sequence[int]]) -> list[int]:
    """All boxes in the order in which a search in depth leaves them; it begins where nothing leads to."""
    led_to = {far for some in after for far in some}
    seen: set[int] = set()
    ended = []
    for start in sorted(range(len(after)), key=led_to.__contains__):
        path = [] if start in seen else [(start, iter(after[start]))]
        seen.add(start)
        while path:
            box, waiting = path[-1]
            far = next((one for one in waiting if one not in seen), None)
            if far is None:
                ended.append(box)
                path.pop()
            else:
                seen.add(far)
                path.append((far, iter(after[far])))
    return ended


def _lanes(
    layers: Sequence[int], arrows: Iterable[Arrow]
) -> tuple[_Lanes, dict[int, list[int]], list[list[int]]]:
    """The lanes, what is joined to each of their members in the lanes beside it, and each arrow's way."""
    lanes: _Lanes = [[] for _ in range(max(layers) + 1)]
    for box, layer in enumerate(layers):
        lanes[layer].append(box)
    numbers = itertools.count(len(layers))
    joined: defaultdict[int, list[int]] = defaultdict(list)
    ways = []
    for arrow in arrows:
        way = [arrow.source]
        between = range(layers[arrow.source] + 1, layers[arrow.target])
        for layer in between if len(between) <= _WAY_MAX else ():
            way.append(next(numbers))  # they never end
            lanes[layer].append(way[-1])
        way.append(arrow.target)
        ways.append(way)
        if layers[arrow.source] < layers[arrow.target]:
            for near, far in itertools.pairwise(way):
                joined[near].append(far)
                joined[far].append(near)
    return lanes, joined, ways


def _tops(lanes: _Lanes, joined: Mapping[int, list[int]], heights: Mapping[int, float]) -> dict[int, float]:
    """Put the members of each lane into an order with few crossings, and return their upper edges."""
    middles: dict[int, float] = {}
    for lane in lanes:
        middles |= {one: float(at) for at, one in enumerate(lane)}
    told = {one: at for at, lane in enumerate(lanes) for one in lane}
    for sweep in range(_SWEEPS):
        is_back = sweep % 2
        for at in range(len(lanes))[:: -1 if is_back else 1]:
            lane = lanes[at]
            wanted = {}
            for one in lane:
                beside = [
                    middles[other] for other in joined.get(one, ()) if (told[other] > at) == bool(is_back)
                ]
                wanted[one] = sum(beside) / len(beside) if beside else middles[one]
            lane.sort(key=lambda one: wanted[one])
            below = -1e9
            for one in lane:
                middles[one] = max(wanted[one], below + _GAP_Y + heights[one] / 2)
                below = middles[one] + heights[one] / 2
            shift = sum(wanted[one] - middles[one] for one in lane) / len(lane)
            middles |= {one: middles[one] + shift for one in lane}
    tops = {one: middle - heights[one] / 2 for one, middle in middles.items()}
    highest = min(tops.values())
    return {one: top - highest + _MARGIN for one, top in tops.items()}


def _size(box: Box) -> tuple[float, float]:
    letters = max(sum(1 + (east_asian_width(one) in "WF") for one in words) for words in box.words)
    lid = 2 * _LID if box.look.radius is None else 0
    return letters * _LETTER + 24, len(box.words) * _ROW + 12 + lid


def _arrow(
    arrow: Arrow,
    way: Sequence[int],
    places: Mapping[int, tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
) -> str:
    """An arrow from the right side of a box to the left side of another, by way of the places between."""
    points = [(x, y + _GAP_Y / 2) for x, y in (places[one] for one in way[1:-1])]
    (x, y), (width, height) = places[arrow.source], sizes[arrow.source]
    begin = (x + width, y + height / 2)
    end_x, end_y = places[arrow.target][0], places[arrow.target][1] + sizes[arrow.target][1] / 2
    path = f"M{begin[0]:.0f},{begin[1]:.0f}"
    is_back = end_x <= begin[0]
    bend, low = (_GAP_X, height / 2 + _GAP_X) if is_back else (_GAP_X * 0.4, 0.0)
    last_x, last_y = begin
    for to_x, to_y in [*points, (end_x - 6, end_y)]:
        path += f"C{last_x + bend:.0f},{last_y + low:.0f} {to_x - bend:.0f},{to_y + low:.0f}"
        path += f" {to_x:.0f},{to_y:.0f}"
        last_x, last_y = to_x, to_y
    dashes = ' stroke-dasharray="5 3"' if arrow.is_dashed else ""
    drawn = f'<path d="{path}" fill="none" stroke="#80868b"{dashes}/>'
    drawn += f'<path d="M{end_x:.0f},{end_y:.0f}l-8,-4v8z" fill="#80868b"/>'
    if arrow.words:
        drawn += f'<text x="{begin[0] + 6:.0f}" y="{begin[1] - 4:.0f}" font-size="11">{arrow.words}</text>'
    return drawn


def _box(box: Box, x: float, y: float, width: float, height: float) -> str:
    """A box with its words, in an element of its own."""
    fill, border = box.colours
    look = f'fill="{fill}" stroke="{border}" stroke-width="{3 if box.is_about else 1}"'
    lid = 2 * _LID if box.look.radius is None else 0
    if box.look.radius is None:
        arc = f"{width / 2:.1f},{_LID} 0 0"
        right, low, high = f"{x + width:.1f}", f"{y + height - _LID:.1f}", f"{y + _LID:.1f}"
        body = f"M{x:.1f},{high}A{arc} 1 {right},{high}V{low}A{arc} 1 {x:.1f},{low}Z"
        shapes = [f'<path d="{body}M{x:.1f},{high}A{arc} 0 {right},{high}" {look}/>']
    else:
        shapes = [
            f'<rect x="{x + by:.1f}" y="{y + by:.1f}" width="{width:.1f}" height="{height:.1f}"'
            f' rx="{box.look.radius}" {look}/>'
            for by in ((4, 0) if box.look.is_stack else (0,))
        ]
    lines = [
        f'<text x="{x + 12:.1f}" y="{y + lid + 19 + at * _ROW:.1f}">{escape(plain(words))}</text>'
        for at, words in enumerate(box.words)
    ]
    if box.is_about:
        lines[0] = lines[0].replace("<text", '<text font-weight="bold"', 1)
    lines[0] = f"{''.join(shapes)}{lines[0]}"
    for at, link in box.links.items():
        lines[at] = _linked(link, lines[at])
    return f"<g>{''.join(lines)}</g>"


def _linked(link: Link, drawn: str) -> str:
    href, label = (quoteattr(xml_text(text)) for text in (link.href, plain(link.label)))
    within = ' class="within"' if link.is_within else ""
    underlined = drawn.replace("<text", '<text text-decoration="underline"', 1)
    return f"<a href={href} aria-label={label}{within}>{underlined}</a>"


_Boxes = tuple[Sequence[Box], Sequence[Arrow]]

_WRITERS: Final[Mapping[str, Callable[[Sequence[Box], Sequence[Arrow]], str]]] = {
    "mermaid": write_mermaid,
    "dot": write_dot,
    "svg": write_svg,
}

_FOLDED_FROM: Final = (FOLDED_FROM, 6, 3, 2)
"""What is too large for a form is folded more, step by step."""


def draw(form: str, boxes_of: Callable[[int | None], _Boxes], *, unfold: bool = False) -> str:
    """A picture, folded as far as its form needs.

    Args:
        form: ``mermaid``, ``dot`` or ``svg``.
        boxes_of: what to draw, given from how many neighbours on they are folded; None: nothing is.
        unfold: whether nothing is folded.

    Raises:
        TooLargeForMermaidError: it is too large, however much it is folded.
    """
    *steps, last = (None,) if unfold else _FOLDED_FROM
    for folded_from in steps:
        with suppress(TooLargeForMermaidError):
            return _WRITERS[form](*boxes_of(folded_from))
    return _WRITERS[form](*boxes_of(last))
