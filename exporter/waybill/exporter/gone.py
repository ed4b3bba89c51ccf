"""Which compacted files have left a root: one note for a system and a day.

A note is written before the file goes. It keeps a late record from making the hour anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter.layout import AGED
from waybill.transport.files import Files, publish

if TYPE_CHECKING:
    from waybill.exporter.layout import Hour


class Gone(msgspec.Struct, frozen=True):
    """A compacted file that was removed.

    Attributes:
        sha256: of its bytes, in hex digits.
        rows: how many it held.
        removed_ms: when, in epoch milliseconds.
    """

    sha256: str
    rows: int
    removed_ms: int


def gone(root: Path, system: str, day: str) -> dict[str, Gone]:
    """The files of a system (by safe name) and day that have gone, by hour.

    Raises:
        OSError: the note cannot be read.
    """
    try:
        content = _path(root, system, day).read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError as error:
        raise OSError(f"{_path(root, system, day)} cannot be read ({error})") from None


def is_gone(root: Path, system: str, hour: Hour) -> bool:
    """Whether the compacted file of a system (by safe name) and hour was removed."""
    return hour.hour in gone(root, system, hour.day)


def note_gone(files: Files, root: Path, system: str, day: str, removed: Mapping[str, Gone]) -> None:
    """Note that these files go, by hour; durable on return.

    Raises:
        OSError: the note cannot be read or written.
    """
    path = _path(root, system, day)
    files.make_folder(path.parent)
    publish(files, path, msgspec.json.encode({**gone(root, system, day), **removed}, order="sorted"))


def _path(root: Path, system: str, day: str) -> Path:
    return root / AGED / system / f"{day}.json"


_DECODER = msgspec.json.Decoder(dict[str, Gone])
