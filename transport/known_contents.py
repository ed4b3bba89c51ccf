"""The contents that a home knows: from the entries that the journal has, and from the correlation index.

The journal knows everything at once, see `journal.fingerprints`, until its entries go. Its correlation index,
a projection, is complete by then, and knows them for as long as it lives. The index belongs to a room that
this one must not know, so it is read by its file and its public views, with the queries here and no others.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

import apsw
import msgspec

from .errors import JournalError, reason_of
from .journal import FileContent

if TYPE_CHECKING:
    from pathlib import Path

    from .journal import Journal

INDEX_NAME: Final = "index.db"
"""The correlation index's file in a home."""

_CONTENT: Final = "SELECT fingerprint, id_event, event_time, input_size, forced FROM correlation_event"
_FIRST: Final = f"{_CONTENT} WHERE fingerprint = ? ORDER BY event_time LIMIT 1"
_ALL: Final = f"{_CONTENT} WHERE fingerprint IS NOT NULL ORDER BY fingerprint"
_NAMES: Final = """
SELECT field, JSON ->> '$' FROM correlation_details WHERE id_event = ? AND field IN ('filename', 'system')
"""
_BUSY_TIMEOUT_MS: Final = 30_000

log = logging.getLogger("waybill.transport")


def first_with(journal: Journal, fingerprint: str) -> FileContent | None:
    """The first file with a content. An index that cannot be read never holds up the caller.

    Raises:
        JournalError: the journal cannot be read.
    """
    found = journal.first_with(fingerprint)
    try:
        index = open_index(journal.home)
        if index is None:
            return found
        with contextlib.closing(index):
            row = index.execute(_FIRST, (fingerprint,)).fetchone()
            if row is None:
                return found
            indexed = _content_of(row)
            # The journal knows the order exactly. What is earlier than its first has left it.
            is_later = found is not None and found.created_ms <= indexed.created_ms
            return found if is_later else _named(index, indexed)
    except apsw.Error as error:
        log.warning("%s cannot be read (%s)", journal.home / INDEX_NAME, reason_of(error))
        return found


def repeated_contents(journal: Journal) -> Iterator[list[FileContent]]:
    """The files of each content that several files have, in the order in which they began.

    Only the files of one content at a time are in memory.

    Raises:
        JournalError: the journal or the index cannot be read.
    """
    try:
        index = open_index(journal.home)
        with contextlib.nullcontext() if index is None else contextlib.closing(index):
            indexed = () if index is None else map(_content_of, index.execute(_ALL))
            known = heapq.merge(journal.contents(), indexed, key=attrgetter("fingerprint"))
            for _, alike in groupby(known, attrgetter("fingerprint")):
                files: dict[str, FileContent] = {}
                for one in alike:  # the journal's first, which has the names
                    files.setdefault(one.did, one)
                if len(files) > 1:
                    named = [
                        one if index is None or one.filename else _named(index, one) for one in files.values()
                    ]
                    yield sorted(named, key=attrgetter("created_ms"))
    except apsw.Error as error:
        what = f"{journal.home / INDEX_NAME} cannot be read ({reason_of(error)})"
        raise JournalError(f"{what}; check the disk and run `waybill flush`, which makes it again") from None


def open_index(home: Path) -> apsw.Connection | None:
    """Open the index of a home, to read only; None if it has none. Raises `apsw.Error`."""
    path = home / INDEX_NAME
    if not path.exists():
        return None
    index = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    index.set_busy_timeout(_BUSY_TIMEOUT_MS)
    return index


def _content_of(row: tuple[object, ...]) -> FileContent:
    fingerprint, did, event_time, input_size, forced = row
    return FileContent(
        fingerprint=cast("str", fingerprint),
        did=cast("str", did),
        system_name="",
        filename="",
        created_ms=cast("int", event_time),
        input_bytes=cast("int | None", input_size),
        forced=bool(forced),
    )


def _named(index: apsw.Connection, content: FileContent) -> FileContent:
    names = dict(cast("list[tuple[str, str]]", index.execute(_NAMES, (content.did,)).fetchall()))
    system_name = content.system_name or names.get("system", "")
    return msgspec.structs.replace(content, filename=names.get("filename", ""), system_name=system_name)
