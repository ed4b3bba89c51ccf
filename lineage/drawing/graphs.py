"""A journey as text for other programs: Mermaid, Graphviz's DOT, GraphML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

import msgspec

from ..file_table import JourneyFile
from .lines import Fold, Line
from .wording import state_of, words_of

if TYPE_CHECKING:
    from ..files import JourneyFiles

COLOURS: Final = {
    "COMPLETE": ("#e6f4ea", "#1e7e34"),
    "ERROR": ("#fdecea", "#b3261e"),
    "FILTERED": ("#fff8e1", "#8a6d00"),
    "CANCELLED": ("#fff8e1", "#8a6d00"),
    "SPLIT": ("#e8f0fe", "#1a56b0"),
    None: ("#f1f3f4", "#5f6368"),
}
"""For each state, the colours of a box and of its border."""

_KEYS: Final = ("did", "filename", "final_state", "records", "open")
"""The data of a node in GraphML."""

_CR: Final = {"\r": "&#13;"}
"""A parser of XML reads a carriage return that is written as it is as the end of a line."""

_READ_BY_MERMAID: Final = re.compile(":(?=fa-)|#36;(?=#36;)|ﬂ|#182;(?=ß)")
"""What Mermaid takes for an icon, a formula or one of its own placeholders, even within HTML."""

_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def mermaid(lines: Iterable[Line], *, about: str) -> str:
    """A flowchart in the language of Mermaid; the file that the journey is about has a thick border.

    Each label is an element of HTML, since some versions of Mermaid read other labels as Markdown.

    Args:
        lines: of `outline`.
        about: the did of that file.
    """
    nodes, edges = _graph(lines)
    text = ["flowchart LR"]
    for name, of in nodes.items():
        label = "<br>".join(map(_of_mermaid, words_of(of)))
        text.append(f'  {name}["<div>{label}</div>"]')
    text += [f"  {parent} --> {child}" for parent, child in edges]
    for name, of in nodes.items():
        fill, border = COLOURS[state_of(of)]
        width = ",stroke-width:3px" if of.did == about and not isinstance(of, Fold) else ""
        text.append(f"  style {name} fill:{fill},stroke:{border}{width}")
    return "\n".join(text) + "\n"


def dot(lines: Iterable[Line], *, about: str) -> str:
    """A graph in Graphviz's language DOT; for the arguments see `mermaid`."""
    nodes, edges = _graph(lines)
    text = [
        "digraph journey {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
    ]
    for name, of in nodes.items():
        label = "\\n".join(map(_of_dot, words_of(of)))
        fill, border = COLOURS[state_of(of)]
        width = ", penwidth=3" if of.did == about and not isinstance(of, Fold) else ""
        text.append(f'  {name} [label="{label}", fillcolor="{fill}", color="{border}"{width}];')
    text += [f"  {parent} -> {child};" for parent, child in edges]
    return "\n".join([*text, "}"]) + "\n"


def graphml(journey: JourneyFiles) -> str:
    """The whole journey in GraphML, with nothing folded: each file is a node with its records as JSON."""
    text = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(f'  <key id="{key}" for="node" attr.name="{key}" attr.type="string"/>' for key in _KEYS),
        '  <graph id="journey" edgedefault="directed">',
    ]
    ids = {did: f"n{at}" for at, did in enumerate(journey.files)}
    for file in journey.files.values():
        records = msgspec.json.encode(file.records).decode()
        begun = "" if file.open is None else msgspec.json.encode(file.open).decode()
        values = (file.did, file.filename or "", state_of(file) or "", records, begun)
        told = zip(_KEYS, values, strict=True)
        data = "".join(f'<data key="{key}">{escape(xml_text(value), _CR)}</data>' for key, value in told)
        text.append(f'    <node id="{ids[file.did]}">{data}</node>')
    text += [f'    <edge source="{ids[parent]}" target="{ids[child]}"/>' for parent, child in journey.edges()]
    return "\n".join([*text, "  </graph>", "</graphml>"]) + "\n"


def _graph(lines: Iterable[Line]) -> tuple[dict[str, JourneyFile | Fold], list[tuple[str, str]]]:
    """The places of a picture by a short name, and the edges between these names."""
    nodes: dict[str, JourneyFile | Fold] = {}
    names: dict[str, str] = {}
    edges = []
    for line in lines:
        is_file = isinstance(line.of, JourneyFile)
        name = names.get(line.of.did) if is_file else None
        if name is None:
            name = f"n{len(nodes)}"
            nodes[name] = line.of
            if is_file:
                names[line.of.did] = name
        if line.parent is not None:
            edges.append((names[line.parent], name))
    return nodes, edges


def _of_mermaid(text: str) -> str:
    """A text as a part of a quoted label, in which ``#`` begins a character's number."""
    quoted = "".join(
        one if one.isalnum() or one in " .,:_-/()" else f"#{ord(one)};" if one.isprintable() else " "
        for one in text
    )
    return _READ_BY_MERMAID.sub(r"\g<0><wbr>", quoted)


def _of_dot(text: str) -> str:
    """A text as a part of a quoted label, in which a backslash and an ampersand begin names of characters."""
    names = {'"': '\\"', "\\": "\\\\", "&": "&amp;"}
    return "".join(names.get(one, one) if one.isprintable() else " " for one in text)


def xml_text(text: str) -> str:
    """A text that XML can have: most control characters cannot be written there at all."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
