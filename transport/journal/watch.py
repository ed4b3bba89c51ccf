"""The watch over a journal's files: whether the files that a program has open are still those at the path.

SQLite would continue with files that somebody has deleted, replaced or truncated, and acknowledge entries
that nobody can ever read.
"""

from __future__ import annotations

import os
from pathlib import Path


def log_of(path: Path) -> Path:
    """The path of the write-ahead log that SQLite keeps for the database at a path."""
    return path.with_name(f"{path.name}-wal")


class Watch:
    """Knows the database and the WAL that were opened, by device and inode, and how large they were.

    Neither ever shrinks: nothing here truncates the WAL or vacuums the database.
    """

    def __init__(self, path: Path) -> None:
        # As text, since each commit uses them, and a `Path` would be converted to text each time.
        self._database = str(path)
        self._log = str(log_of(path))
        self._seen: dict[str, tuple[int, int, int]] = {}

    def opened(self) -> None:
        """Watch the files at the paths, which were just opened."""
        for path in (self._database, self._log):
            found = os.stat(path)  # noqa: PTH116 - see above
            self._seen[path] = found.st_dev, found.st_ino, found.st_size

    def closed(self) -> None:
        """Watch only the database, since another program may remove the WAL once nobody has it open."""
        self._seen.pop(self._log, None)

    def trouble(self) -> str | None:
        """What happened to one of the files, as the beginning of a sentence; None if nothing did."""
        for path, (device, inode, size_bytes) in self._seen.items():
            try:
                found = os.stat(path)  # noqa: PTH116 - see above
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} was deleted"
            except OSError:
                continue  # this error proves nothing about the file
            if found.st_ino != inode or found.st_dev != device:
                return f"{path} was replaced by another file"
            if found.st_size != size_bytes:
                if found.st_size < size_bytes:
                    return f"{path} was truncated"
                self._seen[path] = device, inode, found.st_size
        return None
