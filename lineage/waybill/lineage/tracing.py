"""Following a file through its splits, up to where it came from and down to what became of it.

Each generation is one question about many files. So a journey takes about as many questions as it has
generations, however many files there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from waybill.exporter import Query
from waybill.exporter.query import read_as_of, spellings_of
from waybill.exporter.rebuilding import rule_for
from waybill.facets import ProvenanceRecord
from waybill.lineage.journey import Journey, ToldFile, linked
from waybill.lineage.kin import Kin
from waybill.transport.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

Ask = Callable[[Query], Iterable[ProvenanceRecord]]
"""Answers a query with all its records, in any order."""

_DIDS_AT_ONCE: Final = 200_000
"""About 20 MB of texts."""

_Found = dict[str, list[ProvenanceRecord]]
"""The records of each file of the journey, by its did; none for a file of which only the did is known."""


def trace(
    ask: Ask,
    did: str,
    *,
    up: bool = True,
    down: bool = True,
    depth: int | None = None,
    kin: Kin | None = None,
) -> Journey:
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
        kin: knows the parents of joined files; None: each record's parent is all that is known.

    Raises:
        NotFoundError: no record has this did, as its own or as its parent's.
        Exception: the errors of `ask`.
    """
    kin = kin or Kin()
    found: _Found = {}
    _add(found, ask(Query(did=did)))
    start = next(iter(found), None) or _as_others_spell(ask, kin, did)
    found.setdefault(start, [])
    if up:
        _follow_up(ask, kin, start, found, depth)
    if down:
        _follow_down(ask, kin, start, found, depth)
    return _journey(start, found, kin)


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
        return trace(_Known(known), now.did, up=up, down=down, depth=depth, kin=_KinThen(now, known))
    except NotFoundError:
        raise NotFoundError(
            f"nothing was known of the file {now.did} at that time; give a later time, or none"
        ) from None


class _KinThen(Kin):
    """The further parents of joined files that were known then: the event that gave the record named them."""

    def __init__(self, now: Journey, known: Iterable[ProvenanceRecord]) -> None:
        super().__init__()
        self._parents: dict[str, tuple[str, ...]] = {}
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for file in (now.files[did] for did in {record.did for record in known}):
            named = {record.parent_did for record in file.records}
            self._parents[file.did] = tuple(did for did in file.parents if did not in named)
        for did, parents in self._parents.items():
            for parent in parents:
                self._children[parent].append(did)

    def parents_of(self, dids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: self._parents[did] for did in dids if self._parents.get(did)}

    def children_of(self, dids: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: tuple(self._children[did]) for did in dids if did in self._children}


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


def _as_others_spell(ask: Ask, kin: Kin, did: str) -> str:
    """The did of a file without a record; raises `NotFoundError` if no other file names it either."""
    spelled = spellings_of(did)
    for known in (*kin.children_of(spelled), *kin.parents_of(spelled)):
        return known
    for record in ask(Query(parent_did=did, limit=1)):
        return str(record.parent_did)
    raise NotFoundError(f"no record has the did {did}, as its own or as its parent's; check the did")


def _follow_up(ask: Ask, kin: Kin, start: str, found: _Found, depth: int | None) -> None:
    generation = {start}
    while generation and depth != 0:
        named = {record.parent_did for did in generation for record in found[did]}
        named.update(chain.from_iterable(kin.parents_of(generation).values()))
        generation = {did for did in named if did and did not in found}
        for did in sorted(generation):
            found[did] = []
        _add(found, _records_of(ask, generation))
        depth = depth and depth - 1


def _follow_down(ask: Ask, kin: Kin, start: str, found: _Found, depth: int | None) -> None:
    generation, reached = {start}, {start}
    while generation and depth != 0:
        named = [ask(Query(parent_dids=dids)) for dids in _parts(generation)]
        children = {record.did for records in named for record in records}
        children.update(chain.from_iterable(kin.children_of(generation).values()))
        generation = children - reached
        reached |= generation
        depth = depth and depth - 1
    # Only now its records: those that name another parent, or none, answered none of the questions.
    _add(found, _records_of(ask, reached - found.keys()))
    for did in sorted(reached - found.keys()):
        found[did] = []


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


def _journey(start: str, found: _Found, kin: Kin) -> Journey:
    for records in found.values():
        records.sort(key=lambda one: (one.completed, one.data_sink or "", one.transforms))
    parents = kin.parents_of(found)
    return linked(start, (_told(did, records, parents.get(did, ())) for did, records in found.items()))


def _told(did: str, records: list[ProvenanceRecord], parents: Iterable[str]) -> ToldFile:
    named = {record.parent_did for record in records if record.parent_did}.union(parents)
    return ToldFile(did=did, parents=tuple(sorted(named)), records=tuple(records))
