"""Opening a database of a home only to read it: nothing waits for a writer, and no file is made in the home.

A reader of a WAL waits for no writer, not even for one that is stopped inside a commit. It needs the index of
the WAL, a file beside the database. Where it cannot be made, as on a disk that is read-only, the database is
taken to be immutable if its WAL is empty. Else both are copied: what is in the WAL was acknowledged.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

import apsw

from ..errors import JournalError, reason_of
from .schema import check_tables
from .watch import log_of

_BUSY_TIMEOUT_MS: Final = 2_000
_FLAGS: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
_NOT_SO: Final = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError)


class OpenedToRead:
    """A database that is open to be read.

    Args:
        path: the file, which exists.

    Attributes:
        uri: its address for `ATTACH`.
        is_live: whether it shows what is written later.

    Raises:
        apsw.Error: it cannot be read.
        OSError: it cannot be copied.
    """

    def __init__(self, path: Path) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.uri = f"{path.absolute().as_uri()}?mode=ro"
        self.is_live = _can_open(self.uri)
        if not self.is_live:
            log = log_of(path)
            if not log.exists() or not log.stat().st_size:
                self.uri = f"{path.absolute().as_uri()}?immutable=1"
            else:
                self._folder = tempfile.TemporaryDirectory(prefix="waybill-")
                copy = Path(self._folder.name) / path.name
                shutil.copyfile(path, copy)
                shutil.copyfile(log, log_of(copy))
                self.uri = copy.as_uri()

    def connect(self) -> apsw.Connection:
        """Connect to it."""
        flags = _FLAGS if self._folder is None else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(self.uri, flags=flags)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        return connection

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._folder is not None:
            self._folder.cleanup()


def _can_open(uri: str) -> bool:
    try:
        connection = apsw.Connection(uri, flags=_FLAGS)
        try:
            connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        finally:
            connection.close()
    except _NOT_SO:
        return False
    return True


class ReadOnlyDatabase:
    """A journal's database for those who only read; for what both have, see `Database`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: OpenedToRead | None = None
        self._reader: apsw.Connection | None = None
        self._lock = threading.RLock()
        self.write_lock = threading.RLock()
        self.on_fork: Callable[[], None] = lambda: None
        self.on_change: Callable[[apsw.Connection], None] = lambda _: None
        self.has_unsynced = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection for reading; one thread has it at a time."""
        with self._lock:
            try:
                if self._reader is None:
                    self._opened = OpenedToRead(self._path)
                    self._reader = self._opened.connect()
                    check_tables(self._reader)
                yield self._reader
            except (apsw.Error, OSError) as error:
                what = f"{self._path} cannot be read ({reason_of(error)})"
                raise JournalError(f"{what}; check the disk and the permissions of the home") from None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read all within as of one moment; one thread does so at a time."""
        with self._lock:
            with self.reading() as reader:
                reader.execute("BEGIN")
            try:
                yield
            finally:
                with self.reading() as reader:
                    reader.execute("ROLLBACK")

    def prepare(self) -> None:
        """Open it; raises a `JournalError` if it is no journal of this version."""
        with self.reading():
            pass

    def write(self, *_: object, **__: object) -> NoReturn:
        """Refuse: it is open to be read."""
        raise JournalError(f"{self._path} is open to be read only")

    checkpoint = refuse_reentry = write

    def sync(self, after_s: float = 0.0) -> None:
        """Do nothing: it changes nothing."""

    def close(self) -> None:
        """Close the connection; the next use connects again."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            if self._opened is not None:
                self._opened.close()
            self._reader = self._opened = None
