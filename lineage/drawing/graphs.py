"""A journey as text for other programs: Mermaid, Graphviz's DOT, GraphML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from ..file_table import JourneyFile
from .lines import Fold, Line
from .wording import state_of, words_of
from .writing import COLOURS, Arrow, Box, Look, write_dot, write_graphml, write_mermaid

if TYPE_CHECKING:
    from ..files import JourneyFiles

_LOOK: Final = Look()


def mermaid(lines: Iterable[Line], *, about: str) -> str:
    """A flowchart in the language of Mermaid; the file that the journey is about has a thick border.

    Args:
        lines: of `outline`.
        about: the did of that file.
    """
    return write_mermaid(*_boxes(lines, about))


def dot(lines: Iterable[Line], *, about: str) -> str:
    """A graph in Graphviz's language DOT; for the arguments see `mermaid`."""
    return write_dot("journey", *_boxes(lines, about))


def graphml(journey: JourneyFiles) -> str:
    """The whole journey in GraphML, with nothing folded: each file is a node with its records as JSON."""
    nodes = [
        {
            "labelV": "file",
            "label": file.filename or file.did,
            "did": file.did,
            "filename": file.filename or "",
            "final_state": str(state_of(file) or ""),
            "records": msgspec.json.encode(file.records).decode(),
            "open": "" if file.open is None else msgspec.json.encode(file.open).decode(),
        }
        for file in journey.files.values()
    ]
    places = {did: at for at, did in enumerate(journey.files)}
    edges = [(places[parent], places[child], {"labelE": "parent"}) for parent, child in journey.edges()]
    return write_graphml("journey", nodes, edges)


def _boxes(lines: Iterable[Line], about: str) -> tuple[list[Box], list[Arrow]]:
    """The places of a picture, and the arrows between them."""
    boxes: list[Box] = []
    arrows = []
    places: dict[str, int] = {}
    for line in lines:
        is_file = isinstance(line.of, JourneyFile)
        place = places.get(line.of.did) if is_file else None
        if place is None:
            place = len(boxes)
            is_about = line.of.did == about and not isinstance(line.of, Fold)
            boxes.append(Box(words_of(line.of), _LOOK, COLOURS[state_of(line.of)], is_about))
            if is_file:
                places[line.of.did] = place
        if line.parent is not None:
            arrows.append(Arrow(places[line.parent], place))
    return boxes, arrows
