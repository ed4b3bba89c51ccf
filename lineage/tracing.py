"""Following a file through its splits, up to where it came from and down to what became of it.

Each generation is one question about many files, and the records that name a file as their parent are its
children's own. So a journey takes about as many questions as it has generations, and most records are read
once. Where there are many generations, the parents of all files are read at once, as far as memory and time
allow, and the further generations are found there.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import Query
from waybill.exporter.query import Conditions, read_as_of
from waybill.exporter.rebuilding import rule_for
from waybill.facets import canonical_did
from waybill.facets.arrow import SCHEMA, to_table, to_tables
from waybill.transport.errors import NotFoundError

from .file_table import FileTable
from .journey import Journey
from .kin import Kin, NoKin

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from .index import OpenFile

Ask = Callable[[Query, Sequence[str]], Iterable[pa.Table]]
"""Answers a query with all its records, in any order: tables with these columns of `SCHEMA`."""

_NAMED_MAX: Final = 2_000
"""Every file of the layout is searched for all files that a question names. Where these are more, a look at
one or two columns first tells which of them have an answer."""

_DIDS_AT_ONCE: Final = 200_000
"""About 20 MB of texts."""

_LOOKS: Final = frozenset({4, 16, 64, 256, 1_024, 4_096})
"""Before these generations all edges are read at once, if that takes no longer than all before did."""

_LOOK_MIN_S: Final = 0.05
"""However soon the generations before were found, reading all edges may take this long."""

_EDGES_MAX: Final = 2_000_000
"""The maximum number of edges in memory, about 300 MB."""


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

    A file without a record is in the journey if it has begun and not ended, or if another file names it as
    its parent: it may have aged off, or it may be no file but an application. Files that name each other as
    parents, in a circle, are each in the journey once.

    Args:
        ask: where the records come from.
        did: the file; a UUID may be spelled in any way.
        up: whether to follow its ancestors.
        down: whether to follow its descendants.
        depth: follow at most this many generations each way; None: all.
        kin: knows the parents of joined files, and open files; None: the records are all that is known.

    Raises:
        NotFoundError: no record has this did, as its own or as its parent's, and no open file has it.
        Exception: the errors of `ask`.
    """
    kin = _WithOpenFiles(kin or NoKin())
    start = canonical_did(did)
    tables = [_read(ask, Query(did=start))]
    if not (len(tables[0]) or start in kin.begun or _is_named(ask, kin, start)):
        raise NotFoundError(f"no record has the did {did}, as its own or as its parent's; check the did")
    found = {start}
    if up:
        tables += _follow_up(ask, kin, tables[0], found, depth)
    if down:
        tables += _follow_down(ask, kin, start, found, depth)
    parents = ((parent, child) for child, some in kin.parents_of(found).items() for parent in some)
    open_files = (file for did, file in kin.begun.items() if did in found)
    return Journey(did=start, files=FileTable(pa.concat_tables(tables), found, parents, open_files))


class _WithOpenFiles(NoKin):
    """Who came from whom besides what the records say, open files included: they have no record yet."""

    def __init__(self, kin: Kin) -> None:
        self._kin = kin
        self.begun = {file.did: file for file in kin.open_files()}
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        for file in self.begun.values():
            if file.parent_did:
                self._children[file.parent_did].add(file.did)

    def kin_of(self, did: str, *, up: bool, depth: int | None) -> frozenset[str]:
        return self._kin.kin_of(did, up=up, depth=depth)

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        dids = list(dids)
        found = dict(self._kin.parents_of(dids))
        for file in (self.begun[did] for did in dids if did in self.begun):
            if file.parent_did:
                found[file.did] = (file.parent_did, *found.get(file.did, ()))
        return found

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        dids = list(dids)
        found = dict(self._kin.children_of(dids))
        for did in dids:
            if did in self._children:
                found[did] = (*self._children[did], *found.get(did, ()))
        return found


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
        return trace(_asked(known), now.did, up=up, down=down, depth=depth, kin=_KinThen(now, known, at_ms))
    except NotFoundError:
        raise NotFoundError(
            f"nothing was known of the file {now.did} at that time; give a later time, or none"
        ) from None


class _KinThen(NoKin):
    """The further parents of joined files that were known then: the event that gave the record named them."""

    def __init__(self, now: Journey, known: Iterable[ProvenanceRecord], at_ms: int) -> None:
        opened = (file.open for file in now.files.values() if file.open)
        self._open = [file for file in opened if file.received_ms <= at_ms]
        self._parents: dict[str, tuple[str, ...]] = {}
        self._children: defaultdict[str, list[str]] = defaultdict(list)
        for file in (now.files[did] for did in {record.did for record in known}):
            named = {record.parent_did for record in file.records}
            self._parents[file.did] = tuple(did for did in file.parents if did not in named)
        for did, parents in self._parents.items():
            for parent in parents:
                self._children[parent].append(did)

    def open_files(self) -> Sequence[OpenFile]:
        return self._open

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: self._parents[did] for did in dids if self._parents.get(did)}

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: tuple(self._children[did]) for did in dids if did in self._children}


