"""The journal: every accepted entry, in order, on disk before it is acknowledged.

One SQLite database per home, in WAL mode. What holds at every moment:

- `Journal.append` returns a sequence number only when the entry is in a committed transaction that was fsynced.
- Sequence numbers grow and are never used again; `Entry.received_ms` never decreases with them.
- The same bytes of the same kind are one entry for as long as the journal retains it.
- A cursor and the state that belongs to it change in one transaction.
- Writers of several processes queue at an OS lock before SQLite's own, which would let one of them starve.
- No read transaction outlives a call, so a checkpoint can always finish.
- Nothing of SQLite is open while the process forks: a child that inherits SQLite's record of locks believes to hold
  locks it does not have (https://www.sqlite.org/howtocorrupt.html, section 2.6).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeVar, cast

import apsw
import msgspec

from waybill.transport.errors import JournalError, JournalFullError
from waybill.transport.files import Files
from waybill.transport.mounts import refuse_network_file_system
from waybill.transport.schema import migrate

ENTRY_BYTES_MAX: Final = 256 * 2**20
"""The largest entry that is kept, in bytes."""

_CHECKPOINT_WAL_BYTES: Final = 64 * 2**20
_SIZE_CHECK_EVERY_S: Final = 1.0
_POLL_S: Final = 0.02
_BUSY_TIMEOUT_MS: Final = 30_000

_INSERT: Final = """
INSERT INTO entries (received_ms, kind, system_name, digest, body)
VALUES (max(?, coalesce((SELECT received_ms FROM entries ORDER BY seq DESC LIMIT 1), 0)), ?, ?, ?, ?)
ON CONFLICT (digest) DO NOTHING RETURNING seq
"""

_T = TypeVar("_T")


class Kind(IntEnum):
    """What an entry's body is."""

    OPENLINEAGE = 0
    """One OpenLineage event, JSON."""
    PROVENANCE = 1
    """A JSON array of DeltaFi provenance records."""
    MARK = 2
    """``settle`` or ``flush``: a moment that every projection must see at the same place of the sequence."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of the journal.

    Attributes:
        seq: its place in the sequence, from 1.
        received_ms: when it was accepted, epoch milliseconds.
        kind: what the body is.
        system_name: the name stamped on records that carry none.
        body: the bytes as accepted.
    """

    seq: int
    received_ms: int
    kind: Kind
    system_name: str
    body: bytes


class _Pending:
    """One caller's entries on their way through the group commit."""

    __slots__ = ("done", "error", "rows", "seqs")

    def __init__(self, rows: list[tuple[int, str, bytes | None, bytes]]) -> None:
        self.rows = rows
        self.seqs: list[int] = []
        self.error: apsw.Error | JournalError | None = None
        self.done = False


