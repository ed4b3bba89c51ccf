"""Refiling: files entries that the archive lacks again, if the journal still has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from waybill.transport.files import publish_alone

from ..ledger import recorded
from ..names import RawName, events_folder, relative
from ..quarantine import quarantine
from ..stored_records import entries_of
from .files import BYTES_MAX, ENTRIES_MAX, ArchivedEntry, arrival_hour, encode_entries, last_seal

if TYPE_CHECKING:
    from waybill.transport.files import Files
    from waybill.transport.journal import Entry, Journal


class Refiled(msgspec.Struct, frozen=True):
    """The result for a range: the files, relative to the root, and the ranges that the journal lacks."""

    files: tuple[str, ...] = ()
    lacking: tuple[RawName, ...] = ()


def refile(
    journal: Journal, root: Path, lost: RawName, files: Files, *, damaged: bool = False, dry_run: bool = False
) -> Refiled:
    """File a range of a journal's entries again, one file for each hour.

    With `damaged`, the existing file of exactly this range is quarantined, unless the journal lacks some of
    its entries. No other file is replaced. With `dry_run`, the report says what would be filed. Raises
    `OSError` if a file cannot be read or written.
    """
    done: list[str] = []
    lacking: list[RawName] = []
    upto = lost.first - 1
    for entries in _groups(journal, lost, one_file=damaged):
        name = RawName(lost.node, entries[0].seq, entries[-1].seq)
        if damaged and name != lost:
            break
        if name.first > upto + 1:
            lacking.append(RawName(lost.node, upto + 1, name.first - 1))
        upto = name.last
        path = root / events_folder(arrival_hour(entries[0])) / str(name)
        done.append(relative(root, path))
        if not dry_run:
            _publish(root, path, entries, files, damaged=damaged)
    if upto < lost.last:
        lacking.append(RawName(lost.node, upto + 1, lost.last))
    return Refiled(tuple(done), tuple(lacking))


def _publish(root: Path, path: Path, entries: Sequence[Entry], files: Files, *, damaged: bool) -> None:
    node, hour, place = path.name.partition("-")[0], arrival_hour(entries[0]), relative(root, path)
    with recorded(root, files, [hour], keeps=True, refiles=True) as changed:
        if path.exists():
            if not damaged:
                return  # The journal has just filed it.
            reason = "it is not the file that the journal archived"
            data = path.read_bytes()
            changed.add_quarantined(
                [quarantine(root, PurePosixPath(place), hour, data, reason=reason, files=files)]
            )
        before = last_seal(root, node, entries[0].seq - 1)
        content, seal = encode_entries(node, list(map(ArchivedEntry.of, entries)), before)
        publish_alone(files, path, content)
        changed[place] = seal


def _groups(journal: Journal, lost: RawName, *, one_file: bool) -> Iterator[list[Entry]]:
    """The entries of a range that the journal has, divided as the archive divides them."""
    group: list[Entry] = []
    size_bytes = 0
    for entry in chain.from_iterable(entries_of(journal, lost.first, lost.last)):
        is_full = not one_file and (len(group) >= ENTRIES_MAX or size_bytes >= BYTES_MAX)
        follows = group and entry.seq == group[-1].seq + 1 and arrival_hour(entry) == arrival_hour(group[0])
        if group and (is_full or not follows):
            yield group
            group, size_bytes = [], 0
        group.append(entry)
        size_bytes += len(entry.body)
    if group:
        yield group