def _asked(known: Iterable[ProvenanceRecord]) -> Ask:
    """Answer the questions of `trace` from records in memory."""
    records = pa.concat_tables([to_table([]), *to_tables(known)])

    def ask(query: Query, columns: Sequence[str]) -> Iterable[pa.Table]:
        return [Conditions(query).filter(records).select(list(columns))]

    return ask


def _is_named(ask: Ask, kin: Kin, did: str) -> bool:
    """Whether a file that has no record is the parent of another one, or has a parent that is known."""
    if kin.children_of([did]) or kin.parents_of([did]):
        return True
    return len(_read(ask, Query(parent_did=did, limit=1))) > 0


def _follow_up(
    ask: Ask, kin: Kin, records: pa.Table, found: set[str], depth: int | None
) -> Iterator[pa.Table]:
    """The records of the ancestors of the file that is `found`, and has these; their dids are added to it."""
    generation, unread = set(found), set[str]()
    ahead = _Ahead(ask, "dids", kin.kin_of(*found, up=True, depth=depth))
    shortcut = _Shortcut(ask, "did", "parent_did")
    while generation and depth != 0:
        edges = ahead.edges_of(generation) or shortcut.look()
        if edges is None and generation <= unread:
            records = _read_all(ask, "dids", generation)
            unread -= generation
            yield records
        named = edges.next_of(generation) if edges else _distinct(records["parent_did"])
        named.update(chain.from_iterable(kin.parents_of(generation).values()))
        generation = named - found
        found |= generation
        unread |= generation
        depth = depth and depth - 1
    yield _read_all(ahead.ask, "dids", unread)


def _follow_down(ask: Ask, kin: Kin, start: str, found: set[str], depth: int | None) -> list[pa.Table]:
    """The records of the descendants of a file that are not in `found`, to which their dids are added."""
    generation, reached, parents, unread = {start}, {start}, set[str](), set[str]()
    ahead = _Ahead(ask, "parent_dids", kin.kin_of(start, up=False, depth=depth))
    shortcut = _Shortcut(ask, "parent_did", "did")
    parts, walked = [], set[str]()
    while generation and depth != 0:
        named = set(chain.from_iterable(kin.children_of(generation).values()))
        if edges := ahead.edges_of(generation):
            named |= edges.next_of(generation)
            walked |= generation
        elif edges := shortcut.look():
            named |= edges.next_of(generation)
            unread |= named - reached
        else:
            parts.append(_read_all(ask, "parent_dids", _with_children(ask, generation)))
            parents |= _distinct(parts[-1]["parent_did"])
            named.update(parts[-1]["did"].to_pylist())
        generation = named - reached
        reached |= generation
        depth = depth and depth - 1
    parts.append(_read_all(ahead.ask, "parent_dids", walked))
    parents |= _distinct(parts[-1]["parent_did"])
    lacking = reached - found - unread
    apart = _with_other_parents(ask, lacking, parents) | (unread - found)
    found |= reached
    return [_read_all(ask, "dids", apart), *_without(parts, (reached - lacking) | apart)]


