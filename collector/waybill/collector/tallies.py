"""Tallies: what the workers of one collector have counted, each in a file of its own, so that any can add up.

A worker's file is written about once a second, so a worker that is killed loses what it counted in its last
second, and the one that takes its place goes on from there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.collector.metrics import Metrics, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

_DECODER = msgspec.msgpack.Decoder(Tally)


class Tallies:
    """The figures of all workers, as one of them sees them.

    Args:
        folder: where their files are; it goes with the collector.
        place: which of the workers this is.
    """

    def __init__(self, folder: Path, place: int) -> None:
        self._folder = folder
        self._own = folder / f"{place}.tally"

    def take_up(self, metrics: Metrics) -> None:
        """Go on from what an earlier worker in this place has counted."""
        for tally in self._read(self._own):
            metrics.add(tally)

    def keep(self, metrics: Metrics) -> None:
        """Let the others know what was counted here.

        Raises:
            OSError: the file cannot be written.
        """
        fresh = self._own.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(metrics.tally()))
        fresh.replace(self._own)

    def total(self, metrics: Metrics) -> Metrics:
        """What all have counted; of this worker what it has counted by now."""
        total = Metrics()
        total.add(metrics.tally())
        for path in self._folder.glob("*.tally"):
            if path != self._own:
                for tally in self._read(path):
                    total.add(tally)
        return total

    @staticmethod
    def _read(path: Path) -> Iterator[Tally]:
        with contextlib.suppress(FileNotFoundError):
            yield _DECODER.decode(path.read_bytes())
