"""SQLite's file system, with a plan of failures.

The production code is unchanged except for the name of the file system that opens the journal. Everything
else is SQLite's own: write-ahead log, shared memory and locks are those of its file system `unix`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from seam.plan import Plan

CREATES: Final = apsw.SQLITE_OPEN_CREATE


class FaultySqlite(apsw.VFS):
    """A file system for SQLite that consults the plan before each changing call.

    Args:
        plan: the plan of failures.
        name: the name that a connection opens it by.
    """

    def __init__(self, plan: Plan, name: str = "faulty") -> None:
        super().__init__(name, "unix")
        self.name = name
        self.plan = plan

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = path_of(name)
        is_new = bool(flags[0] & CREATES) and not path.exists()
        if is_new:
            with _told(apsw.CantOpenError, apsw.SQLITE_CANTOPEN):
                self.plan.reach("create", path)
        file = _FaultyFile(path, name, flags, self.plan)
        if is_new:
            self.plan.disk.created(path)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802
        with _told(apsw.IOError, apsw.SQLITE_IOERR_DELETE):
            self.plan.reach("delete", Path(filename))
        super().xDelete(filename, syncdir)
        self.plan.disk.removed(Path(filename))
        if syncdir:
            self.plan.disk.synced(Path(filename).parent)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, path: Path, name: str | apsw.URIFilename | None, flags: list[int], plan: Plan) -> None:
        super().__init__("unix", name, flags)
        self._path = path
        self._plan = plan

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        half: Callable[[], object] = lambda: super(_FaultyFile, self).xWrite(data[: len(data) // 2], offset)  # noqa: E731
        with _told(apsw.IOError, apsw.SQLITE_IOERR_WRITE):
            self._plan.reach("write", self._path, half)
        super().xWrite(data, offset)
        self._plan.disk.wrote(self._path, offset, data)

    def xSync(self, flags: int) -> None:  # noqa: N802
        with _told(apsw.IOError, apsw.SQLITE_IOERR_FSYNC):
            self._plan.reach("fsync", self._path)
        super().xSync(flags)
        self._plan.disk.synced(self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with _told(apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE):
            self._plan.reach("truncate", self._path)
        super().xTruncate(newsize)
        self._plan.disk.truncated(self._path, newsize)


def path_of(name: str | apsw.URIFilename | None) -> Path:
    """The path that SQLite opens; a temporary file has none and is called ``-``."""
    if name is None:
        return Path("-")
    return Path(name if isinstance(name, str) else name.filename())


@contextmanager
def _told(kind: type[apsw.Error], code: int) -> Iterator[None]:
    """Report a failure to SQLite as its own file system would."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC and code == apsw.SQLITE_IOERR_WRITE:
            kind, code = apsw.FullError, apsw.SQLITE_FULL
        told = kind(str(error))
        vars(told).update(result=code & 0xFF, extendedresult=code)
        raise told from None
