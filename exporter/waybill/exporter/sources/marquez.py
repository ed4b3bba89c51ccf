"""Marquez as a source, over HTTP; a part is a window of event time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.sources.source import SourceError, SourceUnreachableError, Stored
from waybill.marquez import EventReader, MarquezReadError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.transport.config import Settings

_PARTS_MAX: Final = 10_000


class MarquezSource(msgspec.Struct, frozen=True):
    """The run events of a Marquez, as it re-serialises them.

    Attributes:
        part_events: how many events a window holds on average.
    """

    url: str
    api_key: str | None = None
    part_events: int = 20_000
    open_reader: Callable[[str, str | None], EventReader] = EventReader

    def describe(self) -> str:
        """Name the URL."""
        return f"marquez {self.url}"

    def parts(self) -> list[str]:
        """Windows of event time as ``start-end`` in epoch microseconds, the end excluded."""
        with self._reader() as reader:
            extent = reader.extent_us()
        if extent is None:
            return []
        first_us, last_us, count = extent
        # The event's text may have more digits than the microseconds to which the database rounds.
        return cut_window(first_us - 1, last_us + 2, -(-count // self.part_events))

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The events of a window; some come twice."""
        start_us, end_us = map(int, part.split("-"))
        count = 0
        with self._reader() as reader:
            for events in reader.read(start_us, end_us):
                yield [Stored(at, Kind.OPENLINEAGE, "", event) for at, event in enumerate(events, count + 1)]
                count += len(events)

    def place(self, part: str, at: int) -> str:
        """The number of the event within its window."""
        return f"event {at:,} of the window {part} (epoch microseconds) at {self.url}"

    @contextlib.contextmanager
    def _reader(self) -> Iterator[EventReader]:
        with contextlib.closing(self.open_reader(self.url, self.api_key)) as reader:
            try:
                yield reader
            except MarquezReadError as error:
                raise SourceUnreachableError(str(error)) from None


def open_marquez(places: Sequence[str], settings: Settings) -> MarquezSource:
    """The Marquez at the given URL, or else at the one in the settings."""
    url = places[0] if places else settings.marquez_url
    if url is None or len(places) > 1:
        raise SourceError("the source `marquez` takes one URL, as http://localhost:5000; give it")
    return MarquezSource(url, settings.marquez_api_key)


def cut_window(start_us: int, end_us: int, count: int) -> list[str]:
    """Cut a window of time into so many that follow each other, at least 1 and at most 10,000."""
    count = min(max(count, 1), _PARTS_MAX)
    edges = sorted({max(start_us, 0) + (end_us - max(start_us, 0)) * at // count for at in range(count + 1)})
    return [f"{start}-{end}" for start, end in itertools.pairwise(edges)]
