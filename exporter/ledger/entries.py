"""The ledger's entries: what each says, and where it is. A past day has one file for all of its entries.

    provenance/ledger/YYYYMMDD/NNNNNNNNNN.json                 one entry
    provenance/ledger/YYYYMMDD/NNNNNNNNNN-NNNNNNNNNN.jsonl     all of a day, a line each, byte for byte

The second kind is made from the first when a later day gets its first entry, so that a year has 365 files
instead of half a million. It is published before the single files are removed; single files that a crash
leaves beside it are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.transport.files import Files, publish, sweep

from ..directory import names
from ..names import LEDGER, RAW, Hour

if TYPE_CHECKING:
    from ..quarantine import Quarantined


class Changes(dict[str, str | None]):
    """By path relative to the root, the seal of each published file, or None for each removed one.

    Attributes:
        certain: False if something failed on the way, so that only the files show their state.
        quarantined: for each quarantined file, its old and its new path.
        reasons: the reason for each quarantined file, by its new path.
        found: by path, the seal of the file that was there before, or None if there was none.
        restored: the ids of findings whose rows were filed again.
        accepted: the reason for each accepted finding, by its id.
    """

    certain = True

    def __init__(self) -> None:
        super().__init__()
        self.quarantined: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.found: dict[str, str | None] = {}
        self.restored: tuple[str, ...] = ()
        self.accepted: Mapping[str, str] = {}

    def add_quarantined(self, files: Iterable[Quarantined]) -> None:
        """Note that damaged files were moved away. Files published in their place come through `update`."""
        for one in files:
            self.quarantined[one.path] = one.kept
            self.reasons[one.kept] = one.reason
            if not one.path.startswith(f"{RAW}/"):
                self[one.path] = None


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a root, or the findings that somebody accepted.

    Attributes:
        before: SHA-256 of the previous entry, in hex digits; empty in the first entry.
        at_ms: when it was started, in epoch milliseconds.
        hours: the hours that it concerns.
        files: by path relative to the root, the seal of each changed file, or None for each removed one. None
            as a whole: the entry is started but not completed.
        whole: whether `files` are all files of these hours.
        aside: for each quarantined file, its old and its new path.
        found: by path, the seal of the file that was there before the change, or None if there was none.
            Other paths were not checked. In the first entry, the predecessors' seals.
        reasons: the reason for each quarantined file, by its new path.
        keeps: the change removes no file; files missing after a crash were not removed by it.
        refiles: the change refiles entries that the archive lacked, outside its chain.
        accepted: the reason for each accepted finding, by its id.
        restored: the ids of findings whose rows were filed again.
    """

    before: str
    at_ms: int
    hours: tuple[Hour, ...]
    files: dict[str, str | None] | None = None
    whole: bool = False
    aside: dict[str, str] = {}
    found: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    keeps: bool = False
    refiles: bool = False
    accepted: Mapping[str, str] = {}
    restored: tuple[str, ...] = ()


def hash_of(content: bytes) -> str:
    """The SHA-256 of an encoded entry, in hex digits."""
    return hashlib.sha256(content).hexdigest()


encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(LedgerEntry).decode
"""Decode an entry; raises `msgspec.DecodeError` if it is not one."""


_ONE: Final = re.compile(r"([0-9]{10})\.json")
_DAY: Final = re.compile(r"([0-9]{10})-([0-9]{10})\.jsonl")


class EntryFile(NamedTuple):
    """A stored entry."""

    path: Path
    number: int
    """Its number in the ledger; for an entry in a day's file, the number of that file's last entry."""
    content: bytes


def read_entries(root: Path, since: str = "", number: int = 0) -> Iterator[EntryFile]:
    """All entries, in order; raises `OSError` if one cannot be read.

    With a day and the number of an entry of that day, those before it are left out, as far as that spares
    reading them.
    """
    for day in _days(root):
        if day >= since:
            yield from _of_day(root, day, since=number)


def last_entry(root: Path) -> EntryFile | None:
    """The last entry; None if there is none. Raises `OSError` if it cannot be read."""
    newest = (found for day in reversed(_days(root)) if (found := _of_day(root, day, last_only=True)))
    return next((found[-1] for found in newest), None)


def next_path(root: Path, last: EntryFile | None, at_ms: int) -> Path:
    """The path of the next entry, given the previous entry and the start time, in epoch milliseconds."""
    day = f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y%m%d}"
    number = 1
    if last is not None:
        # A clock that is set back must not change the order.
        day, number = max(day, last.path.parent.name), last.number + 1
    return root / LEDGER / day / f"{number:010}.json"


def fold_days(root: Path, files: Files, before: str) -> None:
    """Make one file of each earlier day's entries; if that fails, it is tried again another day.

    The caller must hold the root's lock, and every entry of those days must be completed.
    """
    for day in reversed([day for day in _days(root) if day < before]):
        folder = root / LEDGER / day
        singles = [name for name in names(folder) if _ONE.fullmatch(name)]
        if not singles:
            if any(_DAY.fullmatch(name) for name in names(folder)):
                return  # The days before this one have already been merged.
            continue
        with contextlib.suppress(OSError):
            _fold(files, folder, singles)


def _fold(files: Files, folder: Path, singles: list[str]) -> None:
    if not any(_DAY.fullmatch(name) for name in names(folder)):
        contents = [(folder / name).read_bytes() for name in singles]
        if any(b"\n" in content for content in contents):
            return  # Waybill did not write this entry; `verify` reports it.
        sweep(files, folder)
        name = f"{singles[0][:-5]}-{singles[-1][:-5]}.jsonl"
        publish(files, folder / name, b"".join(content + b"\n" for content in contents))
    for name in singles:
        files.remove(folder / name)
    files.fsync_folder(folder)


def _of_day(root: Path, day: str, *, since: int = 0, last_only: bool = False) -> list[EntryFile]:
    folder = root / LEDGER / day
    while True:
        # An entry that vanishes while it is read is now in the day's file, or recorded no change.
        with contextlib.suppress(FileNotFoundError):
            return _read_day(folder, since=since, last_only=last_only)


def _read_day(folder: Path, *, since: int, last_only: bool) -> list[EntryFile]:
    found: list[EntryFile] = []
    listed = list(names(folder))
    folds = [(name, int(match[2])) for name in listed if (match := _DAY.fullmatch(name))]
    folded = max((upto for _, upto in folds), default=0)
    begin = bisect_left(listed, f"{max(since, folded + 1):010}")
    singles = [(name, int(match[1])) for name in listed[begin:] if (match := _ONE.fullmatch(name))]
    if last_only and singles:
        folds, singles = [], singles[-1:]
    for name, upto in folds:
        lines = (folder / name).read_bytes().split(b"\n")[:-1]
        found += [EntryFile(folder / name, upto, line) for line in lines]
    return found + [
        EntryFile(folder / name, number, (folder / name).read_bytes()) for name, number in singles
    ]


def _days(root: Path) -> list[str]:
    return list(names(root / LEDGER))
