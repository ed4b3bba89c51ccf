"""JSON Lines files as a source, as written by the OpenLineage client's file transport.

They are plain, gzip or zstd, detected by their first bytes. A plain file is divided into parts; a line
belongs to the part in which it begins.
"""

from __future__ import annotations

import codecs
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.transport.journal import Kind

from ..object_stores import is_url, local_or_url
from .objects import list_objects, open_object, shown
from .source import SourceError, SourceNotFoundError, Stored

if TYPE_CHECKING:
    from waybill.transport.config import Settings

_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""By their first bytes, how files are compressed."""

_MAGIC_BYTES: Final = 4
_BATCH_LINES: Final = 2_000
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
_DECODER: Final = json.JSONDecoder()
_OBJECT: Final = re.compile(r'\{\s*"')
_TRIES_MAX: Final = 10_000
"""At so many places in a line that is no event, others are looked for; the rest of it is one piece."""


class LinesSource(msgspec.Struct, frozen=True):
    """Events in files, one per line.

    Attributes:
        paths: files, and folders whose files are read, as local paths or URLs of an object store.
        part_bytes: the size of the parts of a plain file.
    """

    paths: tuple[Path | str, ...]
    part_bytes: int = 64 * 2**20

    def describe(self) -> str:
        """Name the paths."""
        return " ".join(["jsonl", *map(str, self.paths)])

    def parts(self) -> list[str]:
        """Ranges of bytes as ``start-end:path``; a compressed file is one part, ``0-0:path``."""
        files = [file for path in self.paths for file in _files(path)]
        if not files:
            raise SourceNotFoundError(f"there are no files in {self.paths[0]}; give JSON Lines files")
        return [part for file in files for part in _cut(file, self.part_bytes)]

    def read(self, part: str) -> Iterator[Sequence[Stored]]:
        """The lines of a range, without blank ones."""
        extent, _, name = part.partition(":")
        start, end = map(int, extent.split("-"))
        try:
            with _open(name) as file:
                if start:
                    file.seek(start - 1)
                    start += len(file.readline()) - 1
                yield from _batches(file, start, end)
        except (pa.ArrowException, OSError) as error:
            if getattr(error, "errno", None) is not None:
                raise
            raise SourceError(f"{shown(name)} is damaged ({error}); replace it with a good copy") from None

    def place(self, part: str, at: int) -> str:
        """The file, and the line's offset in it."""
        return f"byte {at:,} of {shown(part.partition(':')[2])}"


def open_lines(places: Sequence[str], settings: Settings) -> LinesSource:  # noqa: ARG001 - of the protocol
    """The given files and folders, at least one."""
    if not places:
        raise SourceNotFoundError("the source `jsonl` takes paths of files or folders; give at least one")
    return LinesSource(tuple(map(local_or_url, places)))


def _files(path: Path | str) -> list[str]:
    """The names of the files at or below a path."""
    if isinstance(path, str):
        found = list_objects(path)
    elif path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith("."))
        return list(map(str, files))
    else:
        found = [str(path)] if path.is_file() else []
    if not found:
        raise SourceNotFoundError(f"{path} does not exist; give JSON Lines files, or folders of them")
    return found


def _cut(name: str, part_bytes: int) -> list[str]:
    with _plain(name) as file:
        compression = _compression_of(file)
        size_bytes = file.seek(0, io.SEEK_END)
    if compression is not None:
        return [f"0-0:{name}"]
    return [
        f"{start}-{min(start + part_bytes, size_bytes)}:{name}" for start in range(0, size_bytes, part_bytes)
    ]


def _plain(name: str) -> io.BufferedReader:
    return open_object(name) if is_url(name) else io.BufferedReader(io.FileIO(name), 2**20)


def _open(name: str) -> io.BufferedReader:
    file = _plain(name)
    compression = _compression_of(file)
    if compression is None:
        return file
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), compression), 2**20)


def _compression_of(file: io.BufferedReader) -> str | None:
    begin = file.peek(_MAGIC_BYTES)
    return next((name for magic, name in _COMPRESSED.items() if begin.startswith(magic)), None)


def _events_in(line: bytes) -> Iterator[tuple[int, bytes]]:
    """The events of a line, each with its place there: one, unless a program died while it wrote a line.

    What the next program wrote then goes on in the same line. A piece that is no event is given as it is.
    """
    begin = len(codecs.BOM_UTF8) if line.startswith(codecs.BOM_UTF8) else 0
    line = line[begin:]
    try:
        _JSON.decode(line)
    except msgspec.DecodeError:
        text = line.decode("utf-8", "surrogateescape")
        for start, end in _pieces(text):
            piece = text[start:end].encode("utf-8", "surrogateescape")
            yield begin + len(text[:start].encode("utf-8", "surrogateescape")), piece
    else:
        yield begin, line


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where the events of a text begin and end, and what is between them, if it is more than blanks."""
    at = 0
    candidates = (found.start() for found in _OBJECT.finditer(text))
    for start in itertools.islice(candidates, _TRIES_MAX):
        if start < at:
            continue
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if "eventTime" in value:  # else it is a part of an event that was cut
            if text[at:start].strip():
                yield at, start
            yield start, end
            at = end
    if text[at:].strip():
        yield at, len(text)


def _batches(file: io.BufferedReader, at: int, end: int) -> Iterator[Sequence[Stored]]:
    """The lines that begin before `end`; all lines if it is 0."""
    batch: list[Stored] = []
    if end and at >= end:
        return
    for line in file:
        if not line.isspace():
            batch += [Stored(at + begin, Kind.OPENLINEAGE, "", piece) for begin, piece in _events_in(line)]
        at += len(line)
        if len(batch) >= _BATCH_LINES:
            yield batch
            batch = []
        if end and at >= end:
            break
    if batch:
        yield batch
