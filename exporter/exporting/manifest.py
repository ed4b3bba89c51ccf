"""The manifest of a destination: the checksum, size and number of rows of each file of a system and day.

provenance/manifest/<safe system name>/YYYYMMDD.json
{"provenance/compacted/<safe system name>/YYYYMMDD/HH.parquet": {"sha256": …, "size_bytes": …, "rows": …}}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from .destination import Destination, DestinationError, ReplacedError, Version

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MANIFEST: Final = PurePosixPath("provenance/manifest")
"""The folder of the manifests, relative to the destination."""

_TRIES: Final = 100  # executors of a rebuild may have hours of the same day


class ListedFile(msgspec.Struct, frozen=True):
    """One file of a destination; `sha256` is the hash of its bytes, in hex digits."""

    sha256: str
    size_bytes: int
    rows: int

    @classmethod
    def of(cls, data: ReadableBuffer) -> ListedFile:
        """Make it from a file's bytes; raises `pyarrow.ArrowException` if they are not a Parquet file."""
        rows = pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows
        return cls(hashlib.sha256(data).hexdigest(), memoryview(data).nbytes, rows)


def manifest_path(system: str, day: str) -> str:
    """The path of the manifest of a system (by safe name) and a day."""
    return str(MANIFEST / system / f"{day}.json")


def read_manifest(
    destination: Destination, system: str, day: str
) -> tuple[dict[str, ListedFile], Version | None]:
    """The files that a manifest lists; empty if there is no manifest."""
    path = manifest_path(system, day)
    found = destination.read(path)
    if found is None:
        return {}, None
    try:
        return decode_manifest(found[0]), found[1]
    except msgspec.DecodeError as error:
        raise DestinationError(
            f"{destination.name}/{path} is not a manifest ({error}); move it away and export again"
        ) from None


def decode_manifest(content: bytes) -> dict[str, ListedFile]:
    """The files that a manifest lists, by path relative to the destination; raises `msgspec.DecodeError`."""
    return _DECODER.decode(content)


def list_files(
    destination: Destination, system: str, day: str, written: Mapping[str, tuple[Version, ListedFile]]
) -> None:
    """Update the manifest of a system (by safe name) and day with the files written, by path.

    Two exports may write a file in one order and get here in the other. So each one first reads the manifest
    that it will replace, and then checks which file exists: the last one to write lists the actual files.
    """
    for _ in range(_TRIES):
        listed, version = read_manifest(destination, system, day)
        now = {path: _current(destination, path, *known) for path, known in written.items()}
        changed = {**listed, **{path: one for path, one in now.items() if one is not None}}
        if changed == listed:
            return
        try:
            data = msgspec.json.format(msgspec.json.encode(changed, order="sorted"), indent=1)
            destination.write(manifest_path(system, day), data, version)
        except ReplacedError:
            continue
        return
    raise DestinationError(
        f"{destination.name}/{manifest_path(system, day)} keeps being written by others; export again"
    )


def _current(destination: Destination, path: str, version: Version, known: ListedFile) -> ListedFile | None:
    if destination.version(path) == version:
        return known
    found = destination.read(path)
    return None if found is None else ListedFile.of(found[0])


_DECODER: Final = msgspec.json.Decoder(dict[str, ListedFile])
