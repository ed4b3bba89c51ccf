"""A journey line by line: from its origins down, with wide splits folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from waybill.facets import FinalState
from waybill.lineage.files import JourneyFile, JourneyFiles

FOLDED_FROM: Final = 13
"""A file with this many children or more has them folded."""


class End(msgspec.Struct, frozen=True):
    """How many paths of the files of a fold ended in a state and, if they left, through a sink."""

    final_state: FinalState
    data_sink: str | None
    paths: int


class Fold(msgspec.Struct, frozen=True):
    """Children of one file in one line.

    Attributes:
        did: the parent's.
        files: how many children these are.
        ends: how they ended, the most frequent first.
        descendants: how many files came from these.
    """

    did: str
    files: int
    ends: tuple[End, ...]
    descendants: int


class Line(msgspec.Struct, frozen=True):
    """One line: a file, or many.

    Attributes:
        of: the file, or the fold.
        parent: the did of the file of the line that it hangs on; None: it begins the journey.
        is_last: for each line that it hangs on, from the first on, and for itself: whether nothing more
            hangs on the same.
        is_repeat: whether the file was there before, with all that hangs on it.
    """

    of: JourneyFile | Fold
    parent: str | None
    is_last: tuple[bool, ...]
    is_repeat: bool


def outline(journey: JourneyFiles, *, folded_from: int | None = FOLDED_FROM) -> Iterator[Line]:
    """The lines of a journey.

    Args:
        journey: what to draw.
        folded_from: a file with this many children or more has those folded that do not lead to the file
            that the journey is about; None: nothing is folded.
    """
    kept = {journey.did, *(file.did for file in journey.ancestors())}
    seen: set[str] = set()
    waiting: list[tuple[JourneyFile | Fold, str | None, tuple[bool, ...]]]
    waiting = [(origin, None, ()) for origin in reversed(journey.origins())]
    while waiting:
        of, parent, is_last = waiting.pop()
        yield Line(of, parent, is_last, of.did in seen and isinstance(of, JourneyFile))
        if isinstance(of, Fold) or of.did in seen:
            continue
        seen.add(of.did)
        below: list[JourneyFile | Fold] = [journey.files[did] for did in of.children if did in journey.files]
        if folded_from is not None and len(below) >= folded_from:
            shown = [one for one in below if one.did in kept]
            below = [*shown, _fold(journey, of, kept)]
        places = [(one, of.did, (*is_last, one is below[-1])) for one in below]
        waiting += reversed(places)


def _fold(journey: JourneyFiles, parent: JourneyFile, kept: set[str]) -> Fold:
    files = [journey.files[did] for did in parent.children if did in journey.files and did not in kept]
    ends = Counter((one.final_state, one.data_sink) for file in files for one in file.records)
    folded = {file.did for file in files}
    waiting, below = list(folded), set[str]()
    while waiting:
        for did in journey.files[waiting.pop()].children:
            if did in journey.files and did not in below and did not in folded:
                below.add(did)
                waiting.append(did)
    told = tuple(End(state, sink, paths) for (state, sink), paths in ends.most_common())
    return Fold(parent.did, len(files), told, len(below))
