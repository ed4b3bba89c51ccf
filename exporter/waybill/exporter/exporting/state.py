"""The export state: what was exported where, below the root, a file for each destination, system and day.

It spares an export what has not changed, and tells an age-off what is safe. It may be lost or outdated: then
an export asks the destination.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.directory import FileStamp, names
from waybill.exporter.exporting.destination import Version
from waybill.exporter.names import EXPORTS, relative
from waybill.transport.files import Files, publish_alone
from waybill.transport.locks import locked

if TYPE_CHECKING:
    from waybill.exporter.names import Hour

_NAME: Final = "destination.json"
_LOCK: Final = ".lock"


class ExportedFile(msgspec.Struct, frozen=True):
    """One file that was exported.

    Attributes:
        mark: the local file.
        source: SHA-256 of the local file, in hex digits.
        version: the file at the destination.
        merged: that file holds rows of others too.
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
        """Write down which destination it is, for people."""
        path = self._folder / _NAME
        if not path.exists():
            self._publish(path, msgspec.json.encode(_Named(name)))

    @property
    def destination(self) -> str:
        """The destination as an export was given it; empty where that is unknown."""
        try:
            return msgspec.json.decode((self._folder / _NAME).read_bytes(), type=_Named).destination
        except (OSError, msgspec.DecodeError):
            return ""

    def load(self, system: str, day: str) -> dict[str, ExportedFile]:
        """What was exported of a system (by safe name) and a day; nothing where that cannot be read."""
        try:
            return _DECODER.decode(self._path(system, day).read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}

    def save(self, system: str, day: str, sent: Mapping[str, ExportedFile]) -> None:
        """Replace what was noted."""
        self._publish(self._path(system, day), msgspec.json.encode(sent, order="sorted"))

    def _publish(self, path: Path, data: bytes) -> None:
        self._files.make_folder(path.parent)
        # Other exports may write the same state.
        with locked(self._folder / _LOCK):
            publish_alone(self._files, path, data)

    def _path(self, system: str, day: str) -> Path:
        return self._folder / system / f"{day}.json"


def destinations(root: Path) -> Iterator[ExportState]:
    """The states of all destinations that were ever exported to."""
    return (ExportState(root, key) for key in names(root / EXPORTS))


def is_exported(states: list[ExportState], root: Path, path: Path, system: str, hour: Hour) -> bool:
    """Whether a file, as it is now, was exported to every destination, and there is one."""
    mark = FileStamp.of(path.stat())
    found = [state.load(system, hour.day).get(relative(root, path)) for state in states]
    return bool(found) and all(one is not None and one.mark == mark for one in found)


_DECODER: Final = msgspec.json.Decoder(dict[str, ExportedFile])
