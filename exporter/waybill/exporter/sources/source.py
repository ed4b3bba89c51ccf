"""A source: a place where entries are stored, cut into parts that can be read one by one.

Packages add sources under the entry-point group ``waybill.sources``: a name, as ``waybill rebuild --from``
takes it, and a callable ``(places, settings) -> Source``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from waybill.transport.errors import WaybillError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.transport.config import Settings

SOURCES_GROUP: Final = "waybill.sources"


class SourceError(WaybillError):
    """A source of stored events is unknown, cannot be reached, or holds something else."""


class SourceUnreachableError(SourceError):
    """A source cannot be read now; a rebuild from it stops, and the same order resumes it later."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One stored entry.

    Attributes:
        at: where it is within its part: a sequence number, a byte offset, a count; see `Source.place`.
        system_name: the name stamped on records that carry none; empty: the rebuild's own.
    """

    at: int
    kind: Kind
    system_name: str
    body: bytes


@runtime_checkable
class Source(Protocol):
    """Stored entries. A source can be pickled: several processes read it, a part each."""

    def describe(self) -> str:
        """What is read, in a few words that are the same each time: a rebuild is resumed by them."""

    def parts(self) -> list[str]:
        """Name the parts that together hold everything stored now; they are read in any order.

        Raises:
            SourceError: what is to be read is not there.
        """

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The entries of one part, in batches that fit into memory; an entry may come twice.

        Raises:
            OSError: it cannot be read now.
            SourceUnreachableError: it cannot be reached now.
            SourceError: this part is damaged; a rebuild says so and reads the others.
        """

    def place(self, part: str, at: int) -> str:
        """Where an entry is stored, in words for a person."""


class OpenSource(Protocol):
    """The callable behind an entry point of the group ``waybill.sources``."""

    def __call__(self, places: Sequence[str], settings: Settings) -> Source:
        """Open the source at the places that the user gave: paths, URLs, or none.

        Raises:
            SourceError: the source does not take these places.
        """


def open_source(name: str, places: Sequence[str], settings: Settings) -> Source:
    """Open a source by the name of its entry point.

    Raises:
        SourceError: no source has that name, or it does not take these places.
    """
    points = {point.name: point for point in entry_points(group=SOURCES_GROUP)}
    if name not in points:
        known = ", ".join(sorted(points))
        raise SourceError(f"{name!r} is no source of stored events; give one of {known}")
    open_one: OpenSource = points[name].load()
    return open_one(places, settings)
