"""The ledger of a root: every change of its compacted, late and archive files, in a chain of small entries.

An entry holds the hash of the one before it. So no entry can be changed, left out or inserted unless all that
follow are rewritten, and the hash of the last one, kept anywhere else, vouches for everything before it. An
entry is begun, with the hours that are about to change, before the first file changes, and completed after
the last. After a crash in between, the next change first completes it from the files of those hours.
`waybill.exporter.ledger.entries` knows how entries are stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.parquet as pq

from waybill.exporter import parquet
from waybill.exporter.directory import compacted_in, names
from waybill.exporter.ledger.entries import EntryFile, fold_days, last_entry, next_path, read_entries
from waybill.exporter.names import EVENTS, RAW, Hour, RawName, events_folder
from waybill.exporter.parquet import seal_in
from waybill.exporter.quarantine import list_quarantined
from waybill.transport.files import Files, publish, sweep
from waybill.transport.locks import locked

if TYPE_CHECKING:
    from pathlib import PurePath

    from waybill.exporter.quarantine import Quarantined


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a root.

    Attributes:
        before: SHA-256 of the entry before it, in hex digits; empty in the first.
        at_ms: when it was begun, in epoch milliseconds.
        hours: the hours that it concerns.
        files: by path relative to the root, the seal of each changed file, and None for each removed one.
            None as a whole: the entry is begun and not completed.
        whole: `files` are all files of these hours.
        aside: for each file that was quarantined, where it was and where it is.
    """

    before: str
    at_ms: int
    hours: tuple[Hour, ...]
    files: dict[str, str | None] | None = None
    whole: bool = False
    aside: dict[str, str] = {}


class LedgerState(msgspec.Struct):
    """What the entries of a ledger say together.

    Attributes:
        head: SHA-256 of the last completed entry, in hex digits; empty where there is none.
        entries: how many entries are completed.
        heads: the SHA-256 of each of them.
        seals: by path, the seals of the file there and of its predecessor, each None where there is none.
        changing: hours that an entry was begun for.
        broken: a sentence for each entry that does not follow the one before it.
    """

    head: str = ""
    entries: int = 0
    heads: set[str] = msgspec.field(default_factory=set)
    seals: dict[str, tuple[str | None, str | None]] = {}
    changing: frozenset[Hour] = frozenset()
    broken: list[str] = []


class Changes(dict[str, str | None]):
    """By path relative to the root, the seal of each published file, and None for each removed one.

    Attributes:
        certain: False where something failed on the way, so that only the files can tell what they are.
        quarantined: for each file that was quarantined, where it was and where it is.
    """

    certain = True

    def __init__(self) -> None:
        super().__init__()
        self.quarantined: dict[str, str] = {}

    def add_quarantined(self, files: Iterable[Quarantined]) -> None:
        """Note that damaged files left. What was published in their place since is for `update` to say."""
        for one in files:
            self.quarantined[one.path] = one.kept
            if not one.path.startswith(f"{RAW}/"):
                self[one.path] = None


@contextlib.contextmanager
def root_lock(root: Path, files: Files) -> Iterator[None]:
    """Wait until nobody else changes the files of this root, and keep others waiting meanwhile."""
    folder = root / RAW.parent
    files.make_folder(folder)
    with locked(folder / _LOCK):
        yield


@contextlib.contextmanager
def recorded(root: Path, files: Files, hours: Iterable[Hour]) -> Iterator[Changes]:
    """Take the root's lock, and record what changes in some hours: the caller fills in the changes.

    Raises `OSError` if an entry cannot be read or written.
    """
    with root_lock(root, files):
        last = _complete(root, files)
        entry = LedgerEntry(
            _hash(last.content) if last else "", time.time_ns() // 1_000_000, tuple(sorted(hours))
        )
        path = next_path(root, last, entry.at_ms)
        if last is not None and last.path.parent != path.parent:
            fold_days(root, files, path.parent.name)
        files.make_folder(path.parent)
        sweep(files, path.parent)
        publish(files, path, _ENCODER.encode(entry))
        changed = Changes()
        yield changed
        if not changed.certain:
            _complete_by_files(root, files, path, entry)
        elif changed or changed.quarantined:
            done = msgspec.structs.replace(entry, files=dict(changed), aside=changed.quarantined)
            publish(files, path, _ENCODER.encode(done))
        else:
            files.remove(path)