class _Ahead:
    """What files would be asked for generation by generation, read at once.

    Args:
        ask: where the records come from.
        condition: how records are asked for: by their files, or by the parents of these.
        dids: the files, or the parents.
    """

    def __init__(self, ask: Ask, condition: Literal["dids", "parent_dids"], dids: frozenset[str]) -> None:
        self._ask = ask
        self._condition = condition
        self._dids = dids
        self._records = _read_all(ask, condition, dids)
        source, target = ("did", "parent_did") if condition == "dids" else ("parent_did", "did")
        self._rows = _Rows(self._records[source])
        edges = self._records.filter(self._records["parent_did"].is_valid())
        self._edges = _Edges(edges[source], edges[target])

    def edges_of(self, dids: set[str]) -> _Edges | None:
        """The edges that lead from these files, and more; None if not all were read."""
        return self._edges if dids <= self._dids else None

    def ask(self, query: Query, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Answer a question about some of these files from memory, and about others by asking."""
        asked: frozenset[str] = getattr(query, self._condition)
        yield self._records.select(list(columns)).take(self._rows.of(asked & self._dids))
        if others := asked - self._dids:
            yield from self._ask(msgspec.structs.replace(query, **{self._condition: others}), columns)


class _Shortcut:
    """Reads all edges once there are many generations.

    Args:
        ask: where the records come from.
        source: the column of the files that edges lead from.
        target: the column of the files that they lead to.
    """

    def __init__(self, ask: Ask, source: str, target: str) -> None:
        self._ask = ask
        self._columns = (source, target)
        self._edges: _Edges | None = None
        self._generations = 0
        self._began_s = time.monotonic()

    def look(self) -> _Edges | None:
        """All edges; None if it is too early for that, they are too many, or it would take too long."""
        self._generations += 1
        if self._edges is None and self._generations - 1 in _LOOKS:
            now_s = time.monotonic()
            self._edges = self._read(now_s + max(now_s - self._began_s, _LOOK_MIN_S))
        return self._edges

    def _read(self, deadline_s: float) -> _Edges | None:
        edges = SCHEMA.empty_table().select(list(self._columns))
        for table in self._ask(Query(), self._columns):
            edges = pa.concat_tables([edges, table.filter(table["parent_did"].is_valid())])
            if len(edges) > _EDGES_MAX or time.monotonic() > deadline_s:
                return None
        return _Edges(*edges.columns)


class _Edges:
    """Which files lead to which, in memory.

    Args:
        sources: the files that edges lead from.
        targets: for each edge, the file that it leads to.
    """

    def __init__(self, sources: pa.ChunkedArray, targets: pa.ChunkedArray) -> None:
        self._rows = _Rows(sources)
        self._targets = targets.combine_chunks()

    def next_of(self, dids: set[str]) -> set[str]:
        """The files that the edges from these lead to."""
        return set(self._targets.take(self._rows.of(dids)).to_pylist())


class _Rows:
    """In which rows a column without nulls has which dids."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        coded = column.dictionary_encode().combine_chunks()
        self._numbers = {did: number for number, did in enumerate(coded.dictionary.to_pylist())}
        order = pc.array_sort_indices(coded.indices)
        self._codes = memoryview(coded.indices.take(order).buffers()[1]).cast("i")[: len(order)]
        self._rows = memoryview(order.buffers()[1]).cast("Q")[: len(order)]

    def of(self, dids: Iterable[str]) -> pa.Int64Array:
        """The rows that have one of these."""
        rows: list[int] = []
        for number in (self._numbers[did] for did in dids if did in self._numbers):
            first = bisect_left(self._codes, number)
            rows += self._rows[first : bisect_right(self._codes, number, first)]
        return pa.array(rows, pa.int64())


def _with_children(ask: Ask, dids: set[str]) -> set[str]:
    """Those files that may have children; of many files, those that a record names as its parent."""
    if len(dids) <= _NAMED_MAX:
        return dids
    found = set[str]()
    for table in ask(Query(), ["parent_did"]):
        found |= dids & _distinct(table["parent_did"])
    return found


def _with_other_parents(ask: Ask, dids: set[str], parents: set[str]) -> set[str]:
    """Those files that may have a record that names none of these parents; of many, those that have one."""
    if len(dids) <= _NAMED_MAX:
        return dids
    found = set[str]()
    for table in ask(Query(), ["did", "parent_did"]):
        is_other = pc.invert(_is_one_of(table["parent_did"], parents))
        found |= dids.intersection(table["did"].filter(is_other).to_pylist())
    return found


def _without(tables: Iterable[pa.Table], dids: set[str]) -> Iterator[pa.Table]:
    """The records of tables but those of some files."""
    for table in tables:
        is_one = _is_one_of(table["did"], dids)
        yield table.filter(pc.invert(is_one)) if pc.any(is_one).as_py() else table


def _read_all(ask: Ask, condition: Literal["dids", "parent_dids"], dids: Collection[str]) -> pa.Table:
    """The records of these files, or of their children, about as many files at a time as one question can."""
    named = sorted(dids)
    parts = (frozenset(named[at : at + _DIDS_AT_ONCE]) for at in range(0, len(named), _DIDS_AT_ONCE))
    queries = (Query(dids=part) if condition == "dids" else Query(parent_dids=part) for part in parts)
    return pa.concat_tables([SCHEMA.empty_table(), *(_read(ask, query) for query in queries)])


def _read(ask: Ask, query: Query) -> pa.Table:
    return pa.concat_tables([SCHEMA.empty_table(), *ask(query, SCHEMA.names)])


def _distinct(column: pa.ChunkedArray) -> set[str]:
    return set(column.unique().drop_null().to_pylist())


def _is_one_of(column: pa.ChunkedArray, dids: Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(list(dids), pa.string()))
