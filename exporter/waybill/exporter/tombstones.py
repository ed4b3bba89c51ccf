"""Which compacted files have left a root: one note for a system and a day.

A note is written before the file goes. It keeps a late record from making the hour anew, and an export from
putting what was made anew over the full file that it put there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter.names import AGED
from waybill.transport.files import Files, publish, sweep

if TYPE_CHECKING:
    from waybill.exporter.names import Hour


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compacted file that was removed, or set aside since it was damaged.

    Attributes:
        sha256: of its bytes, in hex digits.
        rows: how many it held; 0 where that cannot be read.
        removed_ms: when, in epoch milliseconds.
        kept: where a damaged one is, relative to the root; None of one that was removed.
    """

    sha256: str
    rows: int
    removed_ms: int
    kept: str | None = None


def tombstones(root: Path, system: str, day: str) -> dict[str, Tombstone]:
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


def was_removed(root: Path, system: str, hour: Hour) -> bool:
    """Whether the compacted file of a system (by safe name) and hour was removed, and not as damaged."""
    found = tombstones(root, system, hour.day).get(hour.hour)
    return found is not None and found.kept is None


def was_damaged(root: Path, system: str, hour: Hour) -> bool:
    """Whether the compacted file of a system (by safe name) and hour was set aside, so that rows may lack."""
    found = tombstones(root, system, hour.day).get(hour.hour)
    return found is not None and found.kept is not None


def write_tombstones(
    files: Files, root: Path, system: str, day: str, removed: Mapping[str, Tombstone]
) -> None:
    """Note that these files go, by hour; durable on return.

    Raises:
        OSError: the note cannot be read or written.
    """
    path = _path(root, system, day)
    files.make_folder(path.parent)
    sweep(files, path.parent, f"{path.name}.")
    publish(files, path, msgspec.json.encode({**tombstones(root, system, day), **removed}, order="sorted"))


def _path(root: Path, system: str, day: str) -> Path:
    return root / AGED / system / f"{day}.json"


_DECODER = msgspec.json.Decoder(dict[str, Tombstone])
