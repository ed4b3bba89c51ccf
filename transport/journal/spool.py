"""The spool: durability ``process``. When `Spool.append` returns, the operating system has the entry.

An append is one write to a file of this process's own, which survives the process; a thread fsyncs it within
`SYNC_WITHIN_S`. The home's runner, or a flush, adopts the written entries, that is, moves them into the
journal. So a pipeline pays for one write, and another process does SQLite's work.

A spool is a series of segments, ``<stem>.<number>.spool``; the stem names the program. The segment being
written is locked; it is closed when it is old or large. Closed segments, and segments of processes that died,
are adopted and removed. The journal keeps repeats once, so adopting a segment twice does no harm. A record is
a header (CRC-32 of the rest, body size, kind, size of the system name), the system name and the body. A torn
last record was never acknowledged. Any other incomplete record is damaged: the others are adopted, and the
segment is kept as ``<segment>.spool.damaged`` until somebody deletes it. A segment that is deleted while it
is written is rewritten from the file that is still open.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast
from zlib import crc32

from ..errors import JournalError, JournalFullError, reason_of
from ..files import Files, sync
from ..fork_safety import survive_forks
from ..permissions import make_private, open_private
from ..programs import this_program
from .entry import Kind

if TYPE_CHECKING:
    from .journal import Journal
    from .rows import Item

SYNC_WITHIN_S: Final = 0.1
"""How long an entry may wait for its fsync."""

_HEADER: Final = struct.Struct("<IIBH")
_CRC_BYTES: Final = 4
_GATHER_S: Final = SYNC_WITHIN_S / 4
_SUFFIX: Final = ".spool"
_DAMAGED: Final = ".damaged"
_FOLDER: Final = "spool"

_PROGRAM: Final = re.compile(r"\d+-(?P<program>[0-9a-f]+(?:\.[0-9a-f]+){4})-")

# No text has such a byte.
_KIND: Final = re.compile(b"[%b]" % bytes(Kind))
_KIND_AT: Final = 8

log = logging.getLogger("waybill.transport")


class _Segment:
    """A file of this process's own, locked while it is written."""

    def __init__(self, folder: Path, name: str) -> None:
        make_private(folder)
        # Locked before it gets the name that adopters look for.
        hidden = folder / f"{name}.new"
        self.descriptor = open_private(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        hidden.rename(folder / f"{name}{_SUFFIX}")
        self.size_bytes = 0
        self.begun_s = float("inf")
        """When its first record was written, on the monotonic clock."""
        self.is_torn = False
        """Whether it ends in a part of a record, which would hide all later records."""
        self._folder = folder
        self._name_is_durable = False

    @property
    def is_deleted(self) -> bool:
        """Whether somebody has deleted it, so that nobody can adopt its entries."""
        return os.fstat(self.descriptor).st_nlink == 0

    def content(self) -> bytes:
        """The records that were written to it."""
        return os.pread(self.descriptor, self.size_bytes, 0)

    def write(self, record: bytes) -> None:
        if self.is_torn:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        written_bytes = os.write(self.descriptor, record)
        if written_bytes < len(record):
            self.is_torn = True
            os.ftruncate(self.descriptor, self.size_bytes)
            self.is_torn = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not self.size_bytes:
            self.begun_s = time.monotonic()
        self.size_bytes += written_bytes

    def sync(self) -> None:
        sync(self.descriptor)
        if not self._name_is_durable:
            Files().fsync_folder(self._folder)
            self._name_is_durable = True

    def close(self) -> None:
        """Leave it to adopters; closing the descriptor releases its lock."""
        os.close(self.descriptor)


class Spool:
    """One process's spool of a home; see `Spool.open`.

    Threads may share one, and it may be used across a fork.

    Args:
        journal: the journal that the entries go to.
        segment_bytes: a segment of this size is closed.
        segment_s: a segment of this age is closed.
        adopt_every_bytes: if nobody has adopted this many bytes, this process adopts them itself.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        segment_bytes: int = 2**20,
        segment_s: float = 0.25,
        adopt_every_bytes: int = 64 * 2**20,
    ) -> None:
        self._journal = journal
        self._folder = journal.home / _FOLDER
        self._segment_bytes = segment_bytes
        self.segment_s = segment_s
        self._adopt_every_bytes = adopt_every_bytes
        self._reset()

    def open(self) -> Self:
        """Adopt the entries of earlier spools, and close this one when the process ends.

        Raises:
            JournalError: the journal cannot take the entries of earlier spools.
        """
        adopt(self._journal)
        survive_forks(self)
        atexit.register(_close_at_exit, weakref.ref(self))
        return self

    def _reset(self) -> None:
        """Start with no segment and nothing to fsync, in a new spool and in the child of a fork."""
        # Reentrant, because a signal handler may append in the middle of an append.
        self._lock = threading.RLock()
        self._sync_lock = threading.RLock()
        """Held while segments are synced or closed; taken before `_lock`."""
        self._wanted = threading.Event()
        """Set while something waits for its fsync."""
        weakref.finalize(self, self._wanted.set)  # the thread ends with the spool
        self._thread: threading.Thread | None = None
        self._segment: _Segment | None = None
        owner = this_program() or os.getpid()
        self._stem = f"{time.time_ns() // 1_000_000:014}-{owner}-{secrets.token_hex(3)}"
        self._number = 0
        self._unadopted_bytes = 0
        self._syncing = False

    def append(self, kind: Kind, body: bytes, system_name: str) -> None:
        """Hand an entry to the operating system.

        Raises:
            JournalFullError: the disk is full; the entry was not kept.
            JournalError: the disk failed; the entry was not kept.
        """
        record = _encode(kind, body, system_name)
        if self._unadopted_bytes > self._adopt_every_bytes:  # nobody else has adopted it in time
            self._adopt()
        with self._lock:  # so that nobody closes it at the same time
            goes_on = self._segment is None or not (self._segment.is_torn or self._segment.is_deleted)
        if not goes_on:
            self.sync()  # starts another segment
        with self._lock:
            try:
                segment = self._segment
                if segment is None:
                    segment = self._new_segment()
                    if self._segment is None:
                        self._segment = segment
                    else:  # a signal handler has interrupted this append, and has started one
                        segment.close()
                        segment = self._segment
                segment.write(record)
            except OSError as error:
                raise JournalFullError(
                    f"{self._folder} cannot take it ({reason_of(error)}); free space there, or give "
                    "another home"
                ) from None
            self._unadopted_bytes += len(record)
        if not self._wanted.is_set():
            self._wanted.set()
            if self._thread is None:
                self._start_thread()

    @property
    def in_use(self) -> bool:
        """Whether the open segment has entries, so that it must be closed before long."""
        return self._segment is not None and self._segment.size_bytes > 0

    @property
    def unsynced(self) -> bool:
        """Whether an entry waits for its fsync."""
        return self._syncing or self._wanted.is_set()

    def sync(self) -> None:
        """Make everything appended so far durable.

        Raises:
            JournalError: the disk failed.
        """
        with self._sync_lock:
            self._syncing = True
            self._wanted.clear()
            try:
                self._sync_segment()
            except OSError as error:
                self._wanted.set()
                raise JournalError(
                    f"{self._folder} cannot be synced ({reason_of(error)}); check the disk of the home"
                ) from None
            finally:
                self._syncing = False

    def close(self) -> None:
        """Move everything into the journal and leave no file. A closed spool may be used again.

        Raises:
            JournalError: the journal cannot take the entries now; they stay in the spool until it can.
        """
        self.sync()
        with self._sync_lock, self._lock:
            if self._segment is not None:
                self._segment.close()
                self._segment = None
        self._adopt()

    def _sync_segment(self) -> None:
        segment = self._segment
        if segment is None:
            return
        if segment.is_deleted:
            self._save(segment)
            segment = cast("_Segment", self._segment)
        is_old = time.monotonic() - segment.begun_s >= self.segment_s
        if is_old or segment.is_torn or segment.size_bytes >= self._segment_bytes:
            # Without space for another file, this one stays in use, and is synced all the same.
            with contextlib.suppress(OSError):
                following = self._new_segment()
                with self._lock:
                    self._segment = following
        try:
            segment.sync()
        except OSError:
            # The next attempt may succeed although the kernel has dropped what it could not write. So the
            # segment is closed, and its adopter writes its entries again.
            with self._lock:
                if self._segment is segment:
                    self._segment = None
            segment.close()
            raise
        if segment.is_deleted:  # meanwhile
            self._save(segment)
        elif segment is not self._segment:
            segment.close()

    def _save(self, deleted: _Segment) -> None:
        """Write the content of a deleted segment to a new one; the caller holds `_sync_lock`."""
        saved = self._new_segment()
        try:
            with self._lock:
                if deleted.size_bytes:
                    saved.write(deleted.content())
                if self._segment is deleted:
                    self._segment = saved
            saved.sync()
        finally:
            if self._segment is not saved:
                saved.close()
        deleted.close()
        log.warning("a file in %s was deleted while in use; its content is in a new file", self._folder)

    def _new_segment(self) -> _Segment:
        home = self._journal.home
        if not home.is_dir():  # it was deleted, and is not created again
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(home))
        self._number += 1
        return _Segment(self._folder, f"{self._stem}.{self._number:08}")

    def _adopt(self) -> None:
        adopt(self._journal)
        self._unadopted_bytes = 0

    def _start_thread(self) -> None:
        with self._sync_lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=_keep_syncing,
                    args=(weakref.ref(self), self._wanted),
                    name="waybill-spool",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:
                    # From 3.12 on no thread can be started once the interpreter shuts down.
                    with contextlib.suppress(JournalError):
                        self.sync()
                else:
                    self._thread = thread

    def before_fork(self) -> None:
        """Wait for the current append and sync."""
        self._sync_lock.acquire()
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Become usable again; the child starts a spool of its own."""
        if not in_child:
            self._lock.release()
            self._sync_lock.release()
            return
        if self._segment is not None:
            # The lock belongs to the parent; this descriptor would keep it after the parent's death.
            self._segment.close()
        self._reset()


def _close_at_exit(reference: weakref.ref[Spool]) -> None:
    spool = reference()
    if spool is not None:
        # Entries that the journal cannot take now are adopted later.
        with contextlib.suppress(JournalError):
            spool.close()


def _keep_syncing(reference: weakref.ref[Spool], wanted: threading.Event) -> None:
    timeout_s: float | None = None
    while True:
        if wanted.wait(timeout_s):
            time.sleep(_GATHER_S)
        spool = reference()
        if spool is None:
            return
        # A disk that fails here also fails at the next append, which can raise an error in its caller.
        with contextlib.suppress(JournalError):
            spool.sync()
        timeout_s = spool.segment_s if spool.in_use else None
        del spool


def adopt(journal: Journal, *, living: bool = False) -> int:
    """Move the entries of the home's spools into the journal: of closed segments, and of processes that died.

    Args:
        journal: the home's journal.
        living: also adopt the entries of live processes so far; their segments stay.

    Returns:
        The number of entries that were read.

    Raises:
        JournalError: the journal cannot take them now; they stay in the spools.
    """
    folder = journal.home / _FOLDER
    try:
        return sum(_adopt(path, journal, living=living) for path in sorted(folder.glob(f"*{_SUFFIX}")))
    except OSError as error:
        what = f"{folder} cannot be emptied ({reason_of(error)})"
        raise JournalError(f"{what}; check the disk of the home") from None


def waiting(home: Path) -> bool:
    """Whether a home's spools hold entries that may not be in the journal yet."""
    for path in (home / _FOLDER).glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size:
                return True
    return False


def damaged_spools(home: Path) -> list[Path]:
    """The segments of a home's spools that were adopted without damaged records, until they are deleted."""
    return sorted((home / _FOLDER).glob(f"*{_SUFFIX}{_DAMAGED}"))


def _adopt(path: Path, journal: Journal, *, living: bool) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        is_free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it is being written, or another process is adopting it
            is_free = False
        if not (is_free or living):
            return 0
        items, is_damaged = _records(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        named = _PROGRAM.match(path.name)
        journal.append_many(items, program=named["program"] if named else None)
        if is_free and is_damaged:
            kept = path.rename(path.with_name(path.name + _DAMAGED))
            log.error("%s is damaged, and some of its entries are lost; the others were adopted", kept)
        elif is_free:
            path.unlink(missing_ok=True)
        return len(items)
    finally:
        os.close(descriptor)


def _encode(kind: Kind, body: bytes, system_name: str) -> bytes:
    name = system_name.encode()
    head = _HEADER.pack(0, len(body), kind, len(name))[_CRC_BYTES:] + name
    return struct.pack("<I", crc32(body, crc32(head))) + head + body


def _records(content: bytes) -> tuple[list[Item], bool]:
    """The whole records of a segment, and whether it has damaged ones."""
    items: list[Item] = []
    at, is_damaged = 0, False
    while at < len(content):
        item, end = _record_at(content, at)
        if item is not None:
            items.append(item)
            at = end
            continue
        is_damaged |= end == len(content)  # a torn one ends beyond
        following = (kind.start() - _KIND_AT for kind in _KIND.finditer(content, at + _KIND_AT + 1))
        found = next((start for start in following if _record_at(content, start)[0] is not None), None)
        if found is None:
            break
        at, is_damaged = found, True
    return items, is_damaged


def _record_at(content: bytes, at: int) -> tuple[Item | None, int]:
    """The record that begins here, None if it is incomplete; and its end according to its header."""
    if at + _HEADER.size > len(content):
        return None, at + _HEADER.size
    crc, body_bytes, kind, name_bytes = _HEADER.unpack_from(content, at)
    body_at = at + _HEADER.size + name_bytes
    end = body_at + body_bytes
    if end > len(content) or crc32(memoryview(content)[at + _CRC_BYTES : end]) != crc:
        return None, end
    return (Kind(kind), content[body_at:end], content[at + _HEADER.size : body_at].decode()), end
