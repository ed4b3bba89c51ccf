"""Boxes and arrows in the languages of other programs: Mermaid, Graphviz's DOT, GraphML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

import msgspec

from waybill.transport.errors import WaybillError

COLOURS: Final[Mapping[str | None, tuple[str, str]]] = {
    "COMPLETE": ("#e6f4ea", "#1e7e34"),
    "ERROR": ("#fdecea", "#b3261e"),
    "FILTERED": ("#fff8e1", "#8a6d00"),
    "CANCELLED": ("#fff8e1", "#8a6d00"),
    "SPLIT": ("#e8f0fe", "#1a56b0"),
    "RUNNING": ("#e8f0fe", "#1a56b0"),
    None: ("#f1f3f4", "#5f6368"),
}
"""For each state, the colours of a box and of its border."""

_CR: Final = {"\r": "&#13;"}
"""A parser of XML reads a carriage return that is written as it is as the end of a line."""

_READ_BY_MERMAID: Final = re.compile(":(?=fa-)|#36;(?=#36;)|ﬂ|#182;(?=ß)")
"""What Mermaid takes for an icon, a formula or one of its own placeholders, even within HTML."""

_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

MERMAID_ARROWS_MAX: Final = 500
MERMAID_LETTERS_MAX: Final = 50_000
"""Mermaid 11 refuses more arrows (`maxEdges`), and draws a notice instead of a longer text (`maxTextSize`).
A diagram cannot raise these limits itself: only the page that shows it can."""

_LETTERS_MAX: Final = 90
_LETTERS_KEPT: Final = (55, 34)
"""Of a longer name, so many letters of its beginning and of its end are drawn."""

_TYPES: Final = {str: "string", int: "long", float: "double", bool: "boolean"}
"""GraphML's types of data."""


class TooLargeForMermaidError(WaybillError):
    """A flowchart has more arrows or a longer text than Mermaid draws."""


class Look(msgspec.Struct, frozen=True):
    """How boxes of one type look.

    Attributes:
        mermaid: what stands around a label.
        dot: the name of the shape.
        radius: of the corners in SVG, in pixels; None: it is a cylinder.
        colours: of a box and of its border, where no state decides them.
        is_stack: whether it stands for several.
    """

    mermaid: tuple[str, str] = ("[", "]")
    dot: str = "box"
    radius: int | None = 0
    colours: tuple[str, str] = COLOURS[None]
    is_stack: bool = False


class Link(msgspec.Struct, frozen=True):
    """Where a line of a box leads.

    Attributes:
        href: the address.
        label: what it does, for a reader who does not see the box.
        is_within: whether the drawing changes, and not the page.
    """

    href: str
    label: str
    is_within: bool = False


class Box(msgspec.Struct, frozen=True):
    """A place in a picture.

    Attributes:
        words: its lines of text.
        look: how boxes of its type look.
        colours: of the box and of its border.
        is_about: whether the picture is about it, so that its border is thick.
        links: by the place of a line, where it leads; the first line leads there with the whole box. Only
            a drawing in SVG has them.
    """

    words: Sequence[str]
    look: Look
    colours: tuple[str, str]
    is_about: bool = False
    links: Mapping[int, Link] = {}


class Arrow(msgspec.Struct, frozen=True):
    """An arrow from one box to another, by their places in the list; its words are plain ASCII."""

    source: int
    target: int
    words: str = ""
    is_dashed: bool = False


