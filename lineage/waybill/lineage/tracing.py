"""Following a file through its splits, up to where it came from and down to what became of it.

Each generation is one question about many files. So a journey takes about as many questions as it has
generations, however many files there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from waybill.exporter import Query
from waybill.exporter.query import read_as_of
from waybill.exporter.rebuilding import rule_for
from waybill.facets import ProvenanceRecord
from waybill.lineage.journey import Journey, ToldFile, linked
from waybill.transport.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

Ask = Callable[[Query], Iterable[ProvenanceRecord]]
"""Answers a query with all its records, in any order."""

_DIDS_AT_ONCE: Final = 20_000

_Found = dict[str, list[ProvenanceRecord]]
"""The records of each file of the journey, by its did; none for a file of which only the did is known."""


def trace(ask: Ask, did: str, *, up: bool = True, down: bool = True, depth: int | None = None) -> Journey:
    """The journey of a file: its ancestors, itself and its descendants.

    A file without a record is in the journey if another file names it as its parent: it may not have ended,
    it may have aged off, or it may be no file but an application. Files that name each other as parents, in
    a circle, are each in the journey once.

    Args:
        ask: where the records come from.
        did: the file; a UUID may be spelled in any way.
        up: whether to follow its ancestors.
        down: whether to follow its descendants.
        depth: follow at most this many generations each way; None: all.

    Raises:
        NotFoundError: no record has this did, as its own or as its parent's.
        Exception: the errors of `ask`.
    """
    found: _Found = {}
    _add(found, ask(Query(did=did)))
    start = next(iter(found), None) or _as_its_children_spell(ask, did)
    found.setdefault(start, [])
    if up:
        _follow_up(ask, start, found, depth)
    if down:
        _follow_down(ask, start, found, depth)
    return _journey(start, found)


def trace_as_of(
    now: Journey,
    at_ms: int,
    root: Path,
    journal: Journal | None,
    settings: Settings,
    *,
    up: bool = True,
    down: bool = True,
    depth: int | None = None,
    on_batch: Callable[[], object] = lambda: None,
) -> Journey:
    """A journey as it was known at an instant: only what had been received by then.

    Where a record of today was merged from repeats that name different parents, only the files of the journey
    of today are looked at.

    Args:
        now: the journey as it is known now, as far as it is to be followed.
        at_ms: the instant, epoch milliseconds.
        root: the folder of the layout and the archive.
        journal: the journal of the root's home; None: the root alone is asked.
        settings: those of the home, or the user's.
        up: whether to follow its ancestors.
        down: whether to follow its descendants.
        depth: follow at most this many generations each way; None: all.
        on_batch: called after each batch of entries; it may raise to give up.

    Raises:
        NotFoundError: nothing had been received of the file by then.
        Exception: the errors of `waybill.exporter.query.read_as_of`.
    """
    known = read_as_of(
        root,
        journal,
        [record for file in now.files.values() for record in file.records],
        at_ms,
        system_name=settings.system_name,
        rule=rule_for(settings, root),
        on_batch=on_batch,
    )
    try:
        return trace(_Known(known), now.did, up=up, down=down, depth=depth)
    except NotFoundError:
        raise NotFoundError(
            f"nothing was known of the file {now.did} at that time; give a later time, or none"
        ) from None


class _Known:
    """Answers the questions of `trace` from records in memory."""

    def __init__(self, records: Iterable[ProvenanceRecord]) -> None:
        self._by_did: defaultdict[str | None, list[ProvenanceRecord]] = defaultdict(list)
        self._by_parent: defaultdict[str | None, list[ProvenanceRecord]] = defaultdict(list)
        for record in records:
            self._by_did[record.did].append(record)
            self._by_parent[record.parent_did].append(record)

    def __call__(self, query: Query) -> Iterator[ProvenanceRecord]:
        for did in query.dids or {query.did} - {None}:
            yield from self._by_did.get(did, ())
        for did in query.parent_dids or {query.parent_did} - {None}:
            yield from self._by_parent.get(did, ())


def _as_its_children_spell(ask: Ask, did: str) -> str:
    """The did of a file without a record; raises `NotFoundError` if no other file names it either."""
    for record in ask(Query(parent_did=did, limit=1)):
        return str(record.parent_did)
    raise NotFoundError(f"no record has the did {did}, as its own or as its parent's; check the did")


def _follow_up(ask: Ask, start: str, found: _Found, depth: int | None) -> None:
    generation = {start}
    while generation and depth != 0:
        named = {record.parent_did for did in generation for record in found[did]}
        generation = {did for did in named if did and did not in found}
        for did in generation:
            found[did] = []
        _add(found, _records_of(ask, generation))
        depth = depth and depth - 1


def _follow_down(ask: Ask, start: str, found: _Found, depth: int | None) -> None:
    generation, reached = {start}, {start}
    while generation and depth != 0:
        named = [ask(Query(parent_dids=dids)) for dids in _parts(generation)]
        generation = {record.did for records in named for record in records} - reached
        reached |= generation
        depth = depth and depth - 1
    # Only now its records: those that name another parent, or none, answered none of the questions.
    _add(found, _records_of(ask, reached - found.keys()))


def _records_of(ask: Ask, dids: Iterable[str]) -> Iterator[ProvenanceRecord]:
    for part in _parts(dids):
        yield from ask(Query(dids=part))


def _parts(dids: Iterable[str]) -> Iterator[frozenset[str]]:
    """So many dids at a time as one question may be about."""
    wanted = sorted(dids)
    for at in range(0, len(wanted), _DIDS_AT_ONCE):
        yield frozenset(wanted[at : at + _DIDS_AT_ONCE])


def _add(found: _Found, records: Iterable[ProvenanceRecord]) -> None:
    for record in records:
        found.setdefault(record.did, []).append(record)


def _journey(start: str, found: _Found) -> Journey:
    for records in found.values():
        records.sort(key=lambda one: (one.completed, one.data_sink or "", one.transforms))
    return linked(start, (_told(did, records) for did, records in found.items()))


def _told(did: str, records: list[ProvenanceRecord]) -> ToldFile:
    parents = sorted({record.parent_did for record in records if record.parent_did})
    return ToldFile(did=did, parents=tuple(parents), records=tuple(records))
