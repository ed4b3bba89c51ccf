"""A journey as boxes and arrows, and as data for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from .lines import FOLDED_FROM, Fold, Line, outline
from .wording import state_of, words_of
from .writing import COLOURS, Arrow, Box, Look, shorten, write_graphml

if TYPE_CHECKING:
    from ..file_table import JourneyFile
    from ..files import JourneyFiles

_LOOK: Final = Look(radius=6)


def boxes_of_journey(
    journey: JourneyFiles, folded_from: int | None = FOLDED_FROM
) -> tuple[list[Box], list[Arrow]]:
    """The boxes and arrows of a journey: a box for each file and each fold of `outline`."""
    places, arrows = places_of_lines(outline(journey, folded_from=folded_from))
    return [box_of(place, is_about=_is_about(place, journey)) for place in places], arrows


def places_of_lines(lines: Iterable[Line]) -> tuple[list[JourneyFile | Fold], list[Arrow]]:
    """The files and folds of some lines, each once, and the arrows between them."""
    found: list[JourneyFile | Fold] = []
    arrows: list[Arrow] = []
    places: dict[str, int] = {}
    for line in lines:
        is_file = not isinstance(line.of, Fold)
        place = places.get(line.of.did) if is_file else None
        if place is None:
            place = len(found)
            found.append(line.of)
            if is_file:
                places[line.of.did] = place
        if line.parent is not None:
            arrows.append(Arrow(places[line.parent], place))
    return found, arrows


def box_of(of: JourneyFile | Fold, *, is_about: bool = False) -> Box:
    """The box of a file, or of a fold."""
    return Box([shorten(words) for words in words_of(of)], _LOOK, COLOURS[state_of(of)], is_about)


def _is_about(of: JourneyFile | Fold, journey: JourneyFiles) -> bool:
    return not isinstance(of, Fold) and of.did == journey.did


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