def write_mermaid(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """A flowchart in the language of Mermaid.

    Each label is an element of HTML, since some versions of Mermaid read other labels as Markdown.

    Raises:
        TooLargeForMermaidError: Mermaid would not draw it.
    """
    text = ["flowchart LR"]
    for at, box in enumerate(boxes):
        label = "<br>".join(map(_of_mermaid, box.words))
        begin, end = box.look.mermaid
        text.append(f'  n{at}{begin}"<div>{label}</div>"{end}')
    for arrow in arrows:
        line, words = "-.->" if arrow.is_dashed else "-->", f'|"{arrow.words}"|' if arrow.words else ""
        text.append(f"  n{arrow.source} {line}{words} n{arrow.target}")
    for at, box in enumerate(boxes):
        fill, border = box.colours
        width = ",stroke-width:3px" if box.is_about else ""
        text.append(f"  style n{at} fill:{fill},stroke:{border}{width}")
    flowchart = "\n".join(text) + "\n"
    if len(arrows) > MERMAID_ARROWS_MAX or len(flowchart) > MERMAID_LETTERS_MAX:
        raise TooLargeForMermaidError(
            f"Mermaid draws at most {MERMAID_ARROWS_MAX:,} arrows and {MERMAID_LETTERS_MAX:,} characters, "
            f"and this has {len(arrows):,} and {len(flowchart):,}; draw it in SVG or DOT, or ask for less"
        )
    return flowchart


def write_dot(boxes: Sequence[Box], arrows: Iterable[Arrow]) -> str:
    """A graph in Graphviz's language DOT."""
    text = [
        "digraph lineage {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
    ]
    for at, box in enumerate(boxes):
        label = "\\n".join(map(_of_dot, box.words))
        fill, border = box.colours
        shape = "" if box.look.dot == "box" else f', shape={box.look.dot}, style="filled"'
        width = ", penwidth=3" if box.is_about else ""
        text.append(f'  n{at} [label="{label}", fillcolor="{fill}", color="{border}"{shape}{width}];')
    for arrow in arrows:
        told = [f'label="{arrow.words}"'] * bool(arrow.words) + ["style=dashed"] * arrow.is_dashed
        looks = f" [{', '.join(told)}]" if told else ""
        text.append(f"  n{arrow.source} -> n{arrow.target}{looks};")
    return "\n".join([*text, "}"]) + "\n"


def write_graphml(
    name: str,
    nodes: Sequence[Mapping[str, str | float]],
    edges: Sequence[tuple[int, int, Mapping[str, str | float]]],
) -> str:
    """A graph in GraphML, with the data of each node and edge.

    It keeps to GraphML's schema, which some readers check, and to the names that TinkerPop takes for the
    types of nodes and edges, `labelV` and `labelE`. Data that are not there are left out.

    Args:
        name: of the graph, plain letters.
        nodes: the data of each node; those of one name have one type.
        edges: the places of two nodes in the list, and the data of the edge between them, under other names.
    """
    of_nodes = {key: type(value) for data in nodes for key, value in data.items()}
    of_edges = {key: type(value) for _, _, data in edges for key, value in data.items()}
    text = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
    ]
    for of, kinds in (("node", of_nodes), ("edge", of_edges)):
        for key, kind in kinds.items():
            text.append(f'  <key id="{key}" for="{of}" attr.name="{key}" attr.type="{_TYPES[kind]}"/>')
    text.append(f'  <graph id="{name}" edgedefault="directed">')
    text += [f'    <node id="n{at}">{_data(data)}</node>' for at, data in enumerate(nodes)]
    for at, (source, target, data) in enumerate(edges):
        text.append(f'    <edge id="e{at}" source="n{source}" target="n{target}">{_data(data)}</edge>')
    return "\n".join([*text, "  </graph>", "</graphml>"]) + "\n"


def _data(data: Mapping[str, str | float]) -> str:
    text = []
    for key, value in data.items():
        told = str(value).lower() if isinstance(value, bool) else xml_text(str(value))
        text.append(f'<data key="{key}">{escape(told, _CR)}</data>')
    return "".join(text)


def _of_mermaid(text: str) -> str:
    """A text as a part of a quoted label, in which ``#`` begins a character's number."""
    quoted = "".join(one if one.isalnum() or one in " .,:_-/()" else f"#{ord(one)};" for one in plain(text))
    return _READ_BY_MERMAID.sub(r"\g<0><wbr>", quoted)


def _of_dot(text: str) -> str:
    """A text as a part of a quoted label, in which a backslash and an ampersand begin names of characters."""
    names = {'"': '\\"', "\\": "\\\\", "&": "&amp;"}
    return "".join(names.get(one, one) for one in plain(text))


def shorten(text: str) -> str:
    """A text by its beginning and its end, if it is long."""
    begin, end = _LETTERS_KEPT
    return text if len(text) <= _LETTERS_MAX else f"{text[:begin]}…{text[-end:]}"


def plain(text: str) -> str:
    """A text on one line, without what controls a terminal or turns the order of letters around."""
    return "".join(one if one.isprintable() else " " for one in text)


def xml_text(text: str) -> str:
    """A text that XML can have: most control characters cannot be written there at all."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
