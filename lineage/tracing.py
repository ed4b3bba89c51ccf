"""Following a file through its splits, up to where it came from and down to what became of it.

Each generation is one question about many files, of which only the dids and the parents are read. Where a
generation is large, or where there are many, the parents of all files are read at once, as far as memory and
time allow, and the further generations are found there. At the end, one question reads the records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import Query
from waybill.exporter.query import Conditions, connect, execute, read_as_of, run
from waybill.exporter.rebuilding import rule_for
from waybill.facets import canonical_did
from waybill.facets.arrow import SCHEMA, to_table, to_tables
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import NotFoundError

from .file_table import FileTable
from .index import IndexReader
from .journey import Journey

if TYPE_CHECKING:
    import duckdb

    from waybill.facets import ProvenanceRecord
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from .index import JobRun, OpenFile

Ask = Callable[[Query, Sequence[str]], Iterable[pa.Table]]
"""Answers a query with all its records, in any order: tables with these columns of `SCHEMA`."""

_DIDS_AT_ONCE: Final = 200_000
"""About 20 MB of texts."""

_NAMED_MAX: Final = 16
"""A question that names more files counts as several: it reads more files of the layout, up to all."""

_LOOK_FROM: Final = 4
"""After so many questions all edges are read at once. If that takes too long it is given up, and tried again
after four times as many."""

_LOOK_S: Final = 0.06
"""For each of these questions it may take so long, or as long as all of them did."""

_EDGES_MAX: Final = 2_000_000
"""The maximum number of edges in memory, about 300 MB."""

_HASHED: Final = """
CREATE TEMP TABLE hashed AS FROM edges SELECT hash(source) AS source, hash(target) AS target
"""
_REACHED: Final = """
WITH RECURSIVE reached (file) AS (
    FROM (SELECT unnest(from_json($dids, '["VARCHAR"]')) AS did) SELECT hash(did)
    UNION FROM reached JOIN hashed ON source = file SELECT target
)
FROM edges SELECT source, target WHERE hash(source) IN (FROM reached)
"""
"""Hashes take a quarter of the memory of texts; if two are the same, edges too many are found, and left."""


class Kin(Protocol):
    """Who came directly from whom, besides what the records say."""

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that each file came from; without files that came from none."""

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that came from each file; without files that none came from."""

    def open_files(self) -> Sequence[OpenFile]:
        """All files that have begun and not ended."""

    def job_runs(self, dids: Iterable[str]) -> Mapping[str, JobRun]:
        """Those of some dids that are runs and no files."""


class _Way(NamedTuple):
    """How files are followed: by which question, and from which column to which."""

    condition: Literal["dids", "parent_dids"]
    source: str
    target: str


_UP: Final = _Way("dids", "did", "parent_did")
_DOWN: Final = _Way("parent_dids", "parent_did", "did")


def trace(
    ask: Ask,
    did: str,
    *,
    up: bool = True,
    down: bool = True,
    depth: int | None = None,
    is_opened: Callable[[str], bool] = lambda _: False,
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
        is_opened: of the files that are found, those that it tells are followed for a generation each way.
        kin: knows the parents of joined files, and open files; None: the records are all that is known.

    Raises:
        NotFoundError: no record has this did, as its own or as its parent's, and no open file has it.
        Exception: the errors of `ask`.
    """
    kin = kin or IndexReader.of((), (), Path())
    start = canonical_did(did)
    begun = {file.did: file for file in kin.open_files()}
    found = {start}
    for way in (*([_UP] if up else ()), *([_DOWN] if down else ())):
        found |= _follow(ask, kin, {start}, way, depth)
    followed = {start}
    while fresh := set(filter(is_opened, found - followed)):
        found |= _follow(ask, kin, fresh, _UP, 1) | _follow(ask, kin, fresh, _DOWN, 1)
        followed |= fresh
    records = _read(ask, "dids", found, SCHEMA.names)
    if found == {start} and not (len(records) or start in begun or _is_named(ask, kin, start)):
        raise NotFoundError(f"no record has the did {did}, as its own or as its parent's; check the did")
    open_files = [begun[did] for did in found & begun.keys()]
    parents = [(parent, child) for child, some in kin.parents_of(found).items() for parent in some]
    parents += [(file.parent_did, file.did) for file in open_files if file.parent_did]
    names = pc.replace_substring_regex(pc.utf8_rtrim(records["data_source"], "/"), "(?s)^.*/", "")
    named_so = records.filter(pc.equal(records["filename"], names))["did"].unique().to_pylist()
    runs = kin.job_runs([*named_so, *(file.did for file in open_files if file.filename is None)])
    return Journey(did=start, files=FileTable(records, found, parents, open_files, runs))


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


