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
import errno
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import FingerprintError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE_BYTES: Final = 2**16
"""The size of the pieces. Larger ones leave the processor's cache before they are hashed."""

_XZ_MEMORY_BYTES: Final = 2**28
"""Four times what `xz -9` needs. zstd's own limit on what a frame may need is 128 MiB."""

_HEAD_BYTES: Final = 4096
_GZIP_WINDOW: Final = 31
_SKIPPABLE: Final = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18(?P<size>.{4})", re.DOTALL)
_BZIP2: Final = re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)")


class Readable(Protocol):
    """A stream of bytes, such as ``open(path, "rb")``."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read at most as many bytes as fit; 0 at the end."""


class Source(io.RawIOBase):
    """A file that is read once, from its beginning to its end.

    Attributes:
        name: what errors call it.
        position: how many bytes were read.
    """

    def __init__(self, stream: Readable, name: str, on_read: Callable[[int], None] | None = None) -> None:
        self._stream = stream
        self.name = name
        self._on_read = on_read
        self._head = b""
        self.position = 0

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def look(self, size: int) -> bytes:
        """The first bytes, before any are read; fewer if the file has fewer."""
        head = b""
        while len(head) < size and (more := self.read(size - len(head))):
            head += more
        self._head = head
        return head

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read at most as many bytes as fit; 0 at the end."""
        view = memoryview(buffer).cast("B")
        if self._head:
            size = min(len(view), len(self._head))
            view[:size], self._head = self._head[:size], self._head[size:]
            return size
        count = self._stream.readinto(view)
        if count is None:
            what = f"{self.name} has no data yet; give a stream that waits for its data"
            raise BlockingIOError(errno.EAGAIN, what)
        self.position += count
        if self._on_read is not None:
            self._on_read(count)
        return count


def compression_of(source: Source) -> str | None:
    """``gzip``, ``zstd``, ``bzip2`` or ``xz``; None if it is not compressed, or in another format."""
    head = source.look(_HEAD_BYTES)
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if _BZIP2.match(head):
        return "bzip2"
    at = 0
    while skipped := _SKIPPABLE.match(head, at):  # LZ4 has the same skippable frames
        at = skipped.end() + int.from_bytes(skipped["size"], "little")
    return "zstd" if head.startswith(b"\x28\xb5\x2f\xfd", at) else None


def pieces_of(source: Source, compression: str | None) -> Iterator[bytes | memoryview]:
    """The content of a file in pieces of at most `PIECE_BYTES`; the next piece may overwrite the last.

    Raises:
        FingerprintError: compressed data is damaged or cut off.
    """
    if compression is None:
        yield from _pieces_of(source)
        return
    try:
        yield from _DECOMPRESSED[compression](source)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if getattr(error, "errno", None) is not None:  # the disk's own
            raise
        what = (
            f"its {compression} data cannot be read near byte {source.position:,} ({error}); get the file "
            "again from where it came from"
        )
        raise FingerprintError(source.name, source.position, what) from error


def _pieces_of(stream: Readable) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(PIECE_BYTES))
    while count := stream.readinto(buffer):
        yield buffer[:count]


def _unzstd(source: Source) -> Iterator[memoryview]:
    # Large, but installed; the package `zstandard` would take a file that is cut off for a whole one.
    import pyarrow as pa

    return _pieces_of(pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd"))


def _streams(new: Callable[[], Any], source: Source) -> Iterator[bytes]:
    # `BZ2File` and `LZMAFile` would end without an error at a second stream that is damaged.
    data = source.read(PIECE_BYTES)
    while data:
        stream = new()
        while not stream.eof:
            yield stream.decompress(data, PIECE_BYTES)
            data = getattr(stream, "unconsumed_tail", b"")  # zlib's; the others keep it
            if not (stream.eof or data) and getattr(stream, "needs_input", True):
                data = source.read(PIECE_BYTES)
                if not data:
                    raise EOFError("the file ends in the middle")
        data = stream.unused_data.lstrip(b"\0")
        while not data and (more := source.read(PIECE_BYTES)):
            data = more.lstrip(b"\0")


_DECOMPRESSED: Final[dict[str, Callable[[Source], Iterator[bytes | memoryview]]]] = {
    "gzip": partial(_streams, partial(zlib.decompressobj, _GZIP_WINDOW)),
    "zstd": _unzstd,
    "bzip2": partial(_streams, bz2.BZ2Decompressor),
    "xz": partial(_streams, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY_BYTES)),
}
