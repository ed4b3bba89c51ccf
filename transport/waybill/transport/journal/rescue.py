"""The rescue of a journal whose files were deleted, replaced or truncated while programs had it open.

The first of them that notices saves what it still has open as ``journal.saved-<time>.db`` beside it, and one
that had more of it open saves that in its place. All of them keep nothing more. Whoever opens the home next
goes on with the saved journal, unless another one has taken its place: then somebody has to choose.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from typing import TYPE_CHECKING, Final, cast

import apsw

from waybill.transport import locks
from waybill.transport.errors import JournalError
from waybill.transport.files import Files
from waybill.transport.journal.watch import log_of
from waybill.transport.permissions import open_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger("waybill.transport")

_SAVED: Final = "journal.saved-*.db"
_META_KEY: Final = "saved_as"


def save(connection: apsw.Connection, path: Path) -> Path:
    """Save what a connection still has of the journal that was at `path`, once for all who have it open.

    Whoever opened the database without the log that the others still have open has less than they: what is
    saved in the end is what has all of it, whoever comes first.

    The caller holds the lock of the journal's writers.

    Raises:
        OSError, apsw.Error: it cannot be saved.
    """
    note = "SELECT value FROM meta WHERE key = ?"
    if earlier := connection.execute(note, (_META_KEY,)).get:
        return path.with_name(str(earlier))
    newest, saved, less = _newest(connection), None, []
    for other in saved_journals(path.parent):
        with contextlib.suppress(apsw.Error), _reading(other, connection.open_vfs) as there:
            if _has(there, newest):
                saved = other
            elif _has(connection, _newest(there)):
                less.append(other)
    if saved is None:
        saved = _write(connection, path)
        for other in less:
            other.unlink()
    # For the others; the copy does not have it.
    connection.execute("INSERT INTO meta VALUES (?, ?)", (_META_KEY, saved.name))
    return saved


def _write(connection: apsw.Connection, path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    endings = itertools.chain([""], (f".{number}" for number in itertools.count(2)))
    names = (path.with_name(f"journal.saved-{stamp}{ending}.db") for ending in endings)
    saved = next(one for one in names if not one.exists())
    temporary = saved.with_suffix(".tmp")
    files = Files()
    try:
        os.close(open_private(temporary, os.O_RDWR | os.O_CREAT))
        connection.execute("VACUUM INTO ?", (str(temporary),))
        files.fsync(temporary)
        files.rename(temporary, saved)
    finally:
        files.remove(temporary)
    files.fsync_folder(path.parent)
    return saved


@contextlib.contextmanager
def _reading(path: Path, vfs: str | None) -> Iterator[apsw.Connection]:
    """A database that nobody has open, which is read as it is: nothing is made beside it."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    uri = f"{path.absolute().as_uri()}?immutable=1"
    with contextlib.closing(apsw.Connection(uri, flags, vfs)) as alone:
        yield alone


def _newest(connection: apsw.Connection) -> tuple[int, int, bytes] | None:
    """The entry that was kept last: whoever has it has those before it, as far as they are not pruned."""
    entry = "SELECT seq, received_ms, body FROM entries ORDER BY seq DESC LIMIT 1"
    return cast("tuple[int, int, bytes] | None", connection.execute(entry).fetchone())


def _has(connection: apsw.Connection, entry: tuple[int, int, bytes] | None) -> bool:
    found = "SELECT 1 FROM entries WHERE (seq, received_ms, body) = (?, ?, ?)"
    return entry is None or connection.execute(found, entry).fetchone() is not None


def check_without_log(path: Path, vfs: str | None) -> None:
    """Check a journal whose log is missing: if that was lost in the middle of a checkpoint, it is torn.

    Nobody may have it open, and the caller holds the writers' lock. Neither log nor anything else is made, so
    that whoever comes next checks it again.

    Raises:
        apsw.Error: it is torn, or damaged in another way.
    """
    if not _has_content(path) or _has_content(log_of(path)):
        return
    with _reading(path, vfs) as alone:
        try:
            found = alone.execute("PRAGMA integrity_check(1)").get
        except apsw.CorruptError as error:
            found = error
    if found != "ok":
        raise apsw.CorruptError(f"its log is missing: {found}")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def saved_journals(home: Path) -> list[Path]:
    """What was saved in a home and not taken back yet, oldest first."""
    return sorted(home.glob(_SAVED))


def take_back(path: Path) -> None:
    """Put a saved journal back to `path`, if there is one; the caller holds the writers' lock.

    Raises:
        JournalError: somebody has to choose between journals, or the one that was here is missing.
    """
    saved, log_file = saved_journals(path.parent), log_of(path)
    is_there = _has_content(path)
    if saved and not is_there and len(saved) == 1:
        for stray in (log_file, path.with_name(f"{path.name}-shm")):
            stray.unlink(missing_ok=True)
        saved[0].rename(path)
        Files().fsync_folder(path.parent)
        log.warning(
            "%s was lost while it was open; what was saved as %s is in its place", path, saved[0].name
        )
    elif saved:
        others = [str(one) for one in ([path] if is_there else []) + saved[:-1]]
        raise JournalError(
            f"{path} was lost while it was open, and {saved[-1]} was saved of it; to go on with that one, "
            f"stop the programs of this home and move away {', '.join(others)} with its -wal and -shm, else "
            "move the saved one away"
        )
    elif not is_there and _has_content(log_file):
        raise JournalError(
            f"{path} is missing, and its log {log_file} is there; put the database back, or move the log "
            "away to begin a new journal"
        )
    elif not is_there and locks.is_in_use(path.parent):
        raise JournalError(missing(path))


def missing(path: Path) -> str:
    """The sentence that says that there was a journal at `path`."""
    return (
        f"{path} is missing from a home that had one; if a program of this home still runs it saves the "
        "journal within seconds, so try again, else put back a copy or begin in another home"
    )


def exists(path: Path) -> bool:
    """Whether there is a journal at `path` or a saved one to be taken back.

    Raises:
        JournalError: there is none, although there was one.
    """
    try:
        if path.is_file() or saved_journals(path.parent):
            return True
        had_one = path.with_suffix(".lock").exists()
    except PermissionError as error:
        raise JournalError(
            f"the home {path.parent} cannot be opened ({error}); ask its user, or have it opened to your "
            "group by the setting home_mode"
        ) from None
    if had_one:
        raise JournalError(missing(path))
    return False
