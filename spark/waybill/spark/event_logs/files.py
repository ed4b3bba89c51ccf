"""The files of event logs: where they lie, in which order they are read, and how they are compressed.

The log of an application is one file, or a folder ``eventlog_v2_<application>`` of rolling files; the History
Server packs either into a ZIP file.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

import pyarrow as pa

from waybill.transport import WaybillError

_ROLLING: Final = "eventlog_v2_"
_ROLLED: Final = re.compile(r"events_(\d+)_")
_COMPACT: Final = ".compact"
_IN_PROGRESS: Final = ".inprogress"
_STATUS: Final = "appstatus_"
_CODECS: Final = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
_LZ4: Final = ".lz4"
_UNREADABLE: Final = {".lzf", ".snappy"}
_LZ4_HEADER: Final = struct.Struct("<8sBiii")
_LZ4_MAGIC: Final = b"LZ4Block"
_LZ4_STORED: Final = 0x10
_CHUNK_BYTES: Final = 2**20


class EventLogError(WaybillError):
    """An event log cannot be read."""


class _Part(NamedTuple):
    name: str
    open: Callable[[], IO[bytes]]


class EventLog(NamedTuple):
    """The log of one application, or of one attempt of it.

    Attributes:
        name: where it is, for messages.
        parts: its files in the order in which they were written.
        is_unfinished: whether the application goes on, or was killed, so that the log may end anywhere.
    """

    name: str
    parts: tuple[_Part, ...]
    is_unfinished: bool

    def lines(self) -> Iterator[bytes]:
        """Its events, as JSON.

        Raises:
            EventLogError: it is damaged, or compressed in a way that is not known.
        """
        for part in self.parts:
            rest = b""
            try:
                for chunk in _chunks(part):
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from lines
            except (OSError, EOFError, pa.ArrowInvalid, struct.error) as error:
                if not self.is_unfinished:
                    raise EventLogError(f"{self.name}: {part.name} is damaged: {error}") from None
                continue
            if rest and not self.is_unfinished:
                yield rest


def find_logs(place: Path) -> list[EventLog]:
    """The logs at a place: a log, a ZIP file of the History Server's, or a folder of any number of logs.

    Raises:
        EventLogError: there is none.
    """
    if not place.exists():
        raise EventLogError(f"there is no event log {place}; give a log or a folder of logs")
    if place.is_file() and zipfile.is_zipfile(place):
        names = [name for name in zipfile.ZipFile(place).namelist() if not name.endswith("/")]
        parts = [_Part(name, _opener_of_member(place, name)) for name in names]
    else:
        parts = [_Part(str(path), _opener(path)) for path in _files(place)]
    logs = _logs(parts)
    if not logs:
        raise EventLogError(
            f"there is no event log in {place}; give the folder that spark.eventLog.dir names"
        )
    return logs


def _files(place: Path) -> Iterable[Path]:
    if place.is_file():
        return [place]
    rolling = [place] if place.name.startswith(_ROLLING) else sorted(place.glob(f"{_ROLLING}*/"))
    return sorted({path for folder in (place, *rolling) for path in folder.iterdir() if path.is_file()})


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


def _opener_of_member(path: Path, name: str) -> Callable[[], IO[bytes]]:
    return lambda: zipfile.ZipFile(path).open(name)


def _logs(parts: Iterable[_Part]) -> list[EventLog]:
    logs = []
    rolling: dict[str, list[_Part]] = {}
    for part in parts:
        path = PurePosixPath(part.name)
        if path.parent.name.startswith(_ROLLING):
            rolling.setdefault(str(path.parent), []).append(part)
        elif not path.name.startswith((".", _STATUS)):
            logs.append(EventLog(part.name, (part,), path.name.endswith(_IN_PROGRESS)))
    for folder, several in rolling.items():
        is_unfinished = any(part.name.endswith(_IN_PROGRESS) for part in several)
        logs.append(EventLog(folder, _in_order(several), is_unfinished))
    return logs


def _in_order(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """The rolled files by their number, without those that a compacted one took the place of."""
    numbered: list[tuple[int, bool, _Part]] = []
    for part in parts:
        name = PurePosixPath(part.name).name
        if rolled := _ROLLED.match(name):
            numbered.append((int(rolled[1]), name.endswith(_COMPACT), part))
    compacted = max((number for number, is_compact, _ in numbered if is_compact), default=-1)
    kept = [one for one in numbered if one[0] > compacted or (one[0] == compacted and one[1])]
    return tuple(part for _, _, part in sorted(kept, key=lambda one: one[0]))


def _chunks(part: _Part) -> Iterator[bytes]:
    suffix = PurePosixPath(part.name.removesuffix(_IN_PROGRESS).removesuffix(_COMPACT)).suffix
    if suffix in _UNREADABLE:
        raise EventLogError(
            f"{part.name} is compressed by {suffix[1:]}, which cannot be read here; decompress it, or set "
            "spark.eventLog.compression.codec to zstd or lz4"
        )
    with part.open() as file:
        if suffix == _LZ4:
            yield from _lz4_blocks(file)
            return
        codec = _CODECS.get(suffix)
        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), codec) if codec else file
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _lz4_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The blocks that lz4-java writes; it does not write the frames that others call LZ4."""
    lz4 = pa.Codec("lz4_raw")
    while header := file.read(_LZ4_HEADER.size):
        magic, token, stored_bytes, bytes_, _ = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_MAGIC:
            raise EOFError("this is no block of lz4-java")
        block = file.read(stored_bytes)
        if len(block) < stored_bytes:
            raise EOFError("its last block is torn")
        is_stored = token & 0xF0 == _LZ4_STORED
        yield block if is_stored else lz4.decompress(block, decompressed_size=bytes_, asbytes=True)
