"""The spool: durability ``process``. An entry is with the operating system when `Spool.append` returns.

One write to a file of this process's own, which survives the process; a thread takes what was written into
the journal, fsynced, within `SYNC_WITHIN_S`. What a process that died left behind is adopted by the next
runner, flush or emitter; the journal keeps repeats once, so adopting something twice does no harm.

A spool is two files, ``<stem>.0.spool`` and ``<stem>.1.spool``: one is written while the other's entries are
taken into the journal, and emptied afterwards. The first file's OS lock says that its process lives. A record
is a header (CRC-32 of what follows, body size, number, kind, size of the system name), the system name and
the body; a torn last record is one that was never acknowledged.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zlib import crc32

from waybill.transport.errors import JournalError, JournalFullError
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

SYNC_WITHIN_S: Final = 0.1
"""How long an entry may wait for its fsync."""

_HEADER: Final = struct.Struct("<IIQBH")
_AFTER_CRC: Final = 4
_GATHER_S: Final = SYNC_WITHIN_S / 4
_WAITING_BYTES_MAX: Final = 64 * 2**20
_SUFFIX: Final = ".spool"

Item = tuple[Kind, bytes, str]


class Spool:
    """One process's spool of a home; threads may share one, and it may be carried over a fork.

    Args:
        journal: where the entries go.
    """

    def __init__(self, journal: Journal) -> None:
        """Adopt what dead processes left; files are made with the first entry."""
        self._journal = journal
        self._folder = journal.home / "spool"
        adopt(journal)
        self._drain_lock = threading.Lock()
        self._forget()
        _OPEN.add(self)
        atexit.register(_sync_at_exit, weakref.ref(self))

    def _forget(self) -> None:
        """Be as new: nothing waits, no file is open."""
        self._lock = threading.Lock()
        """Guards the files' content and what waits; never held during a journal commit."""
        self._wanted = threading.Event()
        self._waiting: list[Item] = []
        self._draining: list[Item] = []
        self._waiting_bytes = 0
        self._files: list[int] = []
        self._paths: list[Path] = []
        self._active = 0
        self._number = 0
        self._generation = 0
        self._trouble: JournalError | None = None

    def append(self, kind: Kind, body: bytes, system_name: str) -> None:
        """Hand an entry to the operating system.

        Raises:
            JournalFullError: no room; the entry was not kept.
            JournalError: the disk failed; the entry was not kept.
        """
        if self._trouble is not None:
            self.sync()
        with self._lock:
            if not self._files:
                self._open()
            self._number += 1
            record = _encode(kind, body, system_name, self._number)
            try:
                _write(self._files[self._active], record)
            except OSError as error:
                raise JournalFullError(
                    f"{self._folder} cannot take it ({error}); make room on the disk, or give another home"
                ) from None
            self._waiting.append((kind, body, system_name))
            self._waiting_bytes += len(record)
            crowded = self._waiting_bytes > _WAITING_BYTES_MAX
        if crowded:
            self.sync()
        elif not self._wanted.is_set():
            self._wanted.set()

    @property
    def unsynced(self) -> bool:
        """Whether an entry waits for its fsync."""
        return bool(self._waiting or self._draining)

    def sync(self) -> None:
        """Take everything into the journal, fsynced on return.

        Raises:
            JournalError: the journal cannot take it now; the entries stay in the spool and are tried again.
        """
        with self._drain_lock:
            while self.unsynced:
                self._drain()

    def close(self) -> None:
        """Take everything into the journal and remove the files. A closed spool may be used again."""
        self.sync()
        with self._drain_lock, self._lock:
            if self._waiting:
                return
            for path in self._paths:
                path.unlink(missing_ok=True)
            self._let_go()

    def _drain(self) -> None:
        # What could not be taken last time comes first; the other file fills up meanwhile.
        if not self._draining:
            with self._lock:
                self._draining, self._waiting, self._waiting_bytes = self._waiting, [], 0
                self._active ^= 1
        try:
            self._journal.append_many(self._draining)
        except JournalError as error:
            self._trouble = error
            raise
        self._trouble = None
        os.ftruncate(self._files[self._active ^ 1], 0)
        self._draining = []

    def _run(self, thread_of: int) -> None:
        while self._generation == thread_of:
            self._wanted.wait()
            time.sleep(_GATHER_S)
            self._wanted.clear()
            # An emitter hears of trouble at its next entry; until then it is tried again.
            with contextlib.suppress(JournalError):
                self.sync()
            if self.unsynced:
                time.sleep(SYNC_WITHIN_S)
                self._wanted.set()

    def _open(self) -> None:
        self._folder.mkdir(exist_ok=True)
        stem = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._paths = [self._folder / f"{stem}.{number}{_SUFFIX}" for number in (1, 0)]
        for path in self._paths:
            # Locked before it has the name by which an adopter looks for it.
            hidden = path.with_suffix(".new")
            descriptor = os.open(
                hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            hidden.rename(path)
            self._files.append(descriptor)
        threading.Thread(
            target=self._run, args=(self._generation,), name="waybill-spool", daemon=True
        ).start()

    def _let_go(self) -> None:
        self._generation += 1
        self._wanted.set()
        for descriptor in self._files:
            os.close(descriptor)
        self._files = []
        self._wanted = threading.Event()

    def before_fork(self) -> None:
        """Finish what is under way."""
        self._drain_lock.acquire()
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Be usable again, on either side; the child begins a spool of its own."""
        if in_child:
            # The entries are the parent's, which lives on; its lock would outlive it in the child's
            # descriptors.
            for descriptor in self._files:
                os.close(descriptor)
            self._forget()
        else:
            self._lock.release()
        self._drain_lock.release()


def adopt(journal: Journal) -> int:
    """Take into the journal what processes that died left in their spools.

    Returns:
        How many entries there were.

    Raises:
        JournalError: the journal cannot take them now; they stay.
    """
    folder = journal.home / "spool"
    if not folder.is_dir():
        return 0
    adopted = 0
    for path in sorted(folder.glob(f"*.0{_SUFFIX}")):
        with _locked(path) as free:
            if free:
                other = path.with_name(path.name.replace(f".0{_SUFFIX}", f".1{_SUFFIX}"))
                items = [
                    item
                    for _, item in sorted([*_records(path), *_records(other)], key=lambda record: record[0])
                ]
                journal.append_many(items)
                adopted += len(items)
                # The locked file goes last: while it is there, nobody makes anything of the other one alone.
                other.unlink(missing_ok=True)
                path.unlink()
    return adopted


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a dead process's spool; False when its process lives or somebody else has taken it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path.exists()
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _write(descriptor: int, record: bytes) -> None:
    written = os.write(descriptor, record)
    if written < len(record):
        # A torn record would hide what follows it.
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _encode(kind: Kind, body: bytes, system_name: str, number: int) -> bytes:
    name = system_name.encode()
    head = _HEADER.pack(0, len(body), number, kind, len(name))[_AFTER_CRC:] + name
    return struct.pack("<I", crc32(body, crc32(head))) + head + body


def _records(path: Path) -> Iterator[tuple[int, Item]]:
    """The whole records of a file, with their numbers, up to the first torn one."""
    content = path.read_bytes() if path.exists() else b""
    place = 0
    while place + _HEADER.size <= len(content):
        crc, body_size, number, kind, name_size = _HEADER.unpack_from(content, place)
        body_at = place + _HEADER.size + name_size
        end = body_at + body_size
        if end > len(content) or crc32(content[place + _AFTER_CRC : end]) != crc:
            return
        yield number, (Kind(kind), content[body_at:end], content[place + _HEADER.size : body_at].decode())
        place = end


_OPEN: weakref.WeakSet[Spool] = weakref.WeakSet()
_forking: list[Spool] = []


def _before_fork() -> None:
    _forking.extend(sorted(_OPEN, key=id))
    for spool in _forking:
        spool.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for spool in _forking:
        spool.after_fork(in_child=in_child)
    _forking.clear()


def _sync_at_exit(reference: weakref.ref[Spool]) -> None:
    spool = reference()
    if spool is not None:
        # What cannot be taken now is adopted later.
        with contextlib.suppress(JournalError):
            spool.close()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(in_child=False),
    after_in_child=lambda: _after_fork(in_child=True),
)
