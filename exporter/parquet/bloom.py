"""Querying the Bloom filters of Parquet files: whether a row group can hold a text.

pyarrow writes them, but cannot query them. Source: `BloomFilter.md` of the Apache Parquet format: split
blocks of 32 bytes, chosen and filled by the xxHash64 of the value with seed 0.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import xxhash

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BLOCK: Final = struct.Struct("<8I")
_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_U32: Final = 0xFFFFFFFF


def can_hold(source: pa.NativeFile, column: pq.ColumnChunkMetaData, text: str) -> bool:
    """Whether a text column of a row group may hold a value; False only if it certainly does not."""
    offset, size_bytes = column.bloom_filter_offset, column.bloom_filter_length
    if offset is None or size_bytes is None:
        return True
    # Whole blocks come after a header that is shorter than one.
    count, header_bytes = divmod(size_bytes, _BLOCK.size)
    if source.read_at(header_bytes, offset) != _header(count * _BLOCK.size):
        return True  # A kind of filter that is not known here.
    hashed = xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass"))
    block = (hashed >> 32) * count >> 32
    words = _BLOCK.unpack(source.read_at(_BLOCK.size, offset + header_bytes + block * _BLOCK.size))
    bits = ((hashed & _U32) * salt % (_U32 + 1) >> 27 for salt in _SALTS)
    return all(word >> bit & 1 for word, bit in zip(words, bits, strict=True))


def _header(size_bytes: int) -> bytes:
    """The header, in Thrift's compact protocol, of so many bytes of blocks, xxHash and no compression."""
    number, varint = size_bytes << 1, bytearray()  # a positive number in zigzag
    while number >> 7:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    return b"\x15" + bytes(varint) + b"\x1c\x1c\x00\x00" * 3 + b"\x00"
