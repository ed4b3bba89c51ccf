"""A journey line by line: from its origins down, with wide splits folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import FinalState

from ..file_table import JourneyFile

if TYPE_CHECKING:
    from ..files import JourneyFiles

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
        open_files: how many have begun and not ended.
        descendants: how many files came from these.
    """

    did: str
    files: int
    ends: tuple[End, ...]
    open_files: int
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
        is_folded = folded_from is not None and len(of.children) >= folded_from
        below: list[JourneyFile | Fold] = [
            journey.files[did] for did in of.children if not is_folded or did in kept
        ]
        below.sort(key=lambda file: file.did in seen)  # A way back is one line, and nothing hangs on it.
        if is_folded:
            below.append(_fold(journey, of, kept))
        places = [(one, of.did, (*is_last, one is below[-1])) for one in below]
        waiting += reversed(places)


def _fold(journey: JourneyFiles, parent: JourneyFile, kept: set[str]) -> Fold:
    files, ends, open_files, descendants = journey.files.told_of_children(parent.did, kept)
    told = (End(state, sink, paths) for (state, sink), paths in ends.items())
    in_order = sorted(told, key=lambda end: (-end.paths, end.final_state, end.data_sink or ""))
    return Fold(parent.did, files, tuple(in_order), open_files, descendants)
