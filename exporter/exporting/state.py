"""The export state: notes below the root of what was exported where, by destination, system and day.

With it, an export skips unchanged files, and an age-off knows which files are safe to remove. It may be lost
or outdated: then an export checks the destination.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.files import Files, publish_alone
from waybill.transport.locks import locked

from ..directory import FileStamp, names
from ..names import EXPORTS, relative
from .destination import Version

if TYPE_CHECKING:
    from ..names import Hour

_NAME: Final = "destination.json"
_LOCK: Final = ".lock"


class ExportedFile(msgspec.Struct, frozen=True):
    """One exported file.

    Attributes:
        mark: the stamp of the local file.
        source: SHA-256 of the local file, in hex digits.
        version: the version of the file at the destination.
        merged: whether that file also contains rows of others.
    """

    mark: FileStamp
    source: str
    version: Version
    merged: bool = False


class _Named(msgspec.Struct, frozen=True):
    destination: str


class ExportState:
    """The export state of one destination, given by its `key_of`."""

    def __init__(self, root: Path, key: str, files: Files | None = None) -> None:
        self._folder = root / EXPORTS / key
        self._files = files or Files()

    def name(self, name: str) -> None:
        """Write down the destination's name, for people."""
        path = self._folder / _NAME
        if not path.exists():
            self._publish(path, msgspec.json.encode(_Named(name)))

    @property
    def destination(self) -> str:
        """The destination as it was given to the export; empty if unknown."""
        try:
            return msgspec.json.decode((self._folder / _NAME).read_bytes(), type=_Named).destination
        except (OSError, msgspec.DecodeError):
            return ""

    def load(self, system: str, day: str) -> dict[str, ExportedFile]:
        """The exported files of a system (by safe name) and day; empty if the state cannot be read."""
        try:
            return _DECODER.decode(self._path(system, day).read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}

    def save(self, system: str, day: str, sent: Mapping[str, ExportedFile]) -> None:
        """Replace the noted state."""
        self._publish(self._path(system, day), msgspec.json.encode(sent, order="sorted"))

    def _publish(self, path: Path, data: bytes) -> None:
        self._files.make_folder(path.parent)
        # Other exports may write to the same state.
        with locked(self._folder / _LOCK):
            publish_alone(self._files, path, data)

    def _path(self, system: str, day: str) -> Path:
        return self._folder / system / f"{day}.json"


def destinations(root: Path) -> Iterator[ExportState]:
    """The states of all destinations of past exports."""
    return (ExportState(root, key) for key in names(root / EXPORTS))


def is_exported(states: list[ExportState], root: Path, path: Path, system: str, hour: Hour) -> bool:
    """Whether there is a destination, and the file in its current form was exported to all of them."""
    mark = FileStamp.of(path.stat())
    found = [state.load(system, hour.day).get(relative(root, path)) for state in states]
    return bool(found) and all(one is not None and one.mark == mark for one in found)


_DECODER: Final = msgspec.json.Decoder(dict[str, ExportedFile])
