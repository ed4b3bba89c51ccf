"""The journal's SQLite database: its connections, and who may write when.

- Writers of several processes queue at an OS lock before SQLite's own, which would let one of them starve.
- No read transaction outlives a call, so a checkpoint can always finish.
- Each commit first checks that the open files are still those at the path, see `watch`.
- Nothing of SQLite is open while the process forks: a child that inherits SQLite's record of locks believes
  it holds locks that it does not have (https://www.sqlite.org/howtocorrupt.html, section 2.6).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import apsw

from ..clock import SYSTEM_CLOCK, Clock
from ..errors import JournalError, JournalFullError, JournalTooLargeError, reason_of
from ..files import sync
from ..fork_safety import survive_forks
from ..permissions import file_mode, open_private
from .nodes import new_node
from .rescue import begin_anew, check_without_log, note_made, save, take_back
from .schema import make_tables
from .watch import Watch, log_of

ENTRY_BYTES_MAX: Final = 256 * 2**20
"""The largest entry that is kept, in bytes."""

log = logging.getLogger("waybill.transport")

_CHECKPOINT_WAL_BYTES: Final = 64 * 2**20
_LOOK_EVERY_S: Final = 1.0
_RESCUE_EVERY_S: Final = 10.0
_BUSY_TIMEOUT_MS: Final = 30_000

_T = TypeVar("_T")


class Database:
    """One process's access to a journal's database; it connects at its first use.

    Every method raises a `JournalError` if the disk fails or is full, the database is damaged, or its files
    were deleted, replaced or truncated. In the last case the files that are still open are saved, see
    `rescue`.

    Args:
        path: the file; its folder exists.
        clock: spaces out fsyncs, and checks of the files between commits.
    """

    def __init__(self, path: Path, vfs: str | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._vfs = vfs
        self.clock: Final = clock
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._watch = Watch(path)
        self._look_due_s = float("-inf")
        self._lost: str | None = None
        """Why it cannot be used any more."""
        self._rescue_due_s = float("inf")
        """When to try again to save the open files, after a failure."""
        self._lock_descriptor: int | None = None
        self._close_descriptor: weakref.finalize[[int], Database] | None = None
        """Closes it even if nobody calls `close`; connections do that by themselves."""
        self.write_lock = threading.RLock()
        """Held by the thread that writes. A signal handler in that thread passes it, see `refuse_reentry`."""
        self._is_lazy = False
        """Whether the writer's commits are not fsynced."""
        self._has_unsynced, self._synced_s = False, float("-inf")
        self._is_log_synced = False
        """Whether nobody has changed anything since this process's last fsync, as far as its writer knows."""
        self._in_transaction = False
        self._read_lock = threading.Lock()
        self.on_fork: Callable[[], None] = lambda: None
        """Called in the child of a fork, before anything else uses the database there."""
        self.on_change: Callable[[apsw.Connection], None] = lambda _: None
        """Called in a write transaction if another connection has written since the last one."""
        self._version: int | None = None
        """SQLite's version of the data that this process last wrote or saw; every commit changes it."""
        survive_forks(self)

    def write(self, work: Callable[[apsw.Connection], _T], *, durable: bool = True) -> _T:
        """Do `work` in one write transaction, which is fsynced on return if `durable` is set.

        Otherwise the operating system has it on return. The next durable change of any process makes it
        durable, because all share one log; so do a checkpoint and `sync`. If `work` raises, nothing changes.
        """
        with self.write_lock:
            self.refuse_reentry()
            return self._write(work, durable=durable)

    def _write(self, work: Callable[[apsw.Connection], _T], *, durable: bool) -> _T:
        writer = self._writing()
        if durable == self._is_lazy:
            writer.pragma("synchronous", "FULL" if durable else "NORMAL")
            self._is_lazy = not durable
        descriptor = self._os_lock_descriptor()
        try:
            self._in_transaction = True
            # Within the `try`, so that an interruption right after it does not leave other processes waiting.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._refuse_lost()
            written = _pages_written(writer)
            writer.execute("BEGIN IMMEDIATE")
            if writer.data_version() != self._version:
                self._is_log_synced = False
                self.on_change(writer)
            result = work(writer)
            writer.execute("COMMIT")
            self._version = writer.data_version()
            # SQLite writes and fsyncs nothing if nothing changes, which includes rows that stay as they are.
            if _pages_written(writer) != written:
                self._has_unsynced, self._is_log_synced = not durable, durable
                if durable:
                    self._synced_s = self.clock.monotonic_s()
            elif durable and not self._is_log_synced:
                # What `work` has found, such as the first of a repeat, may itself not be durable yet.
                self.sync_all()
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

    @property
    def has_unsynced(self) -> bool:
        """Whether this process has made a change that may not be durable yet."""
        return self._has_unsynced

    def sync(self, after_s: float = 0.0) -> float | None:
        """Fsync the changes that `write` did not, `after_s` after the last fsync.

        Returns the seconds until then; None if nothing is left to fsync.
        """
        left_s = self._synced_s + after_s - self.clock.monotonic_s()
        if not self._has_unsynced:
            return None
        if left_s > 0:
            return left_s
        self.sync_all()
        return None

    def sync_all(self) -> None:
        """Fsync every change up to now, of whichever process."""
        # Set before the fsync, which may not include what other threads write meanwhile.
        self._has_unsynced, self._is_log_synced = False, True
        # SQLite fsyncs no commit that changes nothing, but it holds no lock on the log either.
        try:
            with log_of(self._path).open("rb") as log:
                sync(log.fileno())
        except OSError as error:
            self._has_unsynced, self._is_log_synced = True, False
            what = f"{self._path} cannot be fsynced ({reason_of(error)})"
            raise JournalError(f"{what}; check the disk") from None
        self._synced_s = self.clock.monotonic_s()

    def refuse_reentry(self) -> None:
        """Refuse a signal handler that interrupts this thread's own write; the caller holds `write_lock`."""
        if self._in_transaction:
            raise JournalError(
                f"{self._path} cannot be written by a signal handler that interrupts a write; "
                "note the signal there and write after it, or raise an exception"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection for reading; one thread has it at a time."""
        if self._lost or self._reader is None or self.clock.monotonic_s() >= self._look_due_s:
            self._look()
        with self._read_lock:
            try:
                if self._reader is None:
                    self._reader = self._connect(apsw.SQLITE_OPEN_READWRITE)
                yield self._reader
            except apsw.Error as error:
                raise self._explained(error) from None

    def prepare(self) -> None:
        """Create the database if there is none; raises a `JournalError` if the file is no journal."""
        with self.write_lock:
            self._writing()

    def checkpoint(self) -> None:
        """Move the content of the WAL into the database, so that the next writer starts the WAL again.

        Most of it is moved while others write. Writers wait only while their additions during that time are
        moved. Otherwise the WAL would grow for as long as somebody writes, and a file that grows is slower to
        fsync than one that is overwritten.
        """
        with self.write_lock:
            try:
                self._look()
                writer = self._writing()
                writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                with self._os_locked():
                    self._refuse_lost()
                    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.BusyError:
                pass  # another process is making a checkpoint
            except apsw.Error as error:
                raise self._explained(error) from None

    def close(self) -> None:
        """Close every connection; the next use connects again."""
        with self.write_lock:
            self._save_lost()
            with self._read_lock:
                self._disconnect()

    # -- the watch -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Raise a `JournalError` if the files are no longer those that were opened."""
        self._look_due_s = self.clock.monotonic_s() + _LOOK_EVERY_S
        if self._lost or self._watch.trouble():
            with self.write_lock, self._os_locked():
                self._refuse_lost()

    def _refuse_lost(self) -> None:
        """Do the same as `_look`; the caller holds both locks of the writers."""
        if self._lost is None or self.clock.monotonic_s() >= self._rescue_due_s:
            trouble = self._watch.trouble()
            if trouble is None:
                return
            self._rescue_due_s = float("inf")
            self._lost = f"{trouble} while it was open, and nothing more is kept; {self._rescue()}"
            log.error("%s", self._lost)
        raise JournalError(self._lost)

    def _rescue(self) -> str:
        """Save the open files, and return what to do next as the end of a sentence."""
        if not self._path.parent.is_dir():
            return "its whole home is gone; give another one"
        if self._writer is None and self._reader is None:
            return "other programs of this home may have saved the journal; start this one again"
        try:
            saved = self._save()
        except (OSError, apsw.Error) as error:
            self._rescue_due_s = self.clock.monotonic_s() + _RESCUE_EVERY_S
            why = reason_of(error)
            return f"the rest cannot be saved ({why}): free space there, and keep {self._path} for recovery"
        return (
            f"everything that was acknowledged is in {saved}: move the rest of {self._path.name} away and "
            "restart the programs of this home, which then continue with the saved journal"
        )

    def _save(self) -> Path:
        if self._writer is not None:
            return save(self._writer, self._path)
        with self._read_lock:
            if self._reader is None:
                raise FileNotFoundError("another thread has closed it")
            return save(self._reader, self._path)

    def _save_lost(self) -> None:
        """Save the open files if those at the path are lost, because they are about to be closed."""
        if self._writer is not None or self._reader is not None:
            with contextlib.suppress(JournalError):
                self._look()

    # -- connections -----------------------------------------------------------------------------------------

    def _os_lock_descriptor(self) -> int:
        if self._lock_descriptor is None:
            try:
                self._lock_descriptor = open_private(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
            except OSError as error:
                kind = JournalFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else JournalError
                raise kind(
                    f"{self._path} cannot be locked ({reason_of(error)}); "
                    "check the disk and the permissions of the home"
                ) from None
            self._close_descriptor = weakref.finalize(self, os.close, self._lock_descriptor)
            self._close_descriptor.atexit = False
        return self._lock_descriptor

    @contextlib.contextmanager
    def _os_locked(self) -> Iterator[None]:
        descriptor = self._os_lock_descriptor()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _writing(self) -> apsw.Connection:
        """The connection that writes; the caller holds `write_lock`."""
        if self._writer is None:
            with self._os_locked():
                self._refuse_lost()
                try:
                    take_back(self._path)
                    check_without_log(self._path, self._vfs)
                    writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                    make_tables(writer, node=new_node())
                    self._watch.opened()
                    note_made(self._os_lock_descriptor())
                except (apsw.Error, OSError) as error:
                    raise self._explained(error) from None
            self._writer, self._is_lazy = writer, False
        return self._writer

    def _connect(self, flags: int) -> apsw.Connection:
        is_new = bool(flags & apsw.SQLITE_OPEN_CREATE) and not self._path.exists()
        connection = apsw.Connection(str(self._path), flags=flags, vfs=self._vfs)
        if is_new:
            self._path.chmod(file_mode(self._path.parent))  # which SQLite gives the WAL, too
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, ENTRY_BYTES_MAX)
        # The default, a checkpoint by the last connection that closes, would delete the WAL under a child.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if flags & apsw.SQLITE_OPEN_CREATE:
            connection.pragma("synchronous", "FULL")
            connection.pragma("fullfsync", 1)  # for macOS; it does nothing elsewhere
            connection.pragma("journal_mode", "wal")
        # The runner makes the checkpoints, so that pipelines wait for none. Without it the WAL grows to this.
        connection.wal_autocheckpoint(_CHECKPOINT_WAL_BYTES // 4096)
        return connection

    def _disconnect(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()
        self._writer = self._reader = self._version = None
        self._watch.closed()
        if self._close_descriptor is not None:
            self._close_descriptor()
            self._lock_descriptor = self._close_descriptor = None

    def _explained(self, error: apsw.Error | OSError) -> JournalError:
        """Turn an error of SQLite or of the system into one that says what to do."""
        path = self._path
        if isinstance(error, apsw.FullError):
            return JournalFullError(
                f"the disk of the home {path.parent} is full, and nothing more is kept; free space there, "
                "nothing that was acknowledged is lost"
            )
        if isinstance(error, (apsw.TooBigError, apsw.NoMemError)):
            return JournalTooLargeError(
                f"a value of over {ENTRY_BYTES_MAX} bytes, or more than there is memory for, was not kept; "
                "leave out the largest facet"
            )
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            return JournalError(
                f"{path} is damaged or is no journal ({error}); restore a copy, or {begin_anew(path.parent)}"
            )
        return JournalError(
            f"{path} cannot be read or written ({reason_of(error)}); "
            "check the disk and the permissions of the home"
        )

    def before_fork(self) -> None:
        """Wait for the current write and read, and close every connection."""
        self.write_lock.acquire()
        self._save_lost()
        self._read_lock.acquire()
        self._disconnect()

    def after_fork(self, *, in_child: bool) -> None:
        """Become usable again, in the parent and in the child."""
        if in_child:
            self.on_fork()
        self._read_lock.release()
        self.write_lock.release()


def _pages_written(writer: apsw.Connection) -> int:
    return writer.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


def _roll_back(writer: apsw.Connection) -> None:
    if writer.in_transaction:
        writer.execute("ROLLBACK")
