"""A source: a place where entries are stored, divided into parts that can be read one by one.

Packages register sources in the entry-point group ``waybill.sources``: a name for ``waybill rebuild --from``,
and a callable ``(places, settings) -> Source``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec

from waybill.transport.errors import NotFoundError, WaybillError
from waybill.transport.journal import Kind, event_in

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.transport.config import Settings

SOURCES_GROUP: Final = "waybill.sources"


class SourceError(WaybillError):
    """A source of stored events is unknown, cannot be reached, or contains something else."""


class SourceUnreachableError(SourceError):
    """A source cannot be read now; a rebuild from it stops, and the same command resumes it later."""


class SourceNotFoundError(SourceError, NotFoundError):
    """What a source is to be read from is not there, or was not given as the source takes it."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One stored entry.

    Attributes:
        at: its position within its part: a sequence number, a byte offset or a count; see `Source.place`.
        system_name: the name for records that have none; empty: the rebuild's own name.
    """

    at: int
    kind: Kind
    system_name: str
    body: bytes

    @property
    def event(self) -> Event | None:
        """The OpenLineage event in it; None if it contains none, or one that is unreadable."""
        return event_in(self.kind, self.body)


@runtime_checkable
class Source(Protocol):
    """Stored entries. A source can be pickled, so that several processes can each read a part."""

    def describe(self) -> str:
        """Describe the source in a few words that are always the same: they identify a rebuild to resume."""

    def parts(self) -> list[str]:
        """Name the parts that together contain everything stored now; they are read in any order.

        Raises:
            SourceError: the source does not exist.
        """

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The entries of one part, in batches that fit into memory; an entry may come twice.

        Raises:
            OSError: it cannot be read now.
            SourceUnreachableError: it cannot be reached now.
            SourceError: this part is damaged; a rebuild reports it and reads the others.
        """

    def place(self, part: str, at: int) -> str:
        """Describe where an entry is stored, for people."""


@runtime_checkable
class ReceiptSource(Source, Protocol):
    """A source that knows the receipts of its entries."""

    def receipt(self, part: str, at: int) -> str | None:
        """The receipt of an entry; None if it is not known."""


class OpenSource(Protocol):
    """The callable behind an entry point in the group ``waybill.sources``."""

    def __call__(self, places: Sequence[str], settings: Settings) -> Source:
        """Open the source at the user's places: paths, URLs, or none.

        Raises:
            SourceError: the source does not take these places.
        """


def open_source(name: str, places: Sequence[str], settings: Settings) -> Source:
    """Open a source by the name of its entry point.

    Raises:
        NotFoundError: there is no source with that name.
        SourceError: it does not take these places.
    """
    points = {point.name: point for point in entry_points(group=SOURCES_GROUP)}
    if name not in points:
        known = ", ".join(sorted(points))
        raise NotFoundError(f"{name!r} is not a source of stored events; give one of {known}")
    open_one: OpenSource = points[name].load()
    return open_one(places, settings)
