"""A run: keys in order, in a file that is mapped into memory.

    magic                                             1
    the count of keys                                 1
    the bits of a bucket's number                     1
    the XXH3 of the two tables                        1
    the XXH3 of the numbers before                    1
    the end of each bucket, as a count of keys        2 ** bits
    the XXH3 of each bucket's keys                    2 ** bits
    the keys                                          their count

All are numbers of 64 bits in the machine's own order of bytes; a file from another kind of machine has
another magic. A bucket has the keys that begin with the same bits. Keys are hashes, so buckets are about
equally large, and a look-up reads one of them. It is checked whenever it is read, so damage is noticed where
it matters.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import xxhash

from .keys import NUMBERS
from .sealing import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

_MAGIC: Final = 0x57424B4559533031  # WBKEYS01
_HEADER: Final = struct.Struct("=5Q")
_BUCKET_KEYS: Final = 256
_KEY_BYTES: Final = 8


def encode_run(keys: pa.UInt64Array) -> bytes:
    """Keys in order, each once, as the bytes of a run."""
    count = len(keys)
    numbers = memoryview(keys.buffers()[1]).cast("Q")[keys.offset : keys.offset + count]
    bits = max(count // _BUCKET_KEYS, 1).bit_length() - 1
    ends = [bisect_left(numbers, bucket << (64 - bits)) for bucket in range(1, 1 << bits)] + [count]
    sums, begin = [], 0
    for end in ends:
        sums.append(_sum(numbers[begin:end]))
        begin = end
    tables = struct.pack(f"={2 * len(ends)}Q", *ends, *sums)
    facts = (_MAGIC, count, bits, _sum(tables))
    header = _HEADER.pack(*facts, _sum(struct.pack("=4Q", *facts)))
    return b"".join((header, tables, numbers))


def _sum(data: bytes | memoryview) -> int:
    return xxhash.xxh3_64_intdigest(data)


class Run:
    """An open run.

    Raises:
        DamagedError: the file is not a whole run.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            try:
                self._map = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError:
                raise DamagedError(path) from None
        if len(self._map) < _HEADER.size:
            raise DamagedError(path)
        *facts, own = _HEADER.unpack(self._map[: _HEADER.size])
        magic, count, bits, tables = facts
        if magic != _MAGIC or own != _sum(struct.pack("=4Q", *facts)):
            raise DamagedError(path)
        buckets = 1 << bits
        begin = _HEADER.size + 2 * buckets * _KEY_BYTES
        if len(self._map) != begin + count * _KEY_BYTES or _sum(self._map[_HEADER.size : begin]) != tables:
            raise DamagedError(path)
        ends_and_sums = self._map[_HEADER.size : begin].cast("Q")
        self._ends, self._sums = ends_and_sums[:buckets], ends_and_sums[buckets:]
        self.keys = self._map[begin:].cast("Q")
        """All keys, in order."""
        self._shift = 64 - bits

    def numbers(self, hashed: int) -> Iterable[int]:
        """The numbers of the files that have a text, by its hash with zeros in place of the number."""
        bucket = hashed >> self._shift
        begin = self._ends[bucket - 1] if bucket else 0
        keys = self.keys[begin : self._ends[bucket]]
        if _sum(keys) != self._sums[bucket]:
            raise DamagedError(self._path)
        first = bisect_left(keys, hashed)
        last = bisect_left(keys, hashed + NUMBERS, first)
        return (key - hashed for key in keys[first:last])

    def check(self) -> None:
        """Check every bucket; raises `DamagedError`."""
        begin = 0
        for end, known in zip(self._ends, self._sums, strict=True):
            if _sum(self.keys[begin:end]) != known:
                raise DamagedError(self._path)
            begin = end