def read_ledger(root: Path) -> LedgerState | None:
    """Follow a ledger from its first entry, if there is one; raises `OSError` if an entry cannot be read."""
    state, is_empty = LedgerState(), True
    for path, _, content in read_entries(root):
        is_empty = False
        try:
            entry = _DECODER.decode(content)
        except msgspec.DecodeError as error:
            state.broken.append(f"{path} is no entry of a ledger ({error}); restore it")
            continue
        if entry.files is None:
            state.changing |= frozenset(entry.hours)
            continue
        if entry.before != state.head:
            state.broken.append(f"{path} does not follow the entry before it; restore both from a copy")
        _follow(state, entry)
        state.head = _hash(content)
        state.heads.add(state.head)
        state.entries += 1
    return None if is_empty else state


def _follow(state: LedgerState, entry: LedgerEntry) -> None:
    if entry.files is None:
        return
    if entry.whole:
        ends = tuple(f"/{hour.day}/{hour.hour}.parquet" for hour in entry.hours)
        begins = tuple(f"{events_folder(hour)}/" for hour in entry.hours)
        for path, (seal, _) in state.seals.items():
            is_concerned = path.endswith(ends) or path.startswith(begins)
            if seal is not None and is_concerned and path not in entry.files:
                state.seals[path] = (None, seal)
    for path, seal in entry.files.items():
        # What replaces a quarantined file begins a new chain.
        before = (None, None) if path in entry.aside else state.seals.get(path, (None, None))
        if seal != before[0] or not entry.whole:
            state.seals[path] = (seal, before[0])


def _complete(root: Path, files: Files) -> EntryFile | None:
    """Complete the last entry if a crash left it begun; return it as it is then."""
    last = last_entry(root)
    if last is None:
        return None
    try:
        entry = _DECODER.decode(last.content)
    except msgspec.DecodeError as error:
        raise OSError(f"{last.path} is no entry of a ledger ({error}); restore it from a copy") from None
    if entry.files is None:
        _complete_by_files(root, files, last.path, entry)
        last = last._replace(content=last.path.read_bytes())
    return last


def _complete_by_files(root: Path, files: Files, path: Path, entry: LedgerEntry) -> None:
    found = dict(_seals(root, entry.hours))
    aside = {
        one.path: one.kept
        for one in list_quarantined(root)
        if one.hour in entry.hours and one.at_ms >= entry.at_ms
    }
    done = msgspec.structs.replace(entry, files=found, whole=True, aside=aside)
    publish(files, path, _ENCODER.encode(done))


def _seals(root: Path, hours: Iterable[Hour]) -> Iterator[tuple[str, str | None]]:
    for hour in hours:
        folder = root / events_folder(hour)
        archived = [folder / name for name in names(folder) if RawName.parse(name)]
        for path in [path for _, path in compacted_in(root, hour)] + archived:
            # A missing file raises an `OSError`, and one that cannot be read has no seal to be known by.
            with contextlib.suppress(*parquet.DAMAGED):
                yield relative(root, path), seal_in(pq.read_metadata(path).metadata)


def is_of(path: str, hour: Hour) -> bool:
    """Whether a path in a ledger is of a file of this hour."""
    return path.endswith(f"/{hour.day}/{hour.hour}.parquet") or path.startswith(f"{events_folder(hour)}/")


def is_archived(path: str) -> bool:
    """Whether a path in a ledger is of a file of the archive."""
    return path.startswith(f"{EVENTS}/")


def relative(root: Path, path: PurePath) -> str:
    """A path as the ledger has it: relative to the root, with slashes."""
    return path.relative_to(root).as_posix()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_LOCK: Final = ".compact.lock"
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(LedgerEntry)
