"""The files of event logs: their locations, their order, and their compression.

The log of an application is one file, or a folder ``eventlog_v2_<application>`` of rolling files, on a disk
or in an object store; the History Server packs either into a ZIP file.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

import pyarrow as pa

from waybill.exporter import SourceError
from waybill.exporter.object_stores import local_or_url
from waybill.exporter.sources import look_up_objects, open_object, shown
from waybill.transport import NotFoundError, WaybillError

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
_LINE_BYTES_MAX: Final = 128 * 2**20
"""Spark never writes a longer line."""


class EventLogError(WaybillError):
    """An event log cannot be read."""


class EventLogNotFoundError(EventLogError, NotFoundError):
    """There is no event log where one was named."""


class _Part(NamedTuple):
    """One file: its path, and a value that changes with it."""

    name: str
    open: Callable[[], IO[bytes]]
    size_bytes: int = 0
    changed_ms: int = 0


class EventLog(NamedTuple):
    """The log of one application, or of one attempt of it.

    Attributes:
        name: where it is, for messages.
        parts: its files in the order in which they were written.
        is_unfinished: whether the application is still running, or was killed, so that the log may end
            anywhere.
    """

    name: str
    parts: tuple[_Part, ...]
    is_unfinished: bool

    @property
    def identity(self) -> str:
        """Its key, the same while its application runs and afterwards."""
        return self.name.removesuffix(_IN_PROGRESS)

    @property
    def version(self) -> tuple[object, ...]:
        """A value that differs after each change."""
        return (self.is_unfinished, *((part.name, part.size_bytes, part.changed_ms) for part in self.parts))

    @property
    def changed_ms(self) -> int:
        """When it was last written to."""
        return max((part.changed_ms for part in self.parts), default=0)

    def lines(self) -> Iterator[bytes]:
        """Its events, as JSON.

        Raises:
            EventLogError: it is damaged, compressed in an unknown way, or cannot be read.
        """
        for part in self.parts:
            try:
                file = part.open()
            except (OSError, SourceError, zipfile.BadZipFile) as error:
                raise EventLogError(f"{self.name}: {part.name} cannot be read: {error}") from None
            with file:
                yield from self._lines_of(part, file)

    def _lines_of(self, part: _Part, file: IO[bytes]) -> Iterator[bytes]:
        rest: list[bytes] = []
        try:
            for chunk in _chunks(part.name, file):
                head, *lines = chunk.split(b"\n")
                rest.append(head)
                if lines:
                    yield b"".join(rest)
                    yield from lines[:-1]
                    rest = lines[-1:]
                elif sum(map(len, rest)) > _LINE_BYTES_MAX:
                    raise EventLogError(f"{self.name}: {part.name} is damaged: a line does not end")
        except SourceError as error:
            raise EventLogError(f"{self.name}: {error}") from None
        except (OSError, EOFError, pa.ArrowInvalid, struct.error, zlib.error) as error:
            # The last block of a log that is still being written may be torn.
            if not self.is_unfinished:
                raise EventLogError(f"{self.name}: {part.name} is damaged: {error}") from None
            return
        if not self.is_unfinished and any(rest):
            yield b"".join(rest)


def find_logs(place: Path | str) -> list[EventLog]:
    """The logs at a place: a log, a ZIP file of the History Server's, or a folder of any number of logs.

    The place is a path, or a URL of an object store.

    Raises:
        EventLogError: there is none, or the place cannot be listed.
    """
    logs = look_up_logs(place)
    if not logs:
        raise EventLogNotFoundError(
            f"there is no event log in {place}; give the folder that spark.eventLog.dir names"
        )
    return logs


def look_up_logs(place: Path | str) -> list[EventLog]:
    """The logs at a place as `find_logs` gives them, of which there may be none yet."""
    where = local_or_url(str(place))
    try:
        return _logs(_objects(where) if isinstance(where, str) else _files(where))
    except (OSError, SourceError, zipfile.BadZipFile) as error:
        raise EventLogError(f"{place} cannot be read: {error}") from None


def _objects(url: str) -> list[_Part]:
    return [
        _Part(shown(one.name), partial(open_object, one.name), one.size_bytes, one.changed_ms)
        for one in look_up_objects(url)
    ]


def _files(place: Path) -> list[_Part]:
    if not place.exists():
        raise EventLogNotFoundError(f"there is no event log {place}; give a log or a folder of logs")
    if place.is_file() and zipfile.is_zipfile(place):
        packed = zipfile.ZipFile(place)
        return [_Part(name, partial(packed.open, name)) for name in packed.namelist() if name[-1] != "/"]
    if place.is_file():
        return [_file(place)]
    rolling = [place] if place.name.startswith(_ROLLING) else sorted(place.glob(f"{_ROLLING}*/"))
    paths = {path for folder in (place, *rolling) for path in folder.iterdir() if path.is_file()}
    return [_file(path) for path in sorted(paths)]


def _file(path: Path) -> _Part:
    found = path.stat()
    return _Part(str(path), lambda: path.open("rb"), found.st_size, found.st_mtime_ns // 1_000_000)


def _logs(parts: Iterable[_Part]) -> list[EventLog]:
    logs = []
    rolling: dict[str, list[_Part]] = {}
    for part in parts:
        path = PurePosixPath(part.name)
        if path.parent.name.startswith(_ROLLING):
            rolling.setdefault(part.name.rpartition("/")[0], []).append(part)
        elif not path.name.startswith((".", _STATUS)):
            logs.append(EventLog(part.name, (part,), path.name.endswith(_IN_PROGRESS)))
    for folder, several in rolling.items():
        is_unfinished = any(part.name.endswith(_IN_PROGRESS) for part in several)
        logs.append(EventLog(folder, _in_order(several), is_unfinished))
    return logs


def _in_order(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """The rolled files by their number, without those that a compacted file replaced."""
    numbered: list[tuple[int, bool, _Part]] = []
    for part in parts:
        name = PurePosixPath(part.name).name
        if rolled := _ROLLED.match(name):
            numbered.append((int(rolled[1]), name.endswith(_COMPACT), part))
    compacted = max((number for number, is_compact, _ in numbered if is_compact), default=-1)
    kept = [one for one in numbered if one[0] > compacted or (one[0] == compacted and one[1])]
    return tuple(part for _, _, part in sorted(kept, key=lambda one: one[0]))


def _chunks(name: str, file: IO[bytes]) -> Iterator[bytes]:
    suffix = PurePosixPath(name.removesuffix(_IN_PROGRESS).removesuffix(_COMPACT)).suffix
    if suffix in _UNREADABLE:
        raise EventLogError(
            f"{name} is compressed with {suffix[1:]}, which Waybill cannot read; decompress it, or set "
            "spark.eventLog.compression.codec to zstd or lz4"
        )
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
            raise EOFError("this is not an lz4-java block")
        block = file.read(stored_bytes)
        if len(block) < stored_bytes:
            raise EOFError("its last block is torn")
        is_stored = token & 0xF0 == _LZ4_STORED
        yield block if is_stored else lz4.decompress(block, decompressed_size=bytes_, asbytes=True)
