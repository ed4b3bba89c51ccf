"""Helpers of the exporter's tests: records to write, a disk that stops, and checks of the result."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import events
import pyarrow.parquet as pq
from hypothesis import settings, strategies as st

from waybill.exporter import Compactor, Query, check
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName, hour_of
from waybill.exporter.parquet import WINDOW_ROWS
from waybill.exporter.query import FOLDERS, STATS_BY, scan, stats_of
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import SCHEMA, from_table
from waybill.transport.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import ReadableBuffer

    from waybill.exporter.query import Access, Stats
    from waybill.exporter.verification import Finding

_Item = TypeVar("_Item")

FILES = settings(max_examples=10)
"""For properties that write files."""

START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
HOUR_MS = 3_600_000
NODE = "a1b2c3"
NOBODY = 65_534
"""A user without rights, as Linux knows it."""


def find(root: Path, query: Query | None = None, *, access: Access = FOLDERS) -> list[ProvenanceRecord]:
    """The records of a root that answer a query."""
    return [record for table in scan(root, query, access=access) for record in from_table(table)]


def stats(root: Path, query: Query | None = None, *, access: Access = FOLDERS) -> Stats:
    """The number of records of a root that answer a query."""
    return stats_of(scan(root, query, summed_by=STATS_BY, access=access))


def findings(root: Path) -> list[Finding]:
    """What a check of a root finds."""
    return [finding for checked in check(root) for finding in checked.findings]


def open_findings(root: Path) -> list[tuple[str, str]]:
    """Each finding that nobody has accepted, by its kind and its file."""
    return [(finding.kind, finding.path) for finding in findings(root) if finding.accepted is None]


def kinds(root: Path) -> list[tuple[str, str]]:
    """Each finding by its file and its kind."""
    return [(finding.path, finding.kind) for finding in findings(root)]


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Act as a user whom permissions restrict, unlike the superuser."""
    is_superuser = os.geteuid() == 0
    if is_superuser:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_superuser:
            os.seteuid(0)


def record(did: str = "did-1", *, at_ms: int = 0, **changes: object) -> ProvenanceRecord:
    """A record that completed this long after `START_MS`."""
    fields: dict[str, object] = {
        "did": did,
        "system_name": "edge",
        "data_source": "in",
        "filename": "orders.csv",
        "transforms": ("unpack",),
        "data_sink": "out",
        "final_state": FinalState.COMPLETE,
        "created": START_MS,
        "completed": START_MS + at_ms,
    }
    return ProvenanceRecord(**{**fields, **changes})  # type: ignore[arg-type]


def event(run: str, kind: str, at_ms: int, *, job: object = "job", **more: object) -> bytes:
    """A run event this long after `START_MS`."""
    at = datetime.fromtimestamp((START_MS + at_ms) / 1_000, UTC).isoformat()
    return events.event(run, kind, at, job=f"edge/{job}", **more)


def facet(**fields: object) -> dict[str, object]:
    """The run facets of an event of a file."""
    return {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", **fields}}


def records_strategy() -> st.SearchStrategy[ProvenanceRecord]:
    """Records with few distinct values, so that keys often repeat, with equal or different other fields."""
    texts = st.sampled_from(["", "a", "b", "ab"])
    return st.builds(
        ProvenanceRecord,
        did=st.sampled_from(["d1", "d2"]),
        parent_did=st.none() | st.sampled_from(["p1", "p2"]),
        system_name=st.sampled_from(["edge", "core/7"]),
        data_source=texts,
        filename=texts,
        transforms=st.lists(texts, max_size=2).map(tuple),
        data_sink=st.none() | texts,
        final_state=st.sampled_from([FinalState.COMPLETE, FinalState.ERROR]),
        created=st.integers(1, 3),
        completed=st.sampled_from([START_MS, START_MS + 1, START_MS + HOUR_MS]),
        annotations=st.none() | st.dictionaries(st.sampled_from(["k", "l"]), texts, min_size=1),
    ).map(_sorted_annotations)


def _sorted_annotations(one: ProvenanceRecord) -> ProvenanceRecord:
    annotations = None if one.annotations is None else dict(sorted(one.annotations.items()))
    return ProvenanceRecord(
        **{name: getattr(one, name) for name in one.__struct_fields__ if name != "annotations"},
        annotations=annotations,
    )


def _maybe(*values: object) -> st.SearchStrategy[object]:
    return st.none() | st.sampled_from(values)


_CONDITIONS: dict[str, st.SearchStrategy[object]] = {
    "did": _maybe("d1", "d2", "d3"),
    "dids": _maybe(frozenset({"d1", "d3"}), frozenset()),
    "parent_did": _maybe("p1", "p3"),
    "parent_dids": _maybe(frozenset({"p1", "p2"})),
    "data_source": _maybe("a", ""),
    "data_sink": _maybe("a", ""),
    "system_name": _maybe("edge", "core/7", "nobody"),
    "filename": _maybe("a", "ab", "?", "a*", "*b", "[!a]", "[a-b]*", "", "."),
    "has_data_sink": st.none() | st.booleans(),
    "not_data_sinks": st.lists(st.sampled_from(["a", "", "b"]), max_size=2),
    "final_state": _maybe(*FinalState, (), (FinalState.ERROR, FinalState.COMPLETE)),
    "not_final_states": st.lists(st.sampled_from(FinalState), max_size=2),
    "created_since_ms": _maybe(0, START_MS, START_MS + 1, 10**18),
    "created_until_ms": _maybe(0, START_MS, START_MS + 1, 10**18),
    "annotations": st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["a", "", "b"]), max_size=2),
    "since_ms": _maybe(0, START_MS, START_MS + 1, START_MS + HOUR_MS, 10**18),
    "until_ms": _maybe(0, START_MS, START_MS + 1, START_MS + HOUR_MS, 10**18),
}


