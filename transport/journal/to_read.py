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
from typing import Final, Generic, NoReturn, TypeVar

import apsw

from ..errors import JournalError, reason_of
from .schema import check_tables
from .watch import log_of

_BUSY_TIMEOUT_MS: Final = 2_000
_FLAGS: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
_NOT_SO: Final = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError)


_T = TypeVar("_T")


class OpenedToRead(Generic[_T]):
    """A database that is open to be read.

    Args:
        path: the file, which exists.
        use: opens an address of it, and reads; it may be called again with another one, if it raises an
            `apsw.Error`.

    Attributes:
        used: what `use` returned.
        is_live: whether it shows what is written later.

    Raises:
        apsw.Error: it cannot be read.
        OSError: it cannot be copied.
    """

    def __init__(self, path: Path, use: Callable[[str], _T]) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.is_live = True
        try:
            self.used = use(f"{path.absolute().as_uri()}?mode=ro")
        except _NOT_SO:
            self.is_live = False
            self.used = use(self._address_of_still(path))

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._folder is not None:
            self._folder.cleanup()

    def _address_of_still(self, path: Path) -> str:
        """The address of what is there now: the database itself if its WAL is empty, else a copy of both."""
        log = log_of(path)
        if not log.exists() or not log.stat().st_size:
            return f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._folder = tempfile.TemporaryDirectory(prefix="waybill-")
        copy = Path(self._folder.name) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, log_of(copy))
        return copy.as_uri()


class ReadOnlyDatabase:
    """A journal's database for those who only read; for what both have, see `Database`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: OpenedToRead[apsw.Connection] | None = None
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
                if self._opened is None:
                    self._opened = OpenedToRead(self._path, _connect)
                    check_tables(self._opened.used)
                yield self._opened.used
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
            if self._opened is not None:
                self._opened.used.close()
                self._opened.close()
            self._opened = None


def _connect(address: str) -> apsw.Connection:
    # The address says whether it may be changed, as the index of a copy's WAL has to be.
    connection = apsw.Connection(address, flags=_FLAGS)
    try:
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error:
        connection.close()
        raise
    return connection
