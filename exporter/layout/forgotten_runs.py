"""The ids of the runs that the projection has forgotten, at a few bytes each.

Each id sets 16 bits of one row, so a look-up reads only one row: a blocked Bloom filter (Putze, Sanders,
Singler: "Cache-, Hash- and Space-Efficient Bloom Filters", 2007). A full level gets no more ids. The next
level is as large as all earlier ones together, so there are few levels (Almeida et al.: "Scalable Bloom
Filters", 2007).

A full level takes 4 bytes per id, and has about one false positive in two million. The rate has to be that
low: a batch looks up thousands of ids, and each false positive costs a search of every archived file.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from typing import Final

import msgspec

# State keys.
LEVELS: Final = "forgotten"  # of the levels
ROW: Final = "forgotten:"  # of the rows: number of the level, then of the row

_ROW_BYTES: Final = 512
_ROW_IDS: Final = 128
_FIRST_ROWS: Final = 2_048
_ASKED_AT_ONCE: Final = 1_000
_PLACES: Final = struct.Struct("<Q16H")  # the number of the row and 16 bits in it


class _Level(msgspec.Struct, array_like=True):
    """One level of the filter.

    Attributes:
        number: distinguishes its rows from those of other levels.
        rows: how many rows it has; rows without ids are not stored.
        ids: how many ids it contains.
        until_ms: all its runs got their last event before this instant, in epoch milliseconds of received
            time; 0 while it still gets ids.
    """

    number: int
    rows: int
    ids: int = 0
    until_ms: int = 0

    def key_of(self, row_number: int) -> str:
        """The state key of the row for ids with this row number."""
        return f"{ROW}{self.number}:{row_number % self.rows}"


class ForgottenRuns:
    """A set with rare false positives: every added id is found, and hardly any other.

    Args:
        state_of: reads the stored state of some keys; missing keys are left out.
        archive_began_ms: the earliest possible arrival of an archived entry, in epoch milliseconds; None if
            nothing is archived. Runs whose events all came earlier are not worth remembering.
    """

    def __init__(
        self,
        state_of: Callable[[Collection[str]], Mapping[str, bytes]],
        archive_began_ms: Callable[[], int | None],
    ) -> None:
        self._state_of = state_of
        self._archive_began_ms = archive_began_ms
        stored = state_of([LEVELS]).get(LEVELS)
        self._levels = [] if stored is None else _DECODER.decode(stored)

    def among(self, ids: Collection[str]) -> set[str]:
        """The ids that may have been added. The others were not added, or their level was dropped."""
        found: set[str] = set()
        asked = list(ids) if self._levels else []
        for start in range(0, len(asked), _ASKED_AT_ONCE):
            some = asked[start : start + _ASKED_AT_ONCE]
            places = [_places_of(run_id) for run_id in some]
            rows = self._state_of([level.key_of(place[0]) for level in self._levels for place in places])
            for run_id, (row_number, *bits) in zip(some, places, strict=True):
                for level in self._levels:
                    row = rows.get(level.key_of(row_number))
                    if row is not None and all(row[bit >> 7] >> (bit & 7) & 1 for bit in bits):
                        found.add(run_id)
                        break
        return found

    def add(self, ids: Collection[str], now_ms: int, put: dict[str, bytes], delete: list[str]) -> None:
        """Add the ids of runs that got their last events before `now_ms`, by received time.

        The change of state must be committed together with the change that forgets the runs.
        """
        bits_of: defaultdict[str, list[int]] = defaultdict(list)
        for run_id in ids:
            level = self._open_level(now_ms, delete)
            level.ids += 1
            row_number, *bits = _places_of(run_id)
            bits_of[level.key_of(row_number)] += bits
        stored = self._state_of(bits_of)
        for key, bits in bits_of.items():
            row = bytearray(stored.get(key, _ROW_BYTES))
            for bit in bits:
                row[bit >> 7] |= 1 << (bit & 7)
            put[key] = bytes(row)
        if bits_of:
            put[LEVELS] = msgspec.msgpack.encode(self._levels)

    def _open_level(self, now_ms: int, delete: list[str]) -> _Level:
        """The level for the next id."""
        last = self._levels[-1] if self._levels else None
        if last is not None and last.ids < last.rows * _ROW_IDS:
            return last
        if last is not None:
            last.until_ms = now_ms
            self._drop_outdated(delete)
        number = 0 if last is None else last.number + 1
        level = _Level(number, max(sum(one.rows for one in self._levels), _FIRST_ROWS))
        self._levels.append(level)
        return level

    def _drop_outdated(self, delete: list[str]) -> None:
        began_ms = self._archive_began_ms()
        while began_ms is not None and self._levels and self._levels[0].until_ms <= began_ms:
            level = self._levels.pop(0)
            delete.extend(level.key_of(row) for row in range(level.rows))


def _places_of(run_id: str) -> tuple[int, ...]:
    """An id's row number, and 16 numbers, of which 12 bits each select a byte of the row and a bit in it."""
    return _PLACES.unpack(blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=_PLACES.size).digest())


_DECODER: Final = msgspec.msgpack.Decoder(list[_Level])
