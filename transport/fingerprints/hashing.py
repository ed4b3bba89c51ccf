"""The fingerprint of a content: `xxh3-128:` and 32 hexadecimal digits.

The digits are XXH3's 128 bits with seed 0 in canonical form, as `xxhsum -H2` prints them for a file that is
not compressed (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). A fingerprint tells
contents apart that differ by accident. It is no proof against somebody who makes two contents on purpose.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from ..errors import FingerprintError
from ..files import open_at_once

if TYPE_CHECKING:
    from .contents import Readable

ALGORITHM: Final = "xxh3-128"

CONTENT_BYTES_MAX: Final = 64 * 2**30
"""The default of the most that a compressed file may contain, in bytes."""


class Fingerprint(msgspec.Struct, frozen=True):
    """Which content a file has. Its text is the fingerprint itself.

    Attributes:
        digest: 32 hexadecimal digits.
        input_bytes: the size of the file as it is stored.
        content_bytes: the size of its content, without compression.
        compression: ``gzip``, ``zstd``, ``bzip2`` or ``xz``; None if the file is not compressed, or in
            another format.
    """

    digest: str
    input_bytes: int
    content_bytes: int
    compression: str | None = None

    def __str__(self) -> str:
        return f"{ALGORITHM}:{self.digest}"


def fingerprint_of(
    path: str | os.PathLike[str],
    *,
    max_bytes: int = CONTENT_BYTES_MAX,
    on_read: Callable[[int], None] | None = None,
) -> Fingerprint:
    """The fingerprint of a file's content: of a gzip, zstd, bzip2 or xz file, of what is inside.

    The compression is recognized by its first bytes. So a file that is compressed anew, with another level,
    format or number of members, has the same fingerprint as before, and as the file that is not compressed.
    Only one compression is opened: the content of a gzip file in a gzip file is a gzip file. Archives such as
    zip are not opened, because the names in them count, too.

    Memory is constant, whatever the size of the file. zstd loads pyarrow.

    Args:
        path: a regular file; of a pipe, give the stream to `fingerprint_of_stream`.
        max_bytes: the most that a compressed file may contain. The size of a plain file has no limit.
        on_read: called with the number of bytes after each read, for a display of progress.

    Raises:
        FingerprintError: it is no regular file, or it changed while it was read; or the compressed data is
            damaged or cut off, or contains more than `max_bytes`.
        OSError: the file cannot be read.
    """
    name = os.fsdecode(path)
    with open(path, "rb", buffering=0, opener=open_at_once) as stream:
        before = os.fstat(stream.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise FingerprintError(name, 0, "it is no regular file, so it may never end; give a file")
        found = fingerprint_of_stream(stream, name, max_bytes=max_bytes, on_read=on_read)
        after = os.fstat(stream.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        what = "it changed while it was read; take the fingerprint once the file is complete"
        raise FingerprintError(name, found.input_bytes, what)
    return found


def fingerprint_of_stream(
    stream: Readable,
    name: str,
    *,
    max_bytes: int = CONTENT_BYTES_MAX,
    on_read: Callable[[int], None] | None = None,
) -> Fingerprint:
    """The fingerprint of what can still be read from a stream, as `fingerprint_of`.

    The stream needs only the method `readinto`, and is not closed. `name` is for errors.
    """
    # Here, so that a pipeline that asks for no fingerprint loads neither the hash nor the decompressors.
    import xxhash

    from .contents import Source, compression_of, pieces_of

    source = Source(stream, name, on_read)
    compression = compression_of(source)
    content = xxhash.xxh3_128()
    content_bytes = 0
    for piece in pieces_of(source, compression):
        content.update(piece)
        content_bytes += len(piece)
        if compression is not None and content_bytes > max_bytes:
            what = (
                f"its {compression} data contains more than {max_bytes:,} bytes, after {source.position:,} "
                "bytes of the file; raise fingerprint_max_bytes if so much is expected"
            )
            raise FingerprintError(name, source.position, what)
    return Fingerprint(content.hexdigest(), source.position, content_bytes, compression)
