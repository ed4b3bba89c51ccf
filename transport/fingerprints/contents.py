"""What is inside a file, in pieces: a compressed file is decompressed while it is read, in constant memory.

A compression is recognized by its first bytes, never by the file's name. The formats and their first bytes:

- gzip, RFC 1952: `1f 8b 08`; several members are one content
- zstd, RFC 8878: `28 b5 2f fd`, also after skippable frames; several frames are one content
- bzip2: `BZh`, the block size and the magic of a block or of the end; several streams are one content
- xz, https://tukaani.org/xz/xz-file-format.txt: `fd 37 7a 58 5a 00`; several streams are one content

Zero bytes after a gzip, bzip2 or xz stream are padding. Anything else that follows is damage.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from ..errors import FingerprintError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

PIECE_BYTES: Final = 2**16
"""The size of the pieces. Larger ones leave the processor's cache before they are hashed."""

_READ_BYTES: Final = 2**16
"""How much of a compressed file is read at once. An error is located this precisely."""

_XZ_MEMORY_BYTES: Final = 2**28
"""Four times what `xz -9` needs. zstd's own limit on what a frame may need is 128 MiB."""

_HEAD_BYTES: Final = 4096
_GZIP_WINDOW: Final = 31
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE: Final = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18(?P<size>.{4})", re.DOTALL)
_BZIP2: Final = re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)")


class Compression(StrEnum):
    """A format that is looked into."""

    GZIP = "gzip"
    ZSTD = "zstd"
    BZIP2 = "bzip2"
    XZ = "xz"


class Readable(Protocol):
    """A stream of bytes, such as ``open(path, "rb")``."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read at most as many bytes as fit; 0 at the end."""


class Source(io.RawIOBase):
    """A file that is read once, from its beginning to its end.

    Attributes:
        position: how many bytes were read.
    """

    def __init__(self, stream: Readable, name: str, on_read: Callable[[int], None] | None = None) -> None:
        self._stream = stream
        self._name = name
        self._on_read = on_read
        self._head = b""
        self.position = 0

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def look(self, size: int) -> bytes:
        """The first bytes, before any are read; fewer if the file has fewer."""
        while len(self._head) < size and (more := self._read(size - len(self._head))):
            self._head += more
        return self._head

    def _read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self._fill(buffer)])

    def _fill(self, buffer: WriteableBuffer) -> int:
        count = self._stream.readinto(buffer)
        if count is None:
            raise BlockingIOError(f"{self._name} has no data yet; give a stream that waits for its data")
        return count

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read at most as many bytes as fit; 0 at the end."""
        view = memoryview(buffer).cast("B")
        if self._head:
            count = min(len(view), len(self._head))
            view[:count], self._head = self._head[:count], self._head[count:]
        else:
            count = self._fill(view)
        self.position += count
        if self._on_read is not None:
            self._on_read(count)
        return count

    def refuse(self, compression: Compression, why: str, unread_bytes: int = 0) -> NoReturn:
        """Raise the error for a compressed file whose content cannot be read here."""
        offset_bytes = self.position - unread_bytes
        what = (
            f"its {compression} data cannot be read near byte {offset_bytes:,} ({why}); get the file again "
            "from where it came from"
        )
        raise FingerprintError(self._name, offset_bytes, what)


def compression_of(source: Source) -> Compression | None:
    """The compression of a file; None for one that is not compressed, or in another format."""
    head = source.look(_HEAD_BYTES)
    if head.startswith(b"\x1f\x8b\x08"):
        return Compression.GZIP
    if head.startswith(b"\xfd7zXZ\0"):
        return Compression.XZ
    if _BZIP2.match(head):
        return Compression.BZIP2
    at = 0
    while skipped := _SKIPPABLE.match(head, at):  # LZ4 has the same skippable frames
        at = skipped.end() + int.from_bytes(skipped["size"], "little")
    return Compression.ZSTD if head.startswith(_ZSTD_MAGIC, at) else None


def pieces_of(source: Source, compression: Compression | None) -> Iterator[bytes | memoryview]:
    """The content of a file in pieces of at most `PIECE_BYTES`; the next piece may overwrite the last.

    Raises:
        FingerprintError: compressed data is damaged or cut off.
    """
    match compression:
        case None:
            return _plain(source)
        case Compression.ZSTD:
            return _frames(source)
        case _:
            return _streams(source, compression)


def _plain(source: Source) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE_BYTES))
    while count := source.readinto(buffer):
        yield buffer[:count]


def _frames(source: Source) -> Iterator[memoryview]:
    # pyarrow is large, but it is installed, and it decompresses frames one after the other in bounded memory.
    import pyarrow as pa

    stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), str(Compression.ZSTD))
    buffer = memoryview(bytearray(PIECE_BYTES))
    while True:
        try:
            count = stream.readinto(buffer)
        except OSError as error:
            if error.errno is not None:  # the disk's own
                raise
            source.refuse(Compression.ZSTD, str(error))
        if not count:
            return
        yield buffer[:count]


class _Decompressor(Protocol):
    """A decompressor of one stream, as `bz2` and `lzma` have them."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """The decompressor of one member, in the form that `bz2` and `lzma` have."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail + data, max_length)


def _decompressor(compression: Compression) -> _Decompressor:
    if compression is Compression.GZIP:
        return _Gzip()
    if compression is Compression.BZIP2:
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


def _streams(source: Source, compression: Compression) -> Iterator[bytes]:
    data = source.read(_READ_BYTES) or b""
    while data:
        stream = _decompressor(compression)
        is_at_end = False
        while not stream.eof:
            unread_bytes = len(data)
            try:
                piece = stream.decompress(data, PIECE_BYTES)
            except (OSError, zlib.error, lzma.LZMAError) as error:
                source.refuse(compression, str(error), unread_bytes)
            if piece:
                yield piece
            elif is_at_end:
                source.refuse(compression, "the file ends in the middle")
            data = b""
            if stream.needs_input and not stream.eof:
                data = source.read(_READ_BYTES) or b""
                is_at_end = not data
        data = _next_stream(source, stream.unused_data)


def _next_stream(source: Source, rest: bytes) -> bytes:
    """The beginning of what follows a stream and its padding; empty at the end of the file."""
    while not (rest := rest.lstrip(b"\0")):
        rest = source.read(_READ_BYTES) or b""
        if not rest:
            return b""
    return rest
