"""Comparing the files of some hours with the ledger, before they are changed.

    provenance/seals/YYYYMMDD/HH.json    by path, the last seals of an hour's compacted and late files

Reading a ledger of many years for each compaction would take longer every day. So the last seals of each hour
are noted beside it. If a file matches the note, the ledger need not be read; that is all a note decides. If
the file differs, or the note is lost, torn or outdated, the ledger itself is read. So notes need no fsync.

A note proves nothing. If somebody forges a file and its note, the file is merged here, but `verify` reports
it, because it reads the ledger. Naming the file's ledger entry in the note would not help: an older file also
has a genuine entry, and anyone who can write notes can write entries.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.parquet as pq

from .. import parquet
from ..differing import note_gone
from ..directory import compacted_files, names
from ..names import SEALS, Hour, hour_in, parse_hour, relative
from ..parquet import seal_in
from ..quarantine import Quarantined, quarantine
from .state import LedgerState, finding_id, is_archived, read_ledger

if TYPE_CHECKING:
    from waybill.transport.files import Files

    from .entries import Changes


def hold_against_ledger(
    root: Path,
    files: Files,
    hours: Collection[Hour],
    changes: Changes,
    *,
    only: Collection[Path] | None = None,
) -> list[Quarantined]:
    """Quarantine the files of some hours that differ from the ledger, and return them.

    The seals found are added to the changes.

    Checks the hours' compacted and late files, or `only` some files. A missing file is noted, for answers and
    for the ledger: another may take its place. A file that cannot be read is left to its readers. The caller
    must hold the root's lock. Raises `OSError` if the ledger cannot be read, a file cannot be moved or a loss
    cannot be noted.
    """
    noted = {path: seal for hour in hours for path, seal in read_note(root, hour).items()}
    if only is None:
        there = {relative(root, path) for paths in compacted_files(root, hours).values() for path in paths}
        looked_at = there | noted.keys()
    else:
        looked_at = {relative(root, path) for path in only}
    for path in looked_at:
        with contextlib.suppress(*parquet.DAMAGED):
            changes.found[path] = seal_there(root / path)
    others = sorted(
        path for path in looked_at & changes.found.keys() if changes.found[path] != noted.get(path)
    )
    state = (read_ledger(root) if others else None) or LedgerState()
    aside: list[Quarantined] = []
    gone: list[str] = []
    # If this is the root's first entry, there is nothing to compare with.
    for path in others if state.entries else ():
        known, hour = state.seal(path), hour_in(path)
        if hour is None or changes.found[path] == known:
            continue
        if changes.found[path] is None:
            # `known` is not None here: somebody else removed the file.
            if finding_id("removed", path, known or "") not in state.accepted:
                gone.append(path)
            continue
        reason = "the ledger does not know it" if known is None else f"in the ledger its seal is {known}"
        data = (root / path).read_bytes()
        aside.append(quarantine(root, PurePosixPath(path), hour, data, reason=reason, files=files))
        changes.found[path] = None
    if gone:
        note_gone(root, files, gone)
    changes.add_quarantined(aside)
    return aside


def noted_hours(root: Path) -> set[Hour]:
    """The hours of which the last seals are noted."""
    return {
        hour
        for day in names(root / SEALS)
        for name in names(root / SEALS / day)
        if (hour := parse_hour(day, name.removesuffix(".json")))
    }


def seal_there(path: Path) -> str | None:
    """The seal of the file at a path; empty if it has none, None if there is no file.

    Raises `DAMAGED` if its footer cannot be read.
    """
    try:
        return seal_in(pq.read_metadata(path).metadata) or ""
    except FileNotFoundError:
        return None


def read_note(root: Path, hour: Hour) -> dict[str, str]:
    """The noted last seals of an hour's compacted and late files, by path."""
    try:
        return _DECODER.decode((root / _note_path(hour)).read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}


def note_seals(root: Path, files: Files, seals: Mapping[str, str | None]) -> None:
    """Note the last seals of compacted and late files, by path; None for a removed file.

    If a note cannot be written, the next change of that hour reads the ledger.
    """
    by_hour: defaultdict[Hour, dict[str, str | None]] = defaultdict(dict)
    for path, seal in seals.items():
        if not is_archived(path) and (hour := hour_in(path)) is not None:
            by_hour[hour][path] = seal
    for hour, changed in by_hour.items():
        before = read_note(root, hour)
        after = {path: seal for path, seal in {**before, **changed}.items() if seal}
        if after != before:
            with contextlib.suppress(OSError):
                _write(files, root / _note_path(hour), after)


def _write(files: Files, path: Path, seals: dict[str, str]) -> None:
    if seals:
        files.make_folder(path.parent)
        files.write(path, _ENCODER.encode(seals))
    else:
        files.remove(path)
        files.remove_folder(path.parent)


def _note_path(hour: Hour) -> PurePosixPath:
    return SEALS / hour.day / f"{hour.hour}.json"


_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(dict[str, str])
