"""The rescue of a journal whose files were deleted, replaced or truncated while programs had it open.

The first program that notices saves the files that it still has open as ``journal.saved-<time>.db`` beside
the journal. A program that has more entries replaces that file. None of them accepts anything more. The next
program that opens the home continues with the saved journal, unless another journal has taken its place: then
an operator has to choose.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import apsw

from .. import locks
from ..clock import SYSTEM_CLOCK
from ..errors import JournalError, reason_of
from ..files import Files
from ..permissions import open_private
from .watch import log_of

log = logging.getLogger("waybill.transport")

_SAVED: Final = "journal.saved-*.db"
_META_KEY: Final = "saved_as"
_TRACES: Final = ("journal.lock", "agreement.lock", "runner.lock")
_NOTE: Final = b"A journal was made beside this file. It goes where the journal goes.\n"


def save(connection: apsw.Connection, path: Path) -> Path:
    """Save a connection's content of the journal that was at `path`, once for all programs that have it open.

    A program that opened the database without the log that others still have open has fewer entries. In the
    end the most complete content is saved, whichever program comes first.

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
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(SYSTEM_CLOCK.now_ms() // 1_000))
    endings = itertools.chain([""], (f".{number}" for number in itertools.count(2)))
    names = (path.with_name(f"journal.saved-{stamp}{ending}.db") for ending in endings)
    saved = next(one for one in names if not one.exists())  # names never end
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
    """A database that nobody has open, read without creating any file beside it."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    uri = f"{path.absolute().as_uri()}?immutable=1"
    with contextlib.closing(apsw.Connection(uri, flags, vfs)) as alone:
        yield alone


def _newest(connection: apsw.Connection) -> tuple[int, int, bytes] | None:
    """The newest entry. A database that has it also has all earlier ones that are not pruned."""
    entry = "SELECT seq, received_ms, body FROM entries ORDER BY seq DESC LIMIT 1"
    return cast("tuple[int, int, bytes] | None", connection.execute(entry).fetchone())


def _has(connection: apsw.Connection, entry: tuple[int, int, bytes] | None) -> bool:
    found = "SELECT 1 FROM entries WHERE (seq, received_ms, body) = (?, ?, ?)"
    return entry is None or connection.execute(found, entry).fetchone() is not None


def check_without_log(path: Path, vfs: str | None) -> None:
    """Check a journal whose log is missing: if the log was lost during a checkpoint, the journal is torn.

    Nobody may have it open, and the caller holds the writers' lock. Neither a log nor anything else is
    created, so that the next program checks it again. If the power failed while it was created, SQLite's
    rollback journal is beside it, and SQLite undoes the creation.

    Raises:
        apsw.Error: it is torn, or damaged in another way.
    """
    undo = path.with_name(f"{path.name}-journal")
    if not _has_content(path) or _has_content(log_of(path)) or _has_content(undo):
        return
    with _reading(path, vfs) as alone:
        try:
            found = alone.execute("PRAGMA integrity_check(1)").get
        except apsw.CorruptError as error:
            found = error
    if found != "ok":
        raise apsw.CorruptError(f"its log is missing: {found}")


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def saved_journals(home: Path) -> list[Path]:
    """The saved journals of a home that are not restored yet, oldest first."""
    return sorted(home.glob(_SAVED))


def take_back(path: Path) -> None:
    """Restore a saved journal to `path`, if there is one; the caller holds the writers' lock.

    Raises:
        JournalError: an operator has to choose between journals, or the one that was here is missing.
    """
    saved, log_file = saved_journals(path.parent), log_of(path)
    is_there = _has_content(path)
    if saved and not is_there and len(saved) == 1:
        for stray in (log_file, path.with_name(f"{path.name}-shm")):
            stray.unlink(missing_ok=True)
        saved[0].rename(path)
        Files().fsync_folder(path.parent)
        log.warning("%s was lost while it was open; the journal saved as %s replaces it", path, saved[0].name)
    elif saved:
        others = [str(one) for one in ([path] if is_there else []) + saved[:-1]]
        raise JournalError(
            f"{path} was lost while it was open, and its content was saved as {saved[-1]}; to continue with "
            f"that one, stop the programs of this home and move {', '.join(others)} with its -wal and -shm "
            "away, otherwise move the saved one away"
        )
    elif not is_there and _has_content(log_file):
        raise JournalError(
            f"{path} is missing, but its log {log_file} is there; restore the database, or "
            f"{begin_anew(path.parent)}"
        )
    elif not is_there and (locks.is_in_use(path.parent) or _had_one(path)):
        raise JournalError(_missing(path))


def note_made(descriptor: int) -> None:
    """Note in the writers' lock file, which the caller holds, that the journal beside it was created."""
    with contextlib.suppress(OSError):  # the journal works without the note
        if not os.fstat(descriptor).st_size:
            os.pwrite(descriptor, _NOTE, 0)


def begin_anew(home: Path) -> str:
    """The end of a sentence: how to start a new journal in a home whose journal is unusable."""
    folder, files = shlex.quote(f"{home}/lost-journal"), f"{shlex.quote(str(home))}/journal.*"
    return (
        f"end the home's programs and run `mkdir {folder} && mv {files} {folder}`; the next program then "
        "creates a new one"
    )


def _had_one(path: Path) -> bool:
    """Whether a home whose journal has no content once had one that was not just being created."""
    return _has_content(path.with_suffix(".lock"))


def _missing(path: Path) -> str:
    return (
        f"{path} is missing from a home that had one; if a program of this home still runs, it saves the "
        f"journal within seconds, so try again, otherwise restore a copy, or {begin_anew(path.parent)}"
    )


def exists(path: Path) -> bool:
    """Whether there is a journal at `path`, or a saved one that will be restored.

    Raises:
        JournalError: there is none, but there was one.
    """
    try:
        if _has_content(path) or saved_journals(path.parent):
            return True
        had_one = _had_one(path)
    except PermissionError as error:
        home = path.parent
        command = f"waybill settings apply --home {shlex.quote(str(home))} --home-mode group"
        raise JournalError(
            f"the home {home} cannot be opened ({reason_of(error)}); run this as its user, or have it "
            f"opened to your group: `{command}`"
        ) from None
    if had_one:
        raise JournalError(_missing(path))
    return False


def has_traces(home: Path) -> bool:
    """Whether a program has ever opened a journal in this folder, even if the journal is gone."""
    return any((home / name).exists() for name in _TRACES)