class _KinThen:
    """The further parents of joined files that were known then: the event that gave the record named them."""

    def __init__(self, now: Journey, known: Iterable[ProvenanceRecord], at_ms: int) -> None:
        self._files = now.files
        opened = (file.open for file in now.files.values() if file.open)
        self._open = [file for file in opened if file.received_ms <= at_ms]
        self._parents: dict[str, tuple[str, ...]] = {}
        self._children: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for file in (now.files[did] for did in {record.did for record in known}):
            named = {record.parent_did for record in file.records}
            self._parents[file.did] = tuple(did for did in file.parents if did not in named)
            for parent in self._parents[file.did]:
                self._children[parent] += (file.did,)

    def open_files(self) -> Sequence[OpenFile]:
        return self._open

    def job_runs(self, dids: Iterable[str]) -> Mapping[str, JobRun]:
        return {did: run for did in dids if (run := self._files[did].run)}

    def parents_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: self._parents[did] for did in dids if self._parents.get(did)}

    def children_of(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        return {did: self._children[did] for did in dids if did in self._children}


def _asked(known: Iterable[ProvenanceRecord]) -> Ask:
    """Answer the questions of `trace` from records in memory."""
    records = pa.concat_tables([to_table([]), *to_tables(known)])

    def ask(query: Query, columns: Sequence[str]) -> Iterable[pa.Table]:
        return [Conditions(query).filter(records).select(list(columns))]

    return ask


def _is_named(ask: Ask, kin: Kin, did: str) -> bool:
    """Whether a file that has no record is the parent of another one, or has a parent that is known."""
    is_known = kin.children_of([did]) or kin.parents_of([did])
    is_begun = any(file.parent_did == did for file in kin.open_files())
    return bool(is_known or is_begun or len(_read(ask, "parent_dids", {did}, ["did"])))


def _follow(ask: Ask, kin: Kin, starts: Collection[str], way: _Way, depth: int | None) -> set[str]:
    """Some files, and all that they lead to in at most so many generations."""
    is_up = way is _UP
    further = kin.parents_of if is_up else kin.children_of
    found, generation, passed = set(starts), set(starts), 0
    with connect() as connection:
        edges = _Edges(ask, way, connection)
        for file in kin.open_files():
            if file.parent_did:
                source, target = (file.did, file.parent_did) if is_up else (file.parent_did, file.did)
                edges.add([source], [target])
        while generation and passed != depth:
            generation = edges.next_of(generation).union(*further(generation).values()) - found
            found |= generation
            passed += 1
    return found


class _Edges:
    """Which files lead to which, read as they are asked for.

    Args:
        ask: where the records come from.
        way: how they lead on.
        connection: a connection of its own, for all edges once they are read.
    """

    def __init__(self, ask: Ask, way: _Way, connection: duckdb.DuckDBPyConnection) -> None:
        self._ask = ask
        self._way = way
        self._connection = connection
        self._targets: defaultdict[str, set[str]] = defaultdict(set)
        self._read: set[str] = set()
        self._is_whole = False
        self._asked, self._look_from, self._began_s = 0, _LOOK_FROM, SYSTEM_CLOCK.monotonic_s()

    def add(self, sources: Iterable[str], targets: Iterable[str | None]) -> None:
        """Add edges; one without a target is none."""
        for source, target in zip(sources, targets, strict=True):
            if target is not None:
                self._targets[source].add(target)

    def next_of(self, dids: set[str]) -> set[str]:
        """The files that some files lead to."""
        unread = dids - self._read
        found = self._read_more(unread) if unread else set()
        return found.union(*(self._targets[did] for did in dids & self._targets.keys()))

    def _read_more(self, dids: set[str]) -> set[str]:
        """Return where some files lead to; once all edges are in memory, keep it, with what these lead to."""
        self._asked += 1 + len(dids) // _NAMED_MAX
        if self._asked >= self._look_from and not self._is_whole:
            self._look_from = 4 * self._asked
            self._is_whole = self._read_all()
        if not self._is_whole:
            self._read |= dids
            pairs = _read(self._ask, self._way.condition, dids, [self._way.target])
            return set(pairs[self._way.target].drop_null().to_pylist())
        told = msgspec.json.encode(list(dids)).decode()
        pairs = run(self._connection, _REACHED, {"dids": told}).to_arrow_table()
        # All that they lead to was reached, too.
        self._read |= dids.union(pairs["target"].to_pylist())
        self.add(*(column.to_pylist() for column in pairs.columns))
        return set()

    def _read_all(self) -> bool:
        """Read all edges; False if they are too many, or if it takes too long."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        deadline_s = now_s + max(now_s - self._began_s, _LOOK_S * self._asked)
        edges = SCHEMA.empty_table().select([self._way.source, self._way.target])
        for table in self._ask(Query(), edges.column_names):
            edges = pa.concat_tables([edges, table.filter(table["parent_did"].is_valid())])
            if len(edges) > _EDGES_MAX or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                return False
        self._connection.register("edges", edges.rename_columns(["source", "target"]))
        execute(self._connection, _HASHED, {})
        return True


def _read(
    ask: Ask, condition: Literal["dids", "parent_dids"], dids: Collection[str], columns: Sequence[str]
) -> pa.Table:
    """The records of these files, or of their children, about as many files at a time as one question can."""
    named = list(dids)
    parts = (frozenset(named[at : at + _DIDS_AT_ONCE]) for at in range(0, len(named), _DIDS_AT_ONCE))
    queries = (Query(dids=part) if condition == "dids" else Query(parent_dids=part) for part in parts)
    tables = (table for query in queries for table in ask(query, columns))
    return pa.concat_tables([SCHEMA.empty_table().select(list(columns)), *tables])
