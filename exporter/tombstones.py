"""Tombstones: notes that compacted files have left the root, in one file for each system and day.

A tombstone is written before its file is removed. Because of it, a late record does not start the hour over,
and an export does not replace the full file at the destination.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.transport.files import Files, publish_alone

from .names import AGED

if TYPE_CHECKING:
    from .names import Hour


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compacted file that was removed, or was damaged and quarantined.

    Attributes:
        sha256: the hash of its bytes, in hex digits.
        rows: how many rows it had; 0 if that cannot be read.
        removed_ms: when it left the root, in epoch milliseconds.
        kept: the new path of a quarantined file, relative to the root; None for a removed file.
    """

    sha256: str
    rows: int
    removed_ms: int
    kept: str | None = None


def tombstones(root: Path, system: str, day: str) -> dict[str, Tombstone]:
    """The tombstones of a system (by safe name) and day, by hour; raises `OSError` if unreadable."""
    try:
        content = _path(root, system, day).read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError as error:
        raise OSError(f"{_path(root, system, day)} cannot be read ({error})") from None


def was_removed(root: Path, system: str, hour: Hour) -> bool:
    """Whether the compacted file of a system (by safe name) and hour was removed, not quarantined."""
    found = tombstones(root, system, hour.day).get(hour.hour)
    return found is not None and found.kept is None


def was_damaged(root: Path, system: str, hour: Hour) -> bool:
    """Whether the compacted file of a system (by safe name) and hour was quarantined: rows may be missing."""
    found = tombstones(root, system, hour.day).get(hour.hour)
    return found is not None and found.kept is not None


def write_tombstones(
    files: Files, root: Path, system: str, day: str, removed: Mapping[str, Tombstone]
) -> None:
    """Write tombstones of a system (by safe name) and day, by hour; durable on return."""
    both = {**tombstones(root, system, day), **removed}
    publish_alone(files, _path(root, system, day), msgspec.json.encode(both, order="sorted"))


def _path(root: Path, system: str, day: str) -> Path:
    return root / AGED / system / f"{day}.json"


_DECODER = msgspec.json.Decoder(dict[str, Tombstone])
