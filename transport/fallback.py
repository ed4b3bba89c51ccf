"""The fallback: a folder where events are kept while the home itself cannot be used.

A folder of the user's own contains a journal for each such home. No runner works on it: its entries wait
until a program opens the home and adopts them. Each step of the adoption can be repeated, because a home
keeps the same bytes only once:

1. append a batch to the home's journal, redacted by the home's rules and durable on return;
2. move the fallback's cursor past the batch;
3. delete the entries that the cursor has passed, except the newest, because programs may still append.

Anyone who could write to the folder could forge records, and anyone who could read it would see data that is
not redacted yet. So nobody else may be able to do either.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from . import locks
from .admission import Redaction
from .clock import SYSTEM_CLOCK
from .errors import JournalError, reason_of, sentence_of
from .journal import Entry, Journal, Kind, redact_mark
from .mounts import MEMORY_FILE_SYSTEMS, file_system_of

if TYPE_CHECKING:
    from .config import Settings

log = logging.getLogger("waybill.transport")

_ADOPTED: Final = "adopted"
_ADOPTION: Final = "adoption"
_BATCH_ENTRIES: Final = 1_000
_ANY_TIME_MS: Final = 2**63 - 1
_ROOT_USER: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

_GIVE_ANOTHER: Final = "give another folder by `fallback_home: DIR` in waybill.yaml"

_told: Final[set[tuple[str, Path]]] = set()
"""The messages that this process has logged, by home; forks do not repeat them."""


def fallback_of(settings: Settings) -> Path | None:
    """The folder that stands in for a home; None if there can be none."""
    if settings.fallback_home is None:
        return None
    digest = hashlib.sha256(os.fsencode(settings.home)).hexdigest()
    return settings.fallback_home / digest[:16]


def open_fallback(settings: Settings, why: JournalError) -> tuple[Journal, Settings]:
    """Open the journal that stands in for a home; log the reason and the risks once per process.

    Returns:
        The journal, and the settings for it.

    Raises:
        JournalError: the fallback cannot be used either.
    """
    folder = fallback_of(settings)
    if folder is None:
        raise JournalError(f"this user has no folder for a fallback; {_GIVE_ANOTHER}")
    try:
        _refuse_unsafe_place(folder)
        for path in (folder.parent, folder):
            _make(path)
            _refuse_unsafe(path)
    except OSError as error:
        raise JournalError(f"{folder} cannot be used ({reason_of(error)}); {_GIVE_ANOTHER}") from None
    journal = Journal(folder, max_bytes=settings.journal_max_bytes)
    if ("kept", settings.home) not in _told:
        _told.add(("kept", settings.home))
        log.warning(
            "events are kept in %s because %s. They are fsynced there, but not filed or delivered, and they "
            "are lost if that folder is deleted. The next program of this user that opens the home adopts "
            "them, and so does `waybill flush`",
            folder,
            why,
        )
    own = {"home": folder, "home_mode": "private", "runner": "none", "durability": "power"}
    return journal, settings.with_values(own, "fallback")


def adopt_fallback(journal: Journal, settings: Settings, *, within_s: float = float("inf")) -> int:
    """Move the fallback's entries into the home's journal. Never fails, because it can be done later.

    Args:
        journal: the home's journal.
        settings: the agreed settings, which say what to redact.
        within_s: no batch begins after this time.

    Returns:
        How many entries were adopted.
    """
    try:
        folder = _existing_fallback(settings)
        lease = None if folder is None else locks.reserve(folder, _ADOPTION)
        if folder is None or lease is None:
            return 0
        try:
            with contextlib.closing(Journal(folder)) as fallback:
                deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
                return _adopt(fallback, journal, Redaction(settings.redact), deadline_s)
        finally:
            lease.release()
    except (OSError, JournalError) as error:
        if ("left", settings.home) not in _told:
            _told.add(("left", settings.home))
            log.warning(
                "the entries in %s cannot be adopted now: %s", fallback_of(settings), sentence_of(error)
            )
        return 0


def waiting_in_fallback(settings: Settings) -> int:
    """How many entries wait to be adopted by a home; raises `JournalError` if they cannot be adopted."""
    folder = _existing_fallback(settings)
    if folder is None or not Journal.exists(folder):
        return 0
    with contextlib.closing(Journal(folder, to_read=True)) as fallback:
        return fallback.last_seq() - fallback.cursor(_ADOPTED)


def _existing_fallback(settings: Settings) -> Path | None:
    """The folder that has stood in for a home; None if none has. Raises `JournalError` if it is not safe."""
    folder = fallback_of(settings)
    if folder is None or not os.path.lexists(folder):
        return None
    _refuse_unsafe_place(folder)
    for path in (folder.parent, folder):
        _refuse_unsafe(path)
    return folder


def _adopt(fallback: Journal, journal: Journal, redaction: Redaction, deadline_s: float) -> int:
    cursor, taken = fallback.cursor(_ADOPTED), 0
    while (
        entries := fallback.read(cursor, limit=_BATCH_ENTRIES)
    ) and SYSTEM_CLOCK.monotonic_s() < deadline_s:
        journal.append_many((entry.kind, _redacted(entry, redaction), entry.system_name) for entry in entries)
        cursor, taken = entries[-1].seq, taken + len(entries)
        fallback.commit(_ADOPTED, cursor=cursor)
    while fallback.prune(cursor, _ANY_TIME_MS):
        pass
    if taken:
        log.info("adopted %d entries from %s", taken, fallback.home)
    return taken


def _redacted(entry: Entry, redaction: Redaction) -> bytes:
    what = entry.damage
    if what is None and entry.kind is Kind.PROVENANCE:
        return entry.body
    if what is None:
        try:
            if entry.kind is Kind.MARK:
                return redact_mark(entry.body, redaction.redact)
            return redaction.redact(entry.body)
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"the part to redact is not readable ({error})"
    raise JournalError(f"entry {entry.seq}: {what}; move the folder away to continue without it")


def _make(folder: Path) -> None:
    """Make a folder and its missing parents, each for this user only."""
    if folder.parent != folder and not os.path.lexists(folder.parent):
        _make(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)


def _refuse_unsafe(path: Path) -> None:
    """Refuse a folder that is not only this user's."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise JournalError(f"{path} is a link or not a folder; {_GIVE_ANOTHER}")
    if found.st_uid != os.geteuid():
        raise JournalError(f"{path} belongs to another user; {_GIVE_ANOTHER}")
    if found.st_mode & _OTHERS:
        raise JournalError(f"{path} is open to other users; set its mode to 0700")


def _refuse_unsafe_place(folder: Path) -> None:
    """Refuse a folder that others could replace, as in a shared or temporary folder, or that is in memory.

    Anyone who can write to a folder above it, including links to such folders, could do that.
    """
    base = folder.parent
    for above in (*base.parents, *base.resolve().parents):
        try:
            found = above.lstat()
        except FileNotFoundError:
            continue
        if found.st_uid not in {_ROOT_USER, os.geteuid()}:
            raise JournalError(f"{above} belongs to another user; {_GIVE_ANOTHER}")
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS_WRITE:
            raise JournalError(f"others can write to {above}; {_GIVE_ANOTHER}, or change its mode")
    if (kind := file_system_of(base)) in MEMORY_FILE_SYSTEMS:
        raise JournalError(f"{base} is in memory ({kind}); {_GIVE_ANOTHER}")
