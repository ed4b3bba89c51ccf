"""The journal's SQLite database: its connections, and who may write when.

- Writers of several processes queue at an OS lock before SQLite's own, which would let one of them starve.
- No read transaction outlives a call, so a checkpoint can always finish.
- Nothing of SQLite is open while the process forks: a child that inherits SQLite's record of locks believes
  to hold locks it does not have (https://www.sqlite.org/howtocorrupt.html, section 2.6).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import apsw

from waybill.transport.errors import JournalError, JournalFullError
from waybill.transport.files import sync
from waybill.transport.fork_safety import survive_forks
from waybill.transport.journal.schema import migrate

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_BYTES_MAX: Final = 256 * 2**20
"""The largest entry that is kept, in bytes."""

SYNC_EVERY_S: Final = 0.1
"""What need not be fsynced at once is after this long."""

_CHECKPOINT_WAL_BYTES: Final = 64 * 2**20
_BUSY_TIMEOUT_MS: Final = 30_000

_T = TypeVar("_T")


class Database:
    """One process's access to a journal's database; it connects when it is first used.

    Args:
        path: the file; its folder exists.
        vfs: SQLite's file system by name; None for its own.
    """

    def __init__(self, path: Path, vfs: str | None) -> None:
        """Connect to nothing yet."""
        self._path = path
        self._vfs = vfs
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._lock_descriptor: int | None = None
        self._forgotten: weakref.finalize[[int], Database] | None = None
        """Closes the descriptor of an object that nobody has closed; connections do that by themselves."""
        self.write_lock = threading.RLock()
        """Held by the thread that writes; a signal handler may come in between, see `refuse_reentry`."""
        self._lazy = False
        """Whether the writer's commits are not fsynced."""
        self._unsynced, self._synced_s = False, 0.0
        self._in_transaction = False
        self._read_lock = threading.Lock()
        self.on_fork: Callable[[], None] = lambda: None
        """Called in the child of a fork, before anything else uses the database there."""
        survive_forks(self)

    def write(self, work: Callable[[apsw.Connection], _T], *, durable: bool = True) -> _T:
        """Do `work` in one write transaction.

        Args:
            work: what to do.
            durable: fsynced on return; else with the next change `SYNC_EVERY_S` after the last fsync, or by
                `sync`.

        Raises:
            JournalError: the disk failed or is full; nothing changed.
        """
        with self.write_lock:
            return self.write_locked(work, durable=durable)

    def write_locked(self, work: Callable[[apsw.Connection], _T], *, durable: bool = True) -> _T:
        """The same for a caller that holds `write_lock` already."""
        self.refuse_reentry()
        writer = self._writing()
        now_s = time.monotonic()
        lazily = not durable and now_s - self._synced_s < SYNC_EVERY_S
        if lazily != self._lazy:
            writer.pragma("synchronous", "NORMAL" if lazily else "FULL")
            self._lazy = lazily
        descriptor = self._os_lock_descriptor()
        try:
            self._in_transaction = True
            # Inside, so that an interruption right after it does not leave every other process waiting.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            writer.execute("BEGIN IMMEDIATE")
            result = work(writer)
            writer.execute("COMMIT")
            self._unsynced, self._synced_s = lazily, self._synced_s if lazily else now_s
        except apsw.Error as error:
            _roll_back(writer)
            raise self._explained(error) from None
        except BaseException:
            _roll_back(writer)
            raise
        finally:
            self._in_transaction = False
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        return result

    def sync(self, after_s: float = 0.0) -> float | None:
        """Make durable what `write` left to be.

        Args:
            after_s: only if the last fsync was so long ago.

        Returns:
            In how many seconds that will be; None when nothing is left.

        Raises:
            JournalError: the disk failed.
        """
        left_s = self._synced_s + after_s - time.monotonic()
        if self._unsynced and left_s > 0:
            return left_s
        if self._unsynced:
            # A commit that changes nothing is not fsynced. SQLite holds no lock on the log.
            try:
                with self._path.with_name(f"{self._path.name}-wal").open("rb") as log:
                    sync(log.fileno())
            except OSError as error:
                raise JournalError(f"{self._path} cannot be made durable ({error}); check the disk") from None
            self._unsynced, self._synced_s = False, time.monotonic()
        return None

    def refuse_reentry(self) -> None:
        """Keep out a signal handler that interrupts this thread's own write; the caller holds `write_lock`.

        Raises:
            JournalError: it has.
        """
        if self._in_transaction:
            raise JournalError(
                f"{self._path} cannot be written by a signal handler that interrupts a write; "
                "note the signal there and write after it, or raise an exception"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection to read with; one thread has it at a time.

        Raises:
            JournalError: the disk failed, or the database is damaged.
        """
        with self._read_lock:
            try:
                if self._reader is None:
                    self._reader = self._connect(apsw.SQLITE_OPEN_READWRITE)
                yield self._reader
            except apsw.Error as error:
                raise self._explained(error) from None

    def prepare(self) -> None:
        """Make the database, or migrate what is there.

        Raises:
            JournalError: it can hold no journal, or is none.
        """
        with self.write_lock:
            self._writing()

    def checkpoint(self) -> None:
        """Move what the WAL holds into the database, so that the next writer begins it anew.

        Most is moved while others write. Writers wait only for what they have added meanwhile: a WAL that is
        never moved whole grows for as long as somebody writes, and what grows is slower to fsync than what
        is written over.
        """
        with self.write_lock:
            try:
                writer = self._writing()
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                descriptor = self._os_lock_descriptor()
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                finally:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            except apsw.BusyError:
                pass  # another process is at it
            except apsw.Error as error:
                raise self._explained(error) from None

    def close(self) -> None:
        """Let go of every connection; the next use connects again."""
        with self.write_lock, self._read_lock:
            self._disconnect()

    def _os_lock_descriptor(self) -> int:
        if self._lock_descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                self._lock_descriptor = os.open(self._path.with_suffix(".lock"), flags, 0o644)
                self._forgotten = weakref.finalize(self, os.close, self._lock_descriptor)
                self._forgotten.atexit = False
            except OSError as error:
                kind = JournalFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else JournalError
                raise kind(
                    f"{self._path} cannot be locked ({error}); check the disk and the permissions of the home"
                ) from None
        return self._lock_descriptor

    def _writing(self) -> apsw.Connection:
        """The connection that writes; the caller holds `write_lock`."""
        if self._writer is None:
            descriptor = self._os_lock_descriptor()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                migrate(writer, node=secrets.token_hex(6))
            except apsw.Error as error:
                raise self._explained(error) from None
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._writer, self._lazy = writer, False
        return self._writer

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), flags=flags, vfs=self._vfs)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, ENTRY_BYTES_MAX)
        # The default, a checkpoint by the last connection that closes, would delete the WAL under a child.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if flags & apsw.SQLITE_OPEN_CREATE:
            connection.pragma("synchronous", "FULL")
            connection.pragma("fullfsync", 1)  # macOS; nothing elsewhere
            connection.pragma("journal_mode", "wal")
        # A pipeline waits for no checkpoint: the runner makes them. Without one the WAL grows this far.
        connection.wal_autocheckpoint(_CHECKPOINT_WAL_BYTES // 4096)
        return connection

    def _disconnect(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()
        self._writer = self._reader = None
        if self._forgotten is not None:
            self._forgotten()
            self._lock_descriptor = self._forgotten = None

    def _explained(self, error: apsw.Error) -> JournalError:
        """The same error in words that say what to do."""
        path = self._path
        if isinstance(error, apsw.FullError):
            return JournalFullError(
                f"the disk of {path} is full and nothing was kept; make room there, or give another home"
            )
        if isinstance(error, apsw.TooBigError):
            return JournalError(
                f"an entry of over {ENTRY_BYTES_MAX} bytes was not kept; leave out its largest facet"
            )
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            return JournalError(
                f"{path} is damaged or no journal ({error}); move it away to start a new one, "
                "and keep it for recovery"
            )
        return JournalError(
            f"{path} cannot be read or written ({error}); check the disk and the permissions of the home"
        )

    def before_fork(self) -> None:
        """Finish what is under way and let go of every connection."""
        self.write_lock.acquire()
        self._read_lock.acquire()
        self._disconnect()

    def after_fork(self, *, in_child: bool) -> None:
        """Be usable again, on either side."""
        if in_child:
            self.on_fork()
        self._read_lock.release()
        self.write_lock.release()


def _roll_back(writer: apsw.Connection) -> None:
    if writer.in_transaction:
        writer.execute("ROLLBACK")