class Journal:
    """A home's journal; threads may share one, processes open one each, and it may be carried over a fork.

    Args:
        home: the folder; made when missing.
        max_bytes: new entries are refused when the journal's content is larger.
        vfs: SQLite's file system by name; the fault tests pass theirs.

    Raises:
        JournalError: the home cannot hold a journal, or what is there is none.
    """

    def __init__(self, home: Path, *, max_bytes: int = 10 * 2**30, vfs: str | None = None) -> None:
        """Open the journal, making or migrating it where needed."""
        self.home = home
        self.path = home / "journal.db"
        self._max_bytes = max_bytes
        self._vfs = vfs
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._lock_descriptor: int | None = None
        self._queue: deque[_Pending] = deque()
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._full = False
        self._size_checked_s = 0.0
        try:
            Files().make_folder(home)
            refuse_network_file_system(home)
        except OSError as error:
            raise JournalError(f"the home {home} cannot be used ({error}); give another one with `home`") from None
        with self._write_lock:
            self.node = str(self._writing().execute("SELECT value FROM meta WHERE key = 'node'").get)
        _OPEN.add(self)

    @staticmethod
    def exists(home: Path) -> bool:
        """Whether there is a journal at this home; nothing is made."""
        return (home / "journal.db").is_file()

    # -- appending ------------------------------------------------------------------------------------------------

    def append(self, kind: Kind, body: bytes, system_name: str = "") -> int:
        """Keep one entry; see `append_many`."""
        return self.append_many(((kind, body, system_name),))[0]

    def append_many(self, items: Iterable[tuple[Kind, bytes, str]]) -> list[int]:
        """Keep entries, all or none of them, durable on return.

        Args:
            items: kind, body and stamped system name of each.

        Returns:
            The sequence number of each; that of the first one for a repeat of bytes already there.

        Raises:
            JournalFullError: no room, on the disk or within `max_bytes`; nothing was kept.
            JournalError: the disk failed; nothing was kept.
        """
        pending = _Pending([(int(kind), system, _digest(kind, body), body) for kind, body, system in items])
        self._submit(pending)
        return pending.seqs

    def mark(self, body: Literal[b"settle", b"flush"]) -> int:
        """Append a mark and return its sequence number; marks are never refused for size."""
        pending = _Pending([(int(Kind.MARK), "", None, body)])
        self._submit(pending)
        return pending.seqs[0]

    def _submit(self, pending: _Pending) -> None:
        # Whoever holds the lock commits for everybody in the queue, so one fsync serves all who came meanwhile.
        self._queue.append(pending)
        with self._write_lock:
            if not pending.done:
                self._commit_queue()
        if pending.error is not None:
            raise _explained(pending.error, self.path) from None

    def _commit_queue(self) -> None:
        group = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            self._commit_group(group)
        finally:
            # What an interruption (KeyboardInterrupt) left undone goes back for the threads that wait for it.
            self._queue.extendleft(pending for pending in reversed(group) if not pending.done)

    def _commit_group(self, group: Sequence[_Pending]) -> None:
        try:
            seqs = self._transact(lambda writer: [self._insert(writer, pending) for pending in group])
        except (apsw.Error, JournalError) as error:
            if len(group) == 1:
                group[0].error = error
                group[0].done = True
                return
            for pending in group:
                self._commit_group([pending])
            return
        for pending, assigned in zip(group, seqs, strict=True):
            pending.seqs = assigned
            pending.done = True

    def _insert(self, writer: apsw.Connection, pending: _Pending) -> list[int]:
        now_ms = time.time_ns() // 1_000_000
        self._check_size(writer)
        seqs = []
        for kind, system_name, digest, body in pending.rows:
            if self._full and kind != Kind.MARK:
                raise JournalFullError(
                    f"the journal at {self.path} has reached journal_max_bytes = {self._max_bytes}; "
                    "let its projections catch up (`waybill status`), or raise the setting"
                )
            seq = writer.execute(_INSERT, (now_ms, kind, system_name, digest, body)).get
            if seq is None:
                seq = writer.execute("SELECT seq FROM entries WHERE digest = ?", (digest,)).get
            seqs.append(cast("int", seq))
        return seqs

    def _check_size(self, writer: apsw.Connection) -> None:
        now_s = time.monotonic()
        if now_s - self._size_checked_s < _SIZE_CHECK_EVERY_S:
            return
        self._size_checked_s = now_s
        self._full = _content_bytes(writer) >= self._max_bytes

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, after: int, *, limit: int = 1000, max_bytes: int = 64 * 2**20) -> list[Entry]:
        """The entries that follow, in order: at least one if there is any, else up to both limits."""
        entries: list[Entry] = []
        size_bytes = 0
        with self._reading() as reader:
            query = "SELECT seq, received_ms, kind, system_name, body FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"
            cursor = reader.execute(query, (after, limit))
            for seq, received_ms, kind, system_name, body in cursor:
                size_bytes += len(body)
                if entries and size_bytes > max_bytes:
                    cursor.close(force=True)
                    break
                entries.append(Entry(seq, received_ms, Kind(kind), system_name, body))
        return entries

    def last_seq(self) -> int:
        """The newest entry's sequence number; 0 for an empty journal."""
        with self._reading() as reader:
            return int(reader.execute("SELECT coalesce(max(seq), 0) FROM entries").get)

    def first(self) -> Entry | None:
        """The oldest entry that is still there."""
        return next(iter(self.read(0, limit=1)), None)

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until there is an entry beyond `after`; False when the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while self.last_seq() <= after:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def size_bytes(self) -> int:
        """The size of the journal's content, without room that is free for reuse."""
        with self._reading() as reader:
            return _content_bytes(reader)

    # -- projections ----------------------------------------------------------------------------------------------

    def cursor(self, projection: str) -> int:
        """The last entry that a projection has made durable; 0 before its first."""
        with self._reading() as reader:
            return int(reader.execute("SELECT coalesce(max(seq), 0) FROM cursors WHERE projection = ?", (projection,)).get)

    def cursors(self) -> dict[str, int]:
        """Every projection that ever moved its cursor, and where it stands."""
        with self._reading() as reader:
            return dict(reader.execute("SELECT projection, seq FROM cursors").fetchall())

    def state(self, projection: str, prefix: str = "") -> dict[str, bytes]:
        """What a projection keeps under the keys that begin with `prefix`."""
        with self._reading() as reader:
            query = "SELECT key, value FROM state WHERE projection = ? AND key >= ? AND key < ?"
            return dict(reader.execute(query, (projection, prefix, prefix + "\U0010ffff")).fetchall())

    def state_get(self, projection: str, key: str) -> bytes | None:
        """What a projection keeps under one key."""
        with self._reading() as reader:
            row = reader.execute("SELECT value FROM state WHERE projection = ? AND key = ?", (projection, key)).get
            return cast("bytes | None", row)

    def commit(
        self,
        projection: str,
        *,
        cursor: int | None = None,
        put: Mapping[str, bytes] | None = None,
        delete: Iterable[str] = (),
    ) -> None:
        """Move a projection's cursor and change its state in one transaction, fsynced on return.

        Raises:
            JournalError: the disk failed or is full; nothing changed.
        """

        def change(writer: apsw.Connection) -> None:
            keys = [(projection, key) for key in delete]
            writer.executemany("DELETE FROM state WHERE projection = ? AND key = ?", keys)
            rows = [(projection, key, value) for key, value in (put or {}).items()]
            statement = "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
            writer.executemany(statement, rows)
            if cursor is not None:
                statement = "INSERT INTO cursors VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = excluded.seq"
                writer.execute(statement, (projection, cursor))

        try:
            with self._write_lock:
                self._transact(change)
        except apsw.Error as error:
            raise _explained(error, self.path) from None

    # -- housekeeping ---------------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """One of the home's own notes, for example the settings its runner works by."""
        with self._reading() as reader:
            return cast("str | None", reader.execute("SELECT value FROM meta WHERE key = ?", (key,)).get)

    def set_meta(self, key: str, value: str) -> None:
        """Write one of the home's own notes."""
        statement = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
        with self._write_lock:
            self._transact(lambda writer: writer.execute(statement, (key, value)))

    def prune(self, upto_seq: int, received_before_ms: int, *, limit: int = 10_000) -> int:
        """Let go of old entries, oldest first; the newest one always stays.

        Args:
            upto_seq: the last that may go: every projection that is asked for has it.
            received_before_ms: only entries accepted before this instant go.
            limit: the most that one call removes, so that writers do not wait long.

        Returns:
            How many went.
        """
        query = """
        DELETE FROM entries WHERE seq IN (
            SELECT seq FROM entries
            WHERE seq <= min(?, (SELECT max(seq) FROM entries) - 1) AND received_ms < ? ORDER BY seq LIMIT ?
        )
        """

        def remove(writer: apsw.Connection) -> int:
            writer.execute(query, (upto_seq, received_before_ms, limit))
            return writer.changes()

        with self._write_lock:
            return self._transact(remove)

    def checkpoint(self) -> None:
        """Move what the WAL holds into the database, as far as no writer has to wait for it."""
        with self._write_lock:
            self._writing().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def wal_bytes(self) -> int:
        """The size of the WAL file."""
        with contextlib.suppress(OSError):
            return self._wal.stat().st_size
        return 0

    def close(self) -> None:
        """Let go of the database. A closed journal may be used again; it opens anew."""
        with self._write_lock, self._read_lock:
            self._disconnect()

    # -- connections ----------------------------------------------------------------------------------------------

    @property
    def _wal(self) -> Path:
        return self.home / "journal.db-wal"

    def _transact(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """Do `work` in one write transaction; the caller holds `_write_lock`."""
        writer = self._writing()
        descriptor = self._os_lock_descriptor()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            writer.execute("BEGIN IMMEDIATE")
            result = work(writer)
            writer.execute("COMMIT")
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        return result

    def _os_lock_descriptor(self) -> int:
        if self._lock_descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock_descriptor = os.open(self.home / "journal.lock", flags, 0o644)
        return self._lock_descriptor

    @contextlib.contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._read_lock:
            if self._reader is None:
                self._reader = self._connect(apsw.SQLITE_OPEN_READWRITE)
            yield self._reader

    def _writing(self) -> apsw.Connection:
        """The connection that writes; the caller holds `_write_lock`."""
        if self._writer is None:
            descriptor = self._os_lock_descriptor()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                writer = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                migrate(writer, node=secrets.token_hex(6))
            except apsw.Error as error:
                raise _explained(error, self.path) from None
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._writer = writer
        return self._writer

    def _connect(self, flags: int) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, ENTRY_BYTES_MAX)
        # The default, a checkpoint by the last connection that closes, would delete the WAL under a forked child.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if flags & apsw.SQLITE_OPEN_CREATE:
            connection.pragma("synchronous", "FULL")
            connection.pragma("journal_mode", "wal")
        # A pipeline never waits for a checkpoint; the runner makes them, and without one the WAL grows this far.
        connection.wal_autocheckpoint(_CHECKPOINT_WAL_BYTES // 4096)
        return connection

    def _disconnect(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()
        self._writer = self._reader = None
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()
_forking: list[Journal] = []


def _before_fork() -> None:
    _forking.extend(sorted(_OPEN, key=id))
    for journal in _forking:
        journal._write_lock.acquire()
        journal._read_lock.acquire()
        journal._disconnect()


def _after_fork_in_parent() -> None:
    for journal in _forking:
        journal._read_lock.release()
        journal._write_lock.release()
    _forking.clear()


def _after_fork_in_child() -> None:
    for journal in _forking:
        journal._queue.clear()  # other threads' entries: they are committed by the parent, where those threads live on
    _after_fork_in_parent()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)


def _digest(kind: Kind, body: bytes) -> bytes:
    return blake2b(body, digest_size=16, salt=bytes((kind,))).digest()


def _content_bytes(connection: apsw.Connection) -> int:
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    return pages * int(connection.pragma("page_size"))


def _explained(error: apsw.Error | JournalError, path: Path) -> JournalError:
    """The same error in words that say what to do."""
    if isinstance(error, JournalError):
        return error
    if isinstance(error, apsw.FullError):
        return JournalFullError(f"the disk of {path} is full and the entry was not kept; make room there, or give another home")
    if isinstance(error, apsw.TooBigError):
        return JournalError(f"an entry is larger than {ENTRY_BYTES_MAX} bytes and was not kept; leave out its largest facet")
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return JournalError(f"{path} is damaged or no journal ({error}); move it away to start a new one, and keep it for recovery")
    return JournalError(f"{path} cannot be read or written ({error}); check the disk and the permissions of the home")
