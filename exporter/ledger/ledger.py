"""The ledger of a root: a chain of small entries, for every change of its compacted, late and archive files.

An entry contains the hash of the previous one. So no entry can be changed, removed or inserted without
rewriting all later ones, and the hash of the last entry, kept elsewhere, vouches for everything before it. An
entry is started, with the hours about to change, before the first file changes, and completed after the last.
After a crash in between, the next change first completes it from the files of those hours.

Before compacted or late files are changed, they are compared with the ledger (see `holding` in this package).
An entry records what was found, so it shows where that differed from the ledger (see `state`). `entries`
defines how entries are stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files, publish, sweep
from waybill.transport.locks import locked

from .. import parquet
from ..directory import compacted_files, compacted_folders, names
from ..names import EVENTS, RAW, Hour, RawName, events_folder, parse_hour, relative
from ..parquet import before_in, seal_in
from ..quarantine import list_quarantined
from .entries import (
    Changes,
    EntryFile,
    LedgerEntry,
    decode,
    encode,
    fold_days,
    hash_of,
    last_entry,
    next_path,
)
from .holding import note_seals
from .state import LedgerState, is_archived, read_ledger


@contextlib.contextmanager
def root_lock(root: Path, files: Files) -> Iterator[None]:
    """Hold the root's lock: wait until nobody else changes its files, and make others wait."""
    folder = root / RAW.parent
    files.make_folder(folder)
    with locked(folder / _LOCK):
        yield


@contextlib.contextmanager
def recorded(
    root: Path, files: Files, hours: Iterable[Hour], *, keeps: bool = False, refiles: bool = False
) -> Iterator[Changes]:
    """Take the root's lock, and record a change of some hours; the caller fills in the changes.

    With `keeps`, the caller removes no file; with `refiles`, it refiles entries that the archive lacked.
    Raises `OSError` if an entry cannot be read or written.
    """
    with root_lock(root, files):
        last = _complete(root, files) or _adopt(root, files)
        begun = LedgerEntry(
            hash_of(last.content) if last else "",
            SYSTEM_CLOCK.now_ms(),
            tuple(sorted(hours)),
            keeps=keeps,
            refiles=refiles,
        )
        path = next_path(root, last, begun.at_ms)
        if last is not None and last.path.parent != path.parent:
            fold_days(root, files, path.parent.name)
        files.make_folder(path.parent)
        sweep(files, path.parent)
        publish(files, path, encode(begun))
        changed = Changes()
        yield changed
        if not changed.certain:
            _complete_by_files(root, files, path, begun, changed)
        elif changed or changed.quarantined or changed.restored or changed.accepted:
            found = {path: changed.found.get(path) for path in changed if not is_archived(path)}
            done = msgspec.structs.replace(
                begun,
                files=dict(changed),
                aside=changed.quarantined,
                found=found,
                reasons=changed.reasons,
                accepted=changed.accepted,
                restored=changed.restored,
            )
            publish(files, path, encode(done))
            note_seals(root, files, changed.found | changed)
        else:
            files.remove(path)


def _adopt(root: Path, files: Files) -> EntryFile | None:
    """Start a ledger with the existing files; None if there are none."""
    archived = {parse_hour(day, hour) for day in names(root / EVENTS) for hour in names(root / EVENTS / day)}
    hours = compacted_folders(root).keys() | set(filter(None, archived))
    there = {path: seals for path, seals in _seals(root, sorted(hours)) if seals[0] is not None}
    if not there:
        return None
    entry = LedgerEntry(
        "",
        SYSTEM_CLOCK.now_ms(),
        tuple(sorted(hours)),
        files={path: seal for path, (seal, _) in there.items()},
        found={path: before for path, (_, before) in there.items()},
    )
    path = next_path(root, None, entry.at_ms)
    files.make_folder(path.parent)
    publish(files, path, encode(entry))
    return EntryFile(path, 1, encode(entry))


def _complete(root: Path, files: Files) -> EntryFile | None:
    """Complete the last entry if a crash interrupted it; return the completed entry."""
    last = last_entry(root)
    if last is None:
        return None
    try:
        entry = decode(last.content)
    except msgspec.DecodeError as error:
        raise OSError(f"{last.path} is not a ledger entry ({error}); restore it from a copy") from None
    if entry.files is None:
        _complete_by_files(root, files, last.path, entry, Changes())
        last = last._replace(content=last.path.read_bytes())
    return last


def _complete_by_files(root: Path, files: Files, path: Path, begun: LedgerEntry, changed: Changes) -> None:
    """Complete an entry from the existing files and from what is known of the change."""
    state = read_ledger(root) or LedgerState()
    there = dict(_seals(root, begun.hours))
    gone = []
    for known in state.files_of(begun.hours):
        if known not in there and (root / known).exists():
            there[known] = (state.seal(known), None)  # It cannot be read, so its seal is unknown.
        elif known not in there:
            gone.append(known)
    reports = [one for one in list_quarantined(root) if one.hour in begun.hours and one.at_ms >= begun.at_ms]
    found = {
        path: changed.found.get(path, before)
        for path, (seal, before) in there.items()
        if seal != state.seal(path) and not is_archived(path)
    }
    if begun.keeps:
        aside = {one.path for one in reports}
        found |= dict.fromkeys(path for path in gone if path not in aside)
    done = msgspec.structs.replace(
        begun,
        files={path: seal for path, (seal, _) in there.items()},
        whole=True,
        aside={one.path: one.kept for one in reports},
        found=found,
        reasons={one.kept: one.reason for one in reports},
        restored=changed.restored,
    )
    publish(files, path, encode(done))
    note_seals(root, files, {**dict.fromkeys(gone), **(done.files or {})})


def _seals(root: Path, hours: Iterable[Hour]) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    """By path, the seals of the existing files and of their predecessors."""
    for hour, compacted in compacted_files(root, list(hours)).items():
        folder = root / events_folder(hour)
        archived = [folder / name for name in names(folder) if RawName.parse(name)]
        for path in compacted + archived:
            # A missing file raises an `OSError`, and an unreadable one has no seal.
            with contextlib.suppress(*parquet.DAMAGED):
                metadata = pq.read_metadata(path).metadata
                yield relative(root, path), (seal_in(metadata), before_in(metadata))


_LOCK: Final = ".compact.lock"
