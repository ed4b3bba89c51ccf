"""Following a ledger from an entry on, without reading what came before."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from ..names import Hour, hour_in
from .entries import LedgerEntry, decode, hash_of, last_entry, read_entries
from .state import is_archived


class Position(msgspec.Struct, frozen=True):
    """A completed entry of a ledger.

    Attributes:
        day: the folder that it is in.
        number: its number.
        head: the SHA-256 of its content, in hex digits.
    """

    day: str
    number: int
    head: str


class Followed(NamedTuple):
    """What a ledger says after a position."""

    position: Position
    """The last completed entry."""
    hours: frozenset[Hour]
    """The hours whose compacted or late files have changed since, or may be changing."""


def follow_ledger(root: Path, position: Position | None) -> Followed | None:
    """Read the entries after a position; without one, find the last completed entry.

    A change that begins after this call is not in the result. Without a position, `hours` are only those
    that may be changing.

    Returns:
        None if there is no ledger, or it does not continue from the position: the root was replaced.

    Raises:
        OSError: an entry cannot be read.
    """
    if position is None:
        return _last(root)
    later = _all_after(root, position)
    if later is None:
        return None
    hours: set[Hour] = set()
    for found, content in later:
        entry = _decoded(content)
        if entry is None:
            return None
        hours |= _hours_of(entry)
        if entry.files is not None:
            position = found
    return Followed(position, frozenset(hours))


def _last(root: Path) -> Followed | None:
    last = last_entry(root)
    entry = None if last is None else _decoded(last.content)
    if last is None or entry is None:
        return None
    if entry.files is not None:
        return Followed(Position(last.path.parent.name, last.number, hash_of(last.content)), frozenset())
    # Rare: a change is under way, so the entry before it is looked up.
    position = None
    for file in read_entries(root):
        if (entry := _decoded(file.content)) is not None and entry.files is not None:
            position = Position(file.path.parent.name, file.number, hash_of(file.content))
    return None if position is None else follow_ledger(root, position)


def _all_after(root: Path, position: Position) -> list[tuple[Position, bytes]] | None:
    """The entries after a position; None if there is no such position."""
    later: list[tuple[Position, bytes]] | None = None
    for file in read_entries(root, position.day, position.number):
        found = Position(file.path.parent.name, file.number, hash_of(file.content))
        if later is not None:
            later.append((found, file.content))
        elif found.head == position.head:
            later = []
    return later


def _decoded(content: bytes) -> LedgerEntry | None:
    try:
        return decode(content)
    except msgspec.DecodeError:
        return None


def _hours_of(entry: LedgerEntry) -> set[Hour]:
    if entry.files and all(map(is_archived, entry.files)) and not entry.aside:
        return set()
    paths = [*(entry.files or ()), *entry.aside]
    return {*entry.hours, *(hour for path in paths if (hour := hour_in(path)) is not None)}
