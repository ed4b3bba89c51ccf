"""A journey as boxes and arrows, and as data for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .lines import FOLDED_FROM, Fold, outline
from .wording import state_of, words_of
from .writing import COLOURS, Arrow, Box, Look, write_graphml

if TYPE_CHECKING:
    from ..files import JourneyFiles

_LOOK: Final = Look(radius=6)


def boxes_of_journey(
    journey: JourneyFiles, *, folded_from: int | None = FOLDED_FROM
) -> tuple[list[Box], list[Arrow]]:
    """The boxes and arrows of a journey: a box for each file and each fold of `outline`."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    places: dict[str, int] = {}
    for line in outline(journey, folded_from=folded_from):
        is_file = not isinstance(line.of, Fold)
        place = places.get(line.of.did) if is_file else None
        if place is None:
            place = len(boxes)
            is_about = is_file and line.of.did == journey.did
            boxes.append(Box(words_of(line.of), _LOOK, COLOURS[state_of(line.of)], is_about))
            if is_file:
                places[line.of.did] = place
        if line.parent is not None:
            arrows.append(Arrow(places[line.parent], place))
    return boxes, arrows


def graphml_of_journey(journey: JourneyFiles) -> str:
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