def queries_strategy() -> st.SearchStrategy[Query]:
    """Questions about such records, with so few conditions each that many find something."""
    names = st.lists(st.sampled_from(sorted(_CONDITIONS)), max_size=4, unique=True)
    return names.flatmap(lambda some: st.builds(Query, **{name: _CONDITIONS[name] for name in some}))


class Layout:
    """A root, written and read as the projection does."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self.files = files or Files()
        self._ends: dict[str, int] = {}

    def write(self, *records: ProvenanceRecord, node: str = NODE) -> RawName:
        """Write one more range."""
        first = self._ends.get(node, 0) + 1
        last = self._ends[node] = first + 9
        RawWriter(self.root, files=self.files).write(RawName(node, first, last), records)
        return RawName(node, first, last)

    def add(self, *records: ProvenanceRecord) -> None:
        """Write one more range, and compact all hours."""
        self.write(*records)
        self.compactor().compact()

    def copy(self, root: Path) -> Layout:
        """The same in another place, where it may change."""
        shutil.copytree(self.root, root)
        copied = Layout(root, self.files)
        copied._ends |= self._ends
        return copied

    def compactor(self, window_rows: int = WINDOW_ROWS) -> Compactor:
        """A compactor with one worker."""
        return Compactor(self.root, nodes=[NODE], files=self.files, workers=1, window_rows=window_rows)

    def raw(self) -> list[Path]:
        """The raw files."""
        return sorted((self.root / "provenance/raw").rglob("*.parquet"))

    def compacted(self) -> list[Path]:
        """The compacted files."""
        return sorted((self.root / "provenance/compacted").rglob("*.parquet"))

    def rows(self) -> list[ProvenanceRecord]:
        """The rows of the compacted files, as any reader sees them, each in its place."""
        found = []
        for path in self.compacted():
            table = pq.ParquetFile(path).read()
            assert table.schema.remove_metadata() == SCHEMA
            rows = from_table(table)
            if not rows:
                continue  # all its records were taken back
            assert {hour_of(row.completed) for row in rows} == {(path.parent.name, path.stem)}
            assert len({row.system_name for row in rows}) == 1
            found += rows
        return found


def in_order(records: Iterable[ProvenanceRecord]) -> list[ProvenanceRecord]:
    """By system and hour, in the order of the listing."""
    keyed = itertools.groupby(
        sorted(records, key=lambda one: (one.system_name, hour_of(one.completed))),
        key=lambda one: (one.system_name, hour_of(one.completed)),
    )
    return [one for _, group in keyed for one in group]


class StoppedError(BaseException):
    """The process is dead."""


class StoppingFiles(Files):
    """Dies at its N-th call, and stays dead; a write that it dies in is half done."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _reach(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise StoppedError

    def make_folder(self, path: Path) -> None:
        self._reach()
        super().make_folder(path)

    def write(self, path: Path, data: ReadableBuffer) -> None:
        try:
            self._reach()
        except StoppedError:
            if self.left == 0:
                super().write(path, memoryview(data)[: len(memoryview(data)) // 2])
            raise
        super().write(path, data)

    def fsync(self, path: Path) -> None:
        self._reach()
        super().fsync(path)

    def rename(self, source: Path, target: Path) -> None:
        self._reach()
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._reach()
        super().link(source, target)

    def fsync_folder(self, path: Path) -> None:
        self._reach()
        super().fsync_folder(path)

    def remove(self, path: Path) -> None:
        self._reach()
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._reach()
        super().remove_folder(path)


class DiesWhenDone(Files):
    """Dies once the plan of a rebuild is gone."""

    def remove(self, path: Path) -> None:
        super().remove(path)
        if path.name == "plan.json":
            raise StoppedError


def temporaries(root: Path) -> list[Path]:
    """Unpublished files."""
    return sorted(root.rglob("*.tmp"))


def split(items: Sequence[_Item], cuts: Sequence[int]) -> list[Sequence[_Item]]:
    """The items, divided at these places."""
    edges = [0, *sorted(cut % (len(items) + 1) for cut in cuts), len(items)]
    return [items[start:end] for start, end in itertools.pairwise(edges)]
