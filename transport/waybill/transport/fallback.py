"""The fallback home: where events are kept while the home itself cannot be used.

A folder of the user's own holds a journal for each such home. Nothing works on it: its entries wait until a
program opens the home, which adopts them. Each step of that can be done again, since a home keeps the same
bytes once:

1. a batch is appended to the home's journal, redacted as the home redacts, durable on return;
2. the cursor in the fallback moves past the batch;
3. what the cursor has passed is deleted, all but the newest entry, since programs may still append.

Whoever could put something into the folder could put it into the records, and whoever could read it would
read what is not redacted yet. So nobody else may be able to do either.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import locks
from waybill.transport.admission import Redaction
from waybill.transport.errors import JournalError
from waybill.transport.journal import Entry, Journal, Kind
from waybill.transport.mounts import MEMORY_FILE_SYSTEMS, file_system_of

if TYPE_CHECKING:
    from waybill.transport.config import Settings

log = logging.getLogger("waybill.transport")

_ADOPTED: Final = "adopted"
_ADOPTION: Final = "adoption"
_BATCH_ENTRIES: Final = 1_000
_ANY_TIME_MS: Final = 2**63 - 1
_ROOT_USER: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_told: Final[set[tuple[str, Path]]] = set()
"""What this process has said of which home; a fork has said it, too."""


def fallback_of(settings: Settings) -> Path | None:
    """The folder that stands in for a home; None where there can be none."""
    if settings.fallback_home is None:
        return None
    digest = hashlib.sha256(os.fsencode(settings.home)).hexdigest()
    return settings.fallback_home / digest[:16]


def open_fallback(settings: Settings, why: JournalError) -> tuple[Journal, Settings]:
    """Open the journal that stands in for a home, and say once a process why, and what is less durable there.

    Returns:
        The journal, and the settings to use it by.

    Raises:
        JournalError: it cannot be used either.
    """
    folder = fallback_of(settings)
    if folder is None:
        raise JournalError("this user has no folder for it; give one with `fallback_home`")
    try:
        _refuse_unsafe_place(folder)
        _make(folder)
        _refuse_unsafe(folder)
    except OSError as error:
        raise JournalError(f"{folder} cannot be used ({error}); give another `fallback_home`") from None
    journal = Journal(folder, max_bytes=settings.journal_max_bytes)
    if ("kept", settings.home) not in _told:
        _told.add(("kept", settings.home))
        log.warning(
            "events are kept in %s, because %s. They are fsynced there, but nothing files or delivers them, "
            "and whoever deletes that folder deletes them. The next program of this user that opens the home "
            "adopts them, and so does `waybill flush`",
            folder,
            why,
        )
    own = {"home": folder, "home_mode": "private", "runner": "none", "durability": "power"}
    return journal, settings.with_values(own, "fallback")


def adopt_fallback(journal: Journal, settings: Settings, *, within_s: float = float("inf")) -> int:
    """Take what was kept instead of a home into its journal; never fails, since it can be done later.

    Args:
        journal: the home's.
        settings: those that were agreed, by which entries are redacted.
        within_s: no batch is begun after this time.

    Returns:
        How many entries were taken.
    """
    folder = fallback_of(settings)
    if folder is None or not os.path.lexists(folder):
        return 0
    try:
        _refuse_unsafe_place(folder)
        _refuse_unsafe(folder)
        lease = locks.reserve(folder, _ADOPTION)
        if lease is None:
            return 0
        try:
            with contextlib.closing(Journal(folder)) as fallback:
                return _adopt(fallback, journal, Redaction(settings.redact), time.monotonic() + within_s)
        finally:
            lease.release()
    except (OSError, JournalError) as error:
        if ("left", settings.home) not in _told:
            _told.add(("left", settings.home))
            log.warning("what was kept in %s cannot be adopted now: %s", folder, error)
        return 0


def waiting_in_fallback(settings: Settings) -> int:
    """How many entries wait to be adopted by a home; a `JournalError` says why nobody would adopt them."""
    folder = fallback_of(settings)
    if folder is None or not os.path.lexists(folder):
        return 0
    _refuse_unsafe_place(folder)
    _refuse_unsafe(folder)
    with contextlib.closing(Journal(folder)) as fallback:
        return fallback.last_seq() - fallback.cursor(_ADOPTED)


def _adopt(fallback: Journal, journal: Journal, redaction: Redaction, deadline_s: float) -> int:
    cursor, taken = fallback.cursor(_ADOPTED), 0
    while (entries := fallback.read(cursor, limit=_BATCH_ENTRIES)) and time.monotonic() < deadline_s:
        journal.append_many((entry.kind, _redacted(entry, redaction), entry.system_name) for entry in entries)
        cursor, taken = entries[-1].seq, taken + len(entries)
        fallback.commit(_ADOPTED, cursor=cursor)
    while fallback.prune(cursor, _ANY_TIME_MS):
        pass
    if taken:
        log.info("%d entries were adopted from %s", taken, fallback.home)
    return taken


def _redacted(entry: Entry, redaction: Redaction) -> bytes:
    what = entry.damage
    if what is None and entry.kind is not Kind.OPENLINEAGE:
        return entry.body
    if what is None:
        try:
            return redaction.redact(entry.body)
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"what is to be redacted cannot be read ({error})"
    raise JournalError(f"entry {entry.seq}: {what}; move the folder away to go on without it")


def _make(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each for this user alone."""
    if folder.parent != folder and not os.path.lexists(folder.parent):
        _make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)


def _refuse_unsafe(folder: Path) -> None:
    """Refuse a folder, or the setting's folder that it is in, which is not this user's alone."""
    for path in (folder.parent, folder):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise JournalError(f"{path} is a link or no folder; give another `fallback_home`")
        if found.st_uid != os.geteuid():
            raise JournalError(f"{path} belongs to another user; give another `fallback_home`")
        if found.st_mode & _OTHERS:
            raise JournalError(f"{path} is open to other users; make its mode 0700")


def _refuse_unsafe_place(folder: Path) -> None:
    """Refuse a folder that others could exchange, as in a shared or temporary one, or that is in memory.

    Whoever can write one of the folders above it, links to them included, could do so.
    """
    base = folder.parent
    for above in (*base.parents, *base.resolve().parents):
        try:
            found = above.lstat()
        except FileNotFoundError:
            continue
        if found.st_uid not in {_ROOT_USER, os.geteuid()}:
            raise JournalError(f"{above} belongs to another user; give another `fallback_home`")
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS_WRITE:
            raise JournalError(f"others can write {above}; give another `fallback_home`, or change its mode")
    if (kind := file_system_of(base)) in MEMORY_FILE_SYSTEMS:
        raise JournalError(f"{base} is in memory ({kind}); give another `fallback_home`")
