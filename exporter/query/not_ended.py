"""Files and runs that began and have not ended, and so have no record."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from waybill.facets import SEVERITY, canonical_did
from waybill.transport.runner import OpenRun

from .. import parquet
from ..archive import archived_files, read_entries
from ..layout import OPEN, is_stored, key_of, read_run
from ..names import LAYOUT, hour_of
from .backlog import damaged, unfiled_entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from waybill.facets import RunEvent, RunState
    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

    from ..names import Hour


class OpenRunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A file or run that began and has not ended.

    Attributes:
        parent_did: the file that it was split from; for a run without the facet, its parent run.
        system_name: that of the file; for a run without the facet, the namespace of its job.
        data_source: where the file came in; for a run without the facet, the name of its job.
        filename: None for a run without the facet.
        annotations: those that it began with, whether or not they are allowed in a record.
        began_ms: when its first entry was received, in epoch milliseconds.
        last_ms: when its last entry was received.
        begun: the values that its end has to repeat.
    """

    did: str
    parent_did: str | None
    system_name: str
    data_source: str
    filename: str | None
    annotations: dict[str, str]
    began_ms: int
    last_ms: int
    begun: OpenRun


def open_runs(journal: Journal, settings: Settings, unread: list[str]) -> list[OpenRunSeen]:
    """The files and runs of a home that are open, the longest silent first.

    While `provenance_enabled` is off, all of the journal and the archive is read. A run without a new entry
    for `journal_retain_days` is forgotten.

    A sentence about each entry and archived file that cannot be read is added to `unread`, since it may
    have begun or ended a run.

    Raises:
        JournalError: the journal cannot be read.
    """
    found = _noted(journal, settings.root, unread)
    ended: set[int] = set()
    for entries in unfiled_entries(journal, settings.root, unread):
        for entry in entries:
            if entry.damage is not None:
                unread.append(damaged(journal, entry, entry.damage))
            elif (event := entry.run_event) is not None:
                _take(event, entry, found, ended, journal)
    return sorted(found.values(), key=lambda one: (one.last_ms, one.did))


def _noted(journal: Journal, root: Path, unread: list[str]) -> dict[str, OpenRunSeen]:
    """The runs that the layout notes as open, by key."""
    state_get = functools.partial(journal.state_get, LAYOUT)
    noted: dict[str, _Noted] = {}
    for row, value in journal.state(LAYOUT, OPEN).items():
        key = row.removeprefix(OPEN)
        run = read_run(key, state_get)
        if run is not None and run.state is not None:
            seq, began_ms = msgspec.msgpack.decode(value, type=tuple[int, int])
            noted[key] = _Noted(run.state, run.touched_ms, seq, began_ms)
    begun = _begun(journal, root, noted.values(), unread)
    return {key: _seen(begun[key], one.began_ms, one.touched_ms) for key, one in noted.items()}


class _Noted(NamedTuple):
    """The layout's note of an open run: its stored state, and the entry that began it and when it came."""

    state: RunState
    touched_ms: int
    seq: int
    began_ms: int


def _begun(journal: Journal, root: Path, noted: Iterable[_Noted], unread: list[str]) -> dict[str, OpenRun]:
    """The beginnings of runs, by key: from the journal, or else from the archive, each file read once."""
    found: dict[str, OpenRun] = {}
    by_hour: defaultdict[Hour, set[str]] = defaultdict(set)
    for one in noted:
        run_id, state = one.state.run_id, one.state
        # Damaged or aged off: an end needs a job, and this one is as good as any.
        found[key_of(run_id)] = OpenRun("", state.system_name, run_id, state.system_name, "unknown")
        for entry in journal.read(one.seq - 1, limit=1):
            event = entry.run_event
            if event is not None and event.run.runId == run_id:
                found[key_of(run_id)] = OpenRun.begun_by(event, entry)
                break
        else:
            by_hour[hour_of(one.began_ms)].add(run_id)
    for hour, run_ids in by_hour.items():
        for event, entry in _archived(root, hour, run_ids, unread):
            if event.run.runId in run_ids:
                run_ids.remove(event.run.runId)
                found[key_of(event.run.runId)] = OpenRun.begun_by(event, entry)
    return found


def _archived(
    root: Path, hour: Hour, run_ids: Collection[str], unread: list[str]
) -> Iterator[tuple[RunEvent, Entry]]:
    """The entries of some runs in an hour of the archive; stops once `run_ids` is empty."""
    for _, path in archived_files(root, hour, hour):
        if not run_ids:
            return
        try:
            for entries in read_entries(path, run_ids=frozenset(run_ids)):
                for entry in entries:
                    if (event := entry.run_event) is not None:
                        yield event, entry
        except FileNotFoundError:
            continue  # It has been aged off meanwhile.
        except parquet.DAMAGED as error:
            if (sentence := parquet.unreadable(path, error, root=root)) not in unread:
                unread.append(sentence)


def _take(
    event: RunEvent, entry: Entry, found: dict[str, OpenRunSeen], ended: set[int], journal: Journal
) -> None:
    """Apply an unfiled entry to its run; older entries may come after newer ones."""
    key = key_of(event.run.runId)
    known = found.get(key)
    if event.eventType in SEVERITY:
        found.pop(key, None)
        ended.add(hash(key))
    elif known is None:
        if hash(key) not in ended and not is_stored(journal, key):
            found[key] = _seen(OpenRun.begun_by(event, entry), entry.received_ms, entry.received_ms)
    elif entry.received_ms < known.began_ms:
        found[key] = _seen(OpenRun.begun_by(event, entry), entry.received_ms, known.last_ms)
    else:
        last_ms = max(known.last_ms, entry.received_ms)
        found[key] = msgspec.structs.replace(known, last_ms=last_ms)


def _seen(begun: OpenRun, began_ms: int, last_ms: int) -> OpenRunSeen:
    file = begun.delta_file
    return OpenRunSeen(
        did=file.did if file else canonical_did(begun.run_id),
        parent_did=(file and file.parent_did) or begun.parent_id,
        system_name=(file and file.system_name) or begun.namespace,
        data_source=(file and file.data_source) or begun.name,
        filename=None if file is None else file.filename,
        annotations=(file and file.annotations) or {},
        began_ms=began_ms,
        last_ms=last_ms,
        begun=begun,
    )
