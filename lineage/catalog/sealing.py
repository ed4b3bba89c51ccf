"""Small files of the catalog, each with a checksum of its content."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import xxhash

from waybill.transport.errors import WaybillError

log = logging.getLogger("waybill.lineage")

_T = TypeVar("_T")

_SUM_BYTES: Final = 16


class DamagedError(WaybillError):
    """A file of the catalog is not as it was written.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} is damaged; until it is made again, answers take longer"


def set_aside(error: DamagedError) -> None:
    """Rename a damaged file, so that whoever keeps the catalog up makes it again, and log it."""
    log.warning("%s", error)
    with contextlib.suppress(OSError):  # in a root that only others may write
        error.path.rename(error.path.with_name(f"{error.path.name}.damaged"))


def sealed(value: object) -> bytes:
    """A value as MessagePack, after a checksum of it."""
    content = msgspec.msgpack.encode(value)
    return xxhash.xxh3_128_digest(content) + content


def unsealed(path: Path, kind: type[_T]) -> _T:
    """Read what `sealed` gave.

    Raises:
        DamagedError: the file is not as it was written.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if xxhash.xxh3_128_digest(data[_SUM_BYTES:]) != data[:_SUM_BYTES]:
        raise DamagedError(path)
    try:
        return msgspec.msgpack.decode(data[_SUM_BYTES:], type=kind)
    except msgspec.DecodeError:  # its format is another one
        raise DamagedError(path) from None
