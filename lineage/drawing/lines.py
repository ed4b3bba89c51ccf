"""A journey line by line: from its origins down, with wide splits folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ..file_table import Ends, JourneyFile
    from ..files import JourneyFiles

_T = TypeVar("_T")

FOLDED_FROM: Final = 13
"""A file with this many children or more has them folded."""


class Fold(NamedTuple):
    """Children of one file in one line.

    Attributes:
        did: the parent's.
        files: how many children these are.
        ends: how many of their paths ended in a state and, if they left, through a sink, the most first.
        open_files: how many have begun and not ended.
        descendants: how many files came from these.
    """

    did: str
    files: int
    ends: Ends
    open_files: int
    descendants: int


class Line(NamedTuple):
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


def outline(
    journey: JourneyFiles, *, folded_from: int | None = FOLDED_FROM, shown: Mapping[str, int] | None = None
) -> Iterator[Line]:
    """The lines of a journey.

    Args:
        journey: what to draw.
        folded_from: a file with this many children or more has those folded that do not lead to the file
            that the journey is about; None: nothing is folded.
        shown: by did, how many of a file's children are not folded all the same, the first of them.
    """
    shown = shown or {}
    kept = {journey.did, *(file.did for file in journey.ancestors())}
    seen: set[str] = set()

    def below(of: JourneyFile | Fold) -> Sequence[JourneyFile | Fold]:
        if isinstance(of, Fold) or of.did in seen:
            return []
        seen.add(of.did)
        is_folded = folded_from is not None and len(of.children) >= folded_from
        wanted = kept.union(of.children[: shown.get(of.did, 0)])
        files = [journey.files[did] for did in of.children if not is_folded or did in wanted]
        files.sort(key=lambda file: file.did in seen)  # A way back is one line, and nothing hangs on it.
        is_rest = len(files) < len(of.children)
        return [*files, _fold(journey, of, wanted)] if is_rest else files

    origins: list[JourneyFile | Fold] = [*journey.origins()]
    for of, parent, is_last in branches(origins, below):
        is_repeat = of.did in seen and not isinstance(of, Fold)
        yield Line(of, None if parent is None else parent.did, is_last, is_repeat)


def branches(
    roots: Sequence[_T], below: Callable[[_T], Sequence[_T]]
) -> Iterator[tuple[_T, _T | None, tuple[bool, ...]]]:
    """The items of a tree in the order of its lines, each with the one that it hangs on.

    Gives with it, for each one that it hangs on but the first, and for itself, whether it is the last there.

    Args:
        roots: what hangs on nothing.
        below: what hangs on an item; it is asked after the item was given.
    """
    waiting: list[tuple[_T, _T | None, tuple[bool, ...]]] = []
    waiting += [(root, None, ()) for root in reversed(roots)]
    while waiting:
        one, parent, is_last = waiting.pop()
        yield one, parent, is_last
        after = below(one)
        waiting += [(far, one, (*is_last, not at)) for at, far in enumerate(reversed(after))]


def _fold(journey: JourneyFiles, parent: JourneyFile, kept: set[str]) -> Fold:
    files, ends, open_files, descendants = journey.files.told_of_children(parent.did, kept)
    in_order = sorted(ends.items(), key=lambda end: (-end[1], end[0][0], end[0][1] or ""))
    return Fold(parent.did, files, dict(in_order), open_files, descendants)
