"""The files of a journey in columns.

A wide split has a hundred thousand files, and a picture of it one line. So the records stay in the table
that they were read into, files are numbered in the order of that table, and the object of a file is made when
it is asked for, together with its neighbours.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import from_table

from .graph import FileEnd
from .index import JobRun, OpenFile

_MADE_AT_ONCE: Final = 128
"""Turning rows into records has a price for each table, and their children one for each file."""

Ends = dict[tuple[FinalState, str | None], int]
"""How many paths ended in a state and through a sink, or through none."""


class JourneyFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a journey.

    Attributes:
        did: the file's identity.
        records: one for each path on which it ended, oldest first; empty if nothing but its did is known.
        parents: the dids of the files that it came from, sorted.
        children: the dids of the files of the journey that came from it, oldest first.
        open: what is known of it if it has begun and not ended; None: it is not known to be open.
        run: what it is if it is a run and no file.
    """

    did: str
    records: tuple[ProvenanceRecord, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    open: OpenFile | None = None
    run: JobRun | None = None

    @property
    def told(self) -> tuple[ProvenanceRecord, ...]:
        """The records as people are shown them."""
        return tuple(map(self.run.shown, self.records)) if self.run else self.records

    @property
    def told_open(self) -> OpenFile | None:
        """What is known of it if it has not ended, as people are shown it."""
        return self.run.shown(self.open) if self.run and self.open else self.open

    @property
    def filename(self) -> str | None:
        """Its name, of a run that of its job; None if it is not known."""
        if self.run:
            return self.run.job
        known = self.records[0] if self.records else self.open
        return None if known is None else known.filename


class FileTable(Mapping[str, JourneyFile]):
    """Files by did, to read only: first those with records, in the order of these.

    Args:
        records: all records of the files, as `waybill.facets.arrow.SCHEMA` has them, each once.
        dids: the files, of which some may have no record.
        parents: further parents than the records name: pairs of a parent and its child, which is one of the
            files.
        open_files: those of the files that have begun and not ended.
        runs: those of the files that are none.
    """

    def __init__(
        self,
        records: pa.Table,
        dids: Iterable[str],
        parents: Iterable[tuple[str, str]] = (),
        open_files: Iterable[OpenFile] = (),
        runs: Mapping[str, JobRun] = MappingProxyType({}),
    ) -> None:
        self._records, self._file_of_row, self._places = _by_file(records.combine_chunks())
        counts = pc.value_counts(self._file_of_row).field("counts")
        self._ends = [0, *pc.cumulative_sum(counts).to_pylist()]
        for did in sorted(did for did in dids if did not in self._places):
            self._places[did] = len(self._places)
            self._ends.append(records.num_rows)
        self._dids = list(self._places)
        self._further: defaultdict[int, set[str]] = defaultdict(set)
        for parent, child in parents:
            self._further[self._places[child]].add(parent)
        self._runs = runs
        self._open = {self._places[file.did]: file for file in open_files}
        self._made: dict[int, list[JourneyFile]] = {}

    def __getitem__(self, did: str) -> JourneyFile:
        part, at = divmod(self._places[did], _MADE_AT_ONCE)
        if part not in self._made:
            self._made[part] = list(
                self._make(range(len(self))[part * _MADE_AT_ONCE : (part + 1) * _MADE_AT_ONCE])
            )
        return self._made[part][at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dids)

    def __len__(self) -> int:
        return len(self._dids)

    def __contains__(self, did: object) -> bool:
        return did in self._places

    def list_ends(self) -> list[FileEnd]:
        """Where files got to: for each system, data source and data sink, one of them."""
        told = self._records.filter(pc.equal(self._records["final_state"], FinalState.COMPLETE))
        told = told.select(["system_name", "data_source", "data_sink", "did"])
        told = told.filter(pc.is_valid(told["data_sink"]))
        groups = told.group_by(told.column_names[:3], use_threads=False).aggregate([("did", "first")])
        columns = (groups[name].to_pylist() for name in ("did_first", *told.column_names[:3]))
        return [FileEnd(*row) for row in zip(*columns, strict=True)]

    def told_of_children(self, did: str, but: Collection[str]) -> tuple[int, Ends, int, int]:
        """The children of a file but some: how many, how their paths ended, and how many have not ended.

        The last is how many files came from them.

        Args:
            did: the file.
            but: the dids that do not count, nor what came from these alone.
        """
        children = self._children
        counted = set(children.get(self._places[did], ()))
        counted.difference_update(self._places[one] for one in but if one in self._places)
        below = set[int]()
        waiting = list(counted & children.keys())
        while waiting:
            further = set(children.get(waiting.pop(), ())) - below - counted
            below |= further
            waiting += further
        open_files = len(counted & self._open.keys())
        return len(counted), self._ends_of_paths(counted), open_files, len(below)

    def _ends_of_paths(self, places: Collection[int]) -> Ends:
        of_these = pc.is_in(self._file_of_row, pa.array(places, pa.int32()))
        ends = self._records.select(["final_state", "data_sink"]).filter(of_these)
        counts = ends.group_by(ends.column_names, use_threads=False).aggregate([([], "count_all")])
        return {
            (FinalState(state), sink): paths
            for state, sink, paths in zip(*counts.to_pydict().values(), strict=True)
        }

    def _make(self, places: range) -> Iterator[JourneyFile]:
        first, *ends = (self._ends[at] for at in range(places.start, places.stop + 1))
        records = from_table(self._records.slice(first, ends[-1] - first))
        begin = first
        for place, end in zip(places, ends, strict=True):
            own = tuple(records[begin - first : end - first])
            named = {one.parent_did for one in own if one.parent_did}
            children = sorted(self._children.get(place, ()), key=self._ranks.__getitem__)
            yield JourneyFile(
                did=self._dids[place],
                records=own,
                parents=tuple(sorted(named | self._further.get(place, set()))),
                children=tuple(self._dids[child] for child in children),
                open=self._open.get(place),
                run=self._runs.get(self._dids[place]),
            )
            begin = end

    @functools.cached_property
    def _children(self) -> dict[int, list[int]]:
        """By the place of a file those of its children, each once."""
        parents = self._records["parent_did"].combine_chunks().dictionary_encode()
        # A parent may lead out of the journey; then its place is null.
        known = pa.array([self._places.get(did) for did in parents.dictionary.to_pylist()], pa.int32())
        further = [
            (self._places[parent], child)
            for child, some in self._further.items()
            for parent in some
            if parent in self._places
        ]
        edges = pa.table(
            {
                "parent": pa.chunked_array(
                    [known.take(parents.indices), pa.array([one for one, _ in further], pa.int32())]
                ),
                "child": pa.chunked_array(
                    [self._file_of_row, pa.array([one for _, one in further], pa.int32())]
                ),
            }
        )
        lists = (
            edges.filter(edges["parent"].is_valid())
            .group_by("parent", use_threads=False)
            .aggregate([("child", "distinct")])
        )
        return dict(zip(lists["parent"].to_pylist(), lists["child_distinct"].to_pylist(), strict=True))

    @functools.cached_property
    def _ranks(self) -> list[int]:
        """For each file its rank among siblings: by its beginning, and those of one split by their names."""
        counts = pc.value_counts(self._file_of_row).field("counts")
        first = pc.subtract(pc.cumulative_sum(counts), counts)
        created = self._records["created"].cast(pa.int64()).take(first)
        other = range(len(first), len(self))
        begun = [self._open[place].began_ms if place in self._open else 0 for place in other]
        names = [(self._open[place].filename or "") if place in self._open else "" for place in other]
        places = pa.table(
            {
                "created": pa.chunked_array([*created.chunks, pa.array(begun, pa.int64())]),
                "filename": pa.chunked_array(
                    [*self._records["filename"].take(first).chunks, pa.array(names, pa.string())]
                ),
                "did": pa.array(self._dids, pa.string()),
            }
        )
        in_order = pc.sort_indices(places, [(name, "ascending") for name in places.column_names])
        ranks: list[int] = pc.array_sort_indices(in_order).to_pylist()
        return ranks


def _by_file(records: pa.Table) -> tuple[pa.Table, pa.Int32Array, dict[str, int]]:
    """The rows of each file together, in order; the place of each row's file; and the places of the files."""
    dids = records["did"].to_pylist()
    places = {did: at for at, did in enumerate(dids)}
    if len(places) == len(dids):
        return records, pa.array(range(len(dids)), pa.int32()), places
    places = {did: at for at, did in enumerate(dict.fromkeys(dids))}
    files = pa.array([places[did] for did in dids], pa.int32())
    keys = {
        "file": files,
        "completed": records["completed"],
        "data_sink": pc.coalesce(records["data_sink"], ""),
        "transforms": pc.binary_join(records["transforms"].combine_chunks(), "\0"),
        "system_name": records["system_name"],
        "final_state": records["final_state"],
    }
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
    return records.take(order), files.take(order), places
