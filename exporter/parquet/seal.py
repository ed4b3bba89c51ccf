"""The seal of a file: a hash of all its bytes, and the seal of its predecessor.

Both are in the Parquet footer. `KEY` holds the SHA-256, in 64 hex digits, of the file's bytes with zeros in
place of those digits, so that it covers all of the file, even the footer. `BEFORE` holds the seal of the file
that a compacted file replaced, or that the journal archived before this one.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from itertools import repeat
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .reading import DAMAGED, ForeignError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from .encoding import Encoder

KEY: Final = b"waybill.seal"
BEFORE: Final = b"waybill.before"

_BLANK: Final = b"0" * 64
# How Thrift's compact protocol joins a key and a value of 64 bytes.
_MARK: Final = KEY + b"\x18\x40"
_TAIL_BYTES: Final = 8
_PIECE_BYTES: Final = 2**20


def finish_sealed(
    encoder: Encoder, metadata: Mapping[bytes, bytes], before: str | None
) -> tuple[memoryview, str]:
    """Finish an encoder that has all rows, in order: the bytes of a sealed Parquet file, and its seal."""
    return fill_in(encoder.finish({**metadata, **to_be_sealed(before)}))


def to_be_sealed(before: str | None) -> dict[bytes, bytes]:
    """The key-value metadata of a file that `fill_in` is to seal; `before` is the seal of its predecessor."""
    links = {} if before is None else {BEFORE: before.encode()}
    return {**links, KEY: _BLANK}


def fill_in(encoded: ReadableBuffer) -> tuple[memoryview, str]:
    """Put a file's seal in the place reserved for it; return the bytes and the seal."""
    data = memoryview(encoded).cast("B")
    at = _place(data)
    seal = hashlib.sha256(data).hexdigest()
    data[at : at + len(_BLANK)] = seal.encode()
    return data, seal


def seal_in(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """The seal in a footer's key-value metadata; None where there is none."""
    return _text(metadata, KEY)


def seal_of(data: bytes) -> str | None:
    """The seal in a file's bytes; None where there is none, or the footer cannot be read."""
    try:
        return seal_in(pq.read_metadata(pa.BufferReader(data)).metadata)
    except DAMAGED:
        return None


def before_in(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """The seal of the predecessor in a footer's key-value metadata; None where there is none."""
    return _text(metadata, BEFORE)


def is_intact(file: BinaryIO, seal: str) -> bool:
    """Whether the bytes of a file are those that were sealed; the file is read in pieces."""
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(max(size_bytes - _TAIL_BYTES, 0))
    footer_bytes = _footer_bytes(file.read())
    start = max(size_bytes - footer_bytes, 0)
    file.seek(start)
    try:
        at = start + _place(memoryview(file.read()))
    except ValueError:
        return False
    hashed = hashlib.sha256()
    file.seek(0)
    for piece_bytes in [*repeat(_PIECE_BYTES, at // _PIECE_BYTES), at % _PIECE_BYTES]:
        hashed.update(file.read(piece_bytes))
    hashed.update(_BLANK)
    file.seek(at + len(_BLANK))
    hashed.update(file.read())
    return hashed.hexdigest() == seal


def check_seal(file: BinaryIO, seal: str) -> None:
    """Raise `ForeignError`, which is one of `DAMAGED`, unless the file is the one that was sealed."""
    if not is_intact(file, seal):
        raise ForeignError("its bytes are not those that were sealed")


def _place(data: memoryview) -> int:
    """Where the digits of the seal are: the last such place, since key-value metadata end a footer."""
    start = max(len(data) - _footer_bytes(data[-_TAIL_BYTES:]), 0)
    return start + bytes(data[start:]).rindex(_MARK) + len(_MARK)


def _footer_bytes(tail: memoryview | bytes) -> int:
    """The size of a file's footer and of what follows it, by the last bytes of the file."""
    return int.from_bytes(tail[:-4], "little") + _TAIL_BYTES


def _text(metadata: Mapping[bytes, bytes] | None, key: bytes) -> str | None:
    value = (metadata or {}).get(key)
    return None if value is None else value.decode("ascii", "replace")
