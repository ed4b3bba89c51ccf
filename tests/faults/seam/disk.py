"""A disk that forgets what was not fsynced.

Every change is really made, and also noted here. When the power fails, the folder is reset to what the disk
had to keep, and to a random part of the rest:

- Of a file: its content at the last fsync, and any of the later writes, each whole, in part (by sectors), or
  not at all.
- Of a folder: its names at the last fsync, and the first few of the later changes. A new folder is gone
  unless its parent was fsynced.

SQLite's shared memory is gone; nothing durable is in it. SQLite's own file system fsyncs the folder when it
first fsyncs a new journal or write-ahead log (strace shows it), which cannot be seen from here and is noted
for it.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECTOR_BYTES: Final = 512
_FORGOTTEN: Final = ("-shm", ".lock")


@dataclass
class _File:
    """A file's content that the disk must keep, and the later changes."""

    kept: bytearray = field(default_factory=bytearray)
    since: list[Callable[[bytearray], object]] = field(default_factory=list)
    fresh: bool = True

    def now(self) -> bytearray:
        content = bytearray(self.kept)
        for change in self.since:
            change(content)
        return content


Names = dict[Path, _File]


class ForgetfulDisk:
    """The disk's state of some folders and everything below them.

    Args:
        folders: their initial content is durable.
        chance: decides which other changes survive.
    """

    def __init__(self, folders: list[Path], chance: random.Random) -> None:
        self._folders = folders
        self._chance = chance
        self._files: Names = {}
        self._kept: Names = {}
        self._made: set[Path] = set()
        self._since: dict[Path, list[Callable[[Names], object]]] = defaultdict(list)
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_dir():
                    self._made.add(path)
                elif not path.name.endswith(_FORGOTTEN):
                    self._files[path] = self._kept[path] = _File(bytearray(path.read_bytes()), fresh=False)
        self._made.update(folder for folder in folders if folder.is_dir())

    # -- changes ---------------------------------------------------------------------------------------------

    def created(self, path: Path) -> None:
        """A new file, empty."""
        file = self._files[path] = _File()
        self._since[path.parent].append(lambda names: names.__setitem__(path, file))

    def wrote(self, path: Path, offset: int | None, data: bytes) -> None:
        """Bytes at a place of a file; at its end for None."""
        if path.name.endswith(_FORGOTTEN):
            return
        file = self._file_at(path)
        at = len(file.now()) if offset is None else offset
        for start in range(0, len(data), SECTOR_BYTES):
            file.since.append(_writing(at + start, bytes(data[start : start + SECTOR_BYTES])))

    def _file_at(self, path: Path) -> _File:
        if path not in self._files:  # made by somebody who tells nobody
            self.created(path)
            self.wrote(path, 0, path.read_bytes())
        return self._files[path]

    def truncated(self, path: Path, size_bytes: int) -> None:
        """A file truncated, or filled up with zeros, to a size."""
        if path in self._files:
            self._files[path].since.append(_cutting(size_bytes))

    def synced(self, path: Path) -> None:
        """A file's content is durable, or a folder's names are."""
        if path in self._made or path.is_dir():
            self.synced_folder(path)
            return
        file = self._file_at(path)
        for change in file.since:
            change(file.kept)
        file.since = []
        if file.fresh and path.name.endswith(("-wal", "-journal")):
            self.synced_folder(path.parent)
        file.fresh = False

    def renamed(self, source: Path, target: Path) -> None:
        """A file under another name in the same folder, in one step."""
        file = self._files[target] = self._files.pop(source)

        def change(names: Names) -> None:
            names.pop(source, None)
            names[target] = file

        self._since[target.parent].append(change)

    def linked(self, source: Path, target: Path) -> None:
        """A file under a second name in the same folder."""
        file = self._files[target] = self._files[source]
        self._since[target.parent].append(lambda names: names.__setitem__(target, file))

    def removed(self, path: Path) -> None:
        """A file without its name."""
        if self._files.pop(path, None) is not None:
            self._since[path.parent].append(lambda names: names.pop(path, None))

    def synced_folder(self, folder: Path) -> None:
        """A folder's names are durable, those of folders in it as well."""
        for change in self._since.pop(folder, []):
            change(self._kept)
        self._made.update(path for path in folder.iterdir() if path.is_dir())

    # -- the loss of power -----------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Reset the real folders to a state that a disk could have left."""
        # Other threads may be in the middle of a call.
        since, made = list(self._since.values()), self._made.copy()
        for changes in since:
            for change in changes[: self._chance.randint(0, len(changes))]:
                change(self._kept)
        contents = {path: self._left_of(file) for path, file in self._kept.copy().items()}
        # A deleted folder is back if any file in it is.
        folders = {path for path in made if path.is_dir()} | {path.parent for path in contents}
        kept = {path: content for path, content in contents.items() if path.parent in made}
        found = [path for folder in self._folders if folder.is_dir() for path in (folder, *folder.rglob("*"))]
        for path in sorted(found, reverse=True):
            if not path.is_dir():
                if path not in kept:
                    path.unlink()
            elif path not in folders & made:
                with contextlib.suppress(OSError):  # what is in it is kept
                    path.rmdir()
        for folder in sorted(folders & made):
            folder.mkdir(parents=True, exist_ok=True)
        for path, content in kept.items():
            path.write_bytes(content)  # where there is one, it stays the same file

    def _left_of(self, file: _File) -> bytearray:
        content = bytearray(file.kept)
        share = self._chance.choice((0.0, 0.5, 0.9, 1.0))
        for change in file.since:
            if self._chance.random() < share:
                change(content)
        return content


def _writing(at: int, data: bytes) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        if len(content) < at:
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data

    return change


def _cutting(size_bytes: int) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        del content[size_bytes:]
        content.extend(bytes(size_bytes - len(content)))

    return change
