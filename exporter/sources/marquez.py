"""Marquez as a source, over HTTP; a part is a window of event time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.marquez import EventReader, MarquezReadError
from waybill.transport.config import check_url
from waybill.transport.journal import Kind

from .source import SourceNotFoundError, SourceUnreachableError, Stored

if TYPE_CHECKING:
    from waybill.transport.config import Settings

_PARTS_MAX: Final = 10_000


class MarquezSource(msgspec.Struct, frozen=True):
    """The run events of a Marquez, as Marquez re-serialises them.

    Attributes:
        part_events: how many events a window has on average.
    """

    url: str
    api_key: str | None = None
    part_events: int = 20_000
    open_reader: Callable[[str, str | None], EventReader] = EventReader

    def describe(self) -> str:
        """Name the URL."""
        return f"marquez {self.url}"

    def parts(self) -> list[str]:
        """Windows of event time as ``start-end`` in epoch microseconds, excluding the end."""
        with self._reader() as reader:
            extent = reader.extent_us()
        if extent is None:
            return []
        first_us, last_us, count = extent
        # The event's text may have more digits than the microseconds that the database rounds to.
        return cut_window(first_us - 1, last_us + 2, -(-count // self.part_events))

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The events of a window; some come twice."""
        start_us, end_us = map(int, part.split("-"))
        count = 0
        with self._reader() as reader:
            unreadable: list[int] = []
            for events in reader.read(start_us, end_us, unreadable.append):
                yield [Stored(at, Kind.OPENLINEAGE, "", event) for at, event in enumerate(events, count + 1)]
                count += len(events)
            # A rebuild counts and names what holds no event.
            yield [Stored(-time_us, Kind.OPENLINEAGE, "", b"") for time_us in unreadable]

    def place(self, part: str, at: int) -> str:
        """The number of the event within its window; the instant of one that Marquez cannot read itself."""
        if at < 0:
            instant = datetime.fromtimestamp(-at / 1_000_000, UTC).isoformat(timespec="microseconds")
            return f"Marquez at {self.url} cannot read what it has at {instant}"
        return f"event {at:,} of the window {part} (epoch microseconds) at {self.url}"

    @contextlib.contextmanager
    def _reader(self) -> Iterator[EventReader]:
        with contextlib.closing(self.open_reader(self.url, self.api_key)) as reader:
            try:
                yield reader
            except MarquezReadError as error:
                raise SourceUnreachableError(str(error)) from None


def open_marquez(places: Sequence[str], settings: Settings) -> MarquezSource:
    """The Marquez at the given URL, or at the URL in the settings."""
    url = places[0] if places else settings.marquez_url
    if url is None or len(places) > 1:
        raise SourceNotFoundError(
            "the source `marquez` takes one URL; give it, for example http://localhost:5000"
        )
    try:
        check_url(url)
    except ValueError as error:
        raise SourceNotFoundError(f"the source `marquez` cannot be read from {url!r}: {error}") from None
    return MarquezSource(url, settings.marquez_api_key)


def cut_window(start_us: int, end_us: int, count: int) -> list[str]:
    """Divide a window of time into consecutive ones, at least 1 and at most 10,000."""
    count = min(max(count, 1), _PARTS_MAX)
    edges = sorted({max(start_us, 0) + (end_us - max(start_us, 0)) * at // count for at in range(count + 1)})
    return [f"{start}-{end}" for start, end in itertools.pairwise(edges)]
