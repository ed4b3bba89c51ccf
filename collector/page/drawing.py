"""Drawings that open at one hop and unfold: what is drawn is in the address, so each state is a link.

`unfold` is a list of keys with commas between them. The key of a file or a node shows its neighbours; that of
a group shows some more of those in it, each time that it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from waybill.lineage.drawing import Arrow, Box, Link, write_svg

from .rendering import link

KEYS_MAX: Final = 200
"""So many keys count."""


class Drawing(msgspec.Struct, frozen=True):
    """Boxes and arrows, as `.svg` draws them."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]

    def svg(self, title: str, *, is_alone: bool) -> str:
        """The drawing; with `is_alone` without links, which would lead nowhere."""
        boxes = [msgspec.structs.replace(one, links={}) if is_alone else one for one in self.boxes]
        return write_svg(boxes, self.arrows, title=title)

    def neighbours(self) -> Iterator[Neighbour]:
        """All boxes but the one that the drawing is about, in words, and how each is joined to others."""
        about = next((at for at, box in enumerate(self.boxes) if box.is_about), 0)
        before = {arrow.source for arrow in self.arrows if arrow.target == about}
        after = {arrow.target for arrow in self.arrows if arrow.source == about}
        for at, box in enumerate(self.boxes):
            if at != about:
                way = "before" if at in before else "after" if at in after else "beyond"
                yield Neighbour(way, [(words, box.links.get(line)) for line, words in enumerate(box.words)])


class Neighbour(NamedTuple):
    """A box in words: whether it is ``before``, ``after`` or ``beyond``, and its lines with their links."""

    way: str
    lines: list[tuple[str, Link | None]]


class Unfolding:
    """What of a drawing is unfolded, and the addresses of the same drawing with more or less.

    Args:
        path: that of the view.
        params: its parameters without `unfold`.
        text: the parameter `unfold`.
    """

    def __init__(self, path: str, params: Mapping[str, str], text: str) -> None:
        self.keys = [key for key in text.split(",") if key][:KEYS_MAX]
        self._path = path
        self._params = params

    def more(self, box: Box, key: str, words: str) -> Box:
        """A box with one more line, which unfolds it."""
        return self._with(box, [*self.keys, key], words, f"unfold {words}")

    def some(self, box: Box, key: str) -> Box:
        """The box of a group, with one more line, which shows some of those in it."""
        return self.more(box, key, "+ show some of them")

    def around(self, box: Box, key: str, href: str, beyond: int) -> Box:
        """The box of a neighbour, which leads to its page; one more line unfolds it, or folds it again."""
        box = msgspec.structs.replace(box, links={**box.links, 0: Link(href, ", ".join(box.words))})
        if key in self.keys:
            return self._with(box, [one for one in self.keys if one != key], "fold again", "fold again")
        return self.more(box, key, f"+ {beyond:,} more") if beyond else box

    def _with(self, box: Box, keys: Sequence[str], words: str, what: str) -> Box:
        href = link(self._path, self._params, unfold=",".join(keys))
        last = Link(href, f"{what}: {box.words[0]}", is_within=True)
        return msgspec.structs.replace(
            box, words=[*box.words, words], links={**box.links, len(box.words): last}
        )
