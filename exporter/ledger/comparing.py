"""Comparing the files of a root with its ledger, to note those that somebody else changed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.transport.files import Files
from waybill.transport.locks import locked

from .. import parquet
from ..differing import LOCK, list_differing, note_differing, tell_differing, tell_gone
from ..directory import compacted_files
from ..names import KEYS, hour_in, relative
from .following import follow_ledger
from .holding import read_note, seal_there
from .state import LedgerState, finding_id, is_archived, read_ledger

if TYPE_CHECKING:
    from ..differing import Differing
    from ..names import Hour
    from .following import Position


def compare_hours(root: Path, files: Files, hours: Collection[Hour], position: Position | None) -> None:
    """Note which files of some hours are not the ledger's, and forget what was noted of the others.

    The caller has the lock of the keys. The files were listed after `position`; None: no earlier than now.
    """
    before = list_differing(root)
    found = _differing(root, hours, is_noted=any(one.hour in hours for one in before))
    if before or found:
        settled = _settled(root, hours, position)
        note_differing(root, files, _only(found, settled), settled=settled)


def compare_files(root: Path, hours: Collection[Hour]) -> list[Differing]:
    """Compare some hours, of which a question has found a file that is not as it was known.

    What differs is noted, if the caller may write there, and returned. Hours of which something is noted are
    left alone. Raises `OSError` if the ledger cannot be read.
    """
    begun = follow_ledger(root, None)
    if begun is None or not (hours := {*hours} - begun.hours - {one.hour for one in list_differing(root)}):
        return []
    found = _differing(root, hours)
    differing = tell_differing(root, _only(found, _settled(root, hours, begun.position)) if found else {})
    if differing:
        with contextlib.suppress(OSError), locked(root / KEYS / LOCK):
            compare_hours(root, Files(), {one.hour for one in differing}, begun.position)
    return differing


def _settled(root: Path, hours: Collection[Hour], position: Position | None) -> set[Hour]:
    """Those of some hours that no change has concerned since a position: an entry begins before its files do.

    The others are looked at again.
    """
    followed = follow_ledger(root, position)
    return set() if followed is None else {*hours} - followed.hours


def _only(found: Mapping[str, str], hours: Collection[Hour]) -> dict[str, str]:
    return {path: what for path, what in found.items() if hour_in(path) in hours}


def compare_again(root: Path, files: Files) -> None:
    """Compare the hours again of which something is noted: somebody has settled it. Raises `OSError`."""
    if list_differing(root):
        with locked(root / KEYS / LOCK):
            begun = follow_ledger(root, None)
            hours = {one.hour for one in list_differing(root)}
            compare_hours(root, files, hours, None if begun is None else begun.position)


def _differing(root: Path, hours: Collection[Hour], *, is_noted: bool = False) -> dict[str, str]:
    """By path, what is wrong with those compacted and late files of some hours that are not the ledger's.

    What somebody accepted is not wrong, nor a doubt of the ledger whose rows a repair filed again. A change
    that is under way may explain a difference. With `is_noted`, a difference was found there before: it stays
    wrong if another file has taken the place of a missing one since. Raises `OSError` if the ledger cannot be
    read.
    """
    noted = {path: seal for hour in hours for path, seal in read_note(root, hour).items()}
    paths = {relative(root, path) for listed in compacted_files(root, hours).values() for path in listed}
    there: dict[str, str | None] = {}
    unreadable: set[str] = set()
    for path in paths | noted.keys():
        try:
            there[path] = seal_there(root / path)
        except parquet.DAMAGED as error:
            if getattr(error, "errno", None) is None and not isinstance(error, MemoryError):
                there[path] = ""
            else:
                unreadable.add(path)  # now, which is left to its readers
                noted.pop(path, None)
    if there == noted and not is_noted:
        return {}
    state = read_ledger(root) or LedgerState()
    settled = state.accepted.keys() | state.restored
    found = {
        one.path: one.what
        for one in state.doubts.values()
        if one.kind in {"removed", "unrecorded"}
        and hour_in(one.path) in hours
        and not is_archived(one.path)
        and one.id not in settled
    }
    filed = {path for path in state.files_of(hours) if not is_archived(path)}
    for path in {*there, *filed} - unreadable:
        known, seal = state.seal(path), there.get(path)
        if seal is None and known is not None:
            if finding_id("removed", path, known) not in state.accepted:
                found[path] = tell_gone(path)
        elif seal != known:
            found[path] = f"{path} is not the file in the ledger"
    return found
