"""Comparing the files of a root with its ledger, to note those that somebody else changed."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from waybill.transport.locks import locked

from .. import parquet
from ..differing import LOCK, Differing, list_differing, note_differing
from ..directory import compacted_files
from ..names import KEYS, hour_in, relative
from ..remedies import repair_command
from .following import follow_ledger
from .holding import read_note, seal_there
from .state import LedgerState, finding_id, read_ledger

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from waybill.transport.files import Files

    from ..names import Hour
    from .following import Position

log = logging.getLogger("waybill.exporter")


def compare_hours(root: Path, files: Files, hours: Collection[Hour], position: Position | None) -> None:
    """Note which files of some hours are not the ledger's, and forget what was noted of the others.

    The caller has the lock of the keys. The files were listed after `position`; None: no earlier than now.
    """
    before = list_differing(root)
    found = _differing(root, hours, is_noted=any(one.hour in hours for one in before))
    if not before and not found:
        return
    # An entry is begun before its files change. The hours of such changes are looked at again.
    followed = follow_ledger(root, position)
    settled = {*hours} - (followed.hours if followed is not None else {*hours})
    way_out = f"run `waybill verify {shlex.quote(str(root))}`, and `{repair_command(root)}`"
    noted = [one for one in before if one.hour not in settled]
    for path, what in found.items():
        if (hour := hour_in(path)) in settled and hour is not None:
            noted.append(Differing(path, hour, f"{what}; {way_out}"))
    if (noted := sorted(noted)) != before:
        note_differing(root, files, noted)
        for one in noted:
            log.warning("%s", one.sentence)


def compare_again(root: Path, files: Files) -> None:
    """Compare the hours again of which something is noted: somebody has settled it. Raises `OSError`."""
    if list_differing(root):
        with locked(root / KEYS / LOCK):
            begun = follow_ledger(root, None)
            hours = {one.hour for one in list_differing(root)}
            compare_hours(root, files, hours, None if begun is None else begun.position)


def _differing(root: Path, hours: Collection[Hour], *, is_noted: bool = False) -> dict[str, str]:
    """By path, what is wrong with those compacted and late files of some hours that are not the ledger's.

    What somebody accepted or a repair restored is not wrong. A change that is under way may explain a
    difference. With `is_noted`, a difference was found there before: it stays wrong if another file has taken
    the place of a missing one since. Raises `OSError` if the ledger cannot be read.
    """
    noted = {path: seal for hour in hours for path, seal in read_note(root, hour).items()}
    paths = {relative(root, path) for listed in compacted_files(root, hours).values() for path in listed}
    there: dict[str, str | None] = {}
    unreadable: set[str] = set()
    for path in paths | noted.keys():
        try:
            there[path] = seal_there(root / path)
        except parquet.DAMAGED:
            unreadable.add(path)
    if there == noted and not is_noted:
        return {}
    state = read_ledger(root) or LedgerState()
    settled = state.accepted.keys() | state.restored
    found = {
        one.path: one.what
        for one in state.doubts.values()
        if one.kind in {"removed", "unrecorded"} and hour_in(one.path) in hours and one.id not in settled
    }
    for path in sorted({*there, *unreadable, *state.files_of(hours)}):
        known, seal = state.seal(path), there.get(path)
        if path in unreadable:
            found[path] = f"{path} cannot be read"
        elif seal is None and known is not None:
            if finding_id("removed", path, known) not in settled:
                found[path] = f"{path} is gone, and no age-off removed it"
        elif seal != known:
            found[path] = f"{path} is not the file in the ledger"
    return found
