"""The covers of a compacted file: by node, the journal ranges whose records it holds.

Kept in the Parquet footer under `KEY` as JSON: by node, a list of ``[first, last]``, both inclusive,
ascending and coalesced. With it a reader skips raw files that are compacted already, and an interrupted
compaction knows how far it came. The archive notes what it has filed in the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from ..names import RawName

KEY: Final = b"waybill.covers"


class Covers(msgspec.Struct, frozen=True):
    """The ranges of any number of nodes."""

    ranges: Mapping[str, tuple[tuple[int, int], ...]] = {}

    @classmethod
    def read(cls, metadata: Mapping[bytes, bytes] | None) -> Covers:
        """From a footer's key-value metadata, empty without the key; raises `ValueError` if unreadable."""
        return cls.decode((metadata or {}).get(KEY, b"{}"))

    @classmethod
    def decode(cls, encoded: bytes) -> Covers:
        """From what `encode` gave; raises `ValueError` if it is unreadable."""
        return cls(msgspec.json.decode(encoded, type=dict[str, tuple[tuple[int, int], ...]]))

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self.ranges, order="sorted")

    def metadata(self) -> dict[bytes, bytes]:
        """For the key-value metadata of a Parquet footer."""
        return {KEY: self.encode()}

    def has(self, raw: RawName) -> bool:
        """Whether all of a raw file's range is covered."""
        return any(first <= raw.first and raw.last <= last for first, last in self.ranges.get(raw.node, ()))

    def uniting(self, other: Covers) -> Covers:
        """These ranges and those of the other."""
        nodes = sorted({*self.ranges, *other.ranges})
        return Covers(
            {node: _coalesce([*self.ranges.get(node, ()), *other.ranges.get(node, ())]) for node in nodes}
        )

    def adding(self, raws: Iterable[RawName]) -> Covers:
        """These ranges and those of the raw files."""
        ranges = {node: list(spans) for node, spans in self.ranges.items()}
        for raw in raws:
            ranges.setdefault(raw.node, []).append((raw.first, raw.last))
        return Covers({node: _coalesce(spans) for node, spans in sorted(ranges.items())})

    def minus(self, other: Covers) -> Covers:
        """These ranges without what is in those of the other."""
        left = {
            node: tuple(_without(spans, other.ranges.get(node, ()))) for node, spans in self.ranges.items()
        }
        return Covers({node: spans for node, spans in left.items() if spans})


def _without(spans: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    gone = sorted(taken)
    for begin, end in spans:
        first = begin
        for taken_first, taken_last in gone:
            if taken_last < first or taken_first > end:
                continue
            if taken_first > first:
                yield first, taken_first - 1
            first = taken_last + 1
        if first <= end:
            yield first, end


def _coalesce(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)
