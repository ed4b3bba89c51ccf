from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st
from keeping import settings_in
from layouts import FILES, NODE, record

from waybill.exporter import Compactor, Query
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.lineage import Lineage, trace
from waybill.lineage.drawing import outline
from waybill.transport import NotFoundError, Tracker

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.facets import ProvenanceRecord

DIDS = [f"did-{number}" for number in range(9)]
DID = "0198f000-0000-7000-8000-000000000001"

NAMED = st.sets(st.none() | st.sampled_from(DIDS), min_size=1, max_size=2)
PARENTS = st.dictionaries(st.sampled_from(DIDS), NAMED)
"""By file, the parents that its records name: of trees mostly, but also of joins and circles."""


def records_of(parents: Mapping[str, set[str | None]]) -> list[ProvenanceRecord]:
    """A record for each parent of each file."""
    return [
        record(did, parent_did=parent, data_sink=f"sink-{at}", at_ms=at)
        for did, named in parents.items()
        for at, parent in enumerate(sorted(named, key=str))
    ]


def reached(edges: set[tuple[str, str]], start: str, depth: int | None) -> set[str]:
    """All that edges lead to from a start, in at most so many steps."""
    seen, now = {start}, {start}
    for _ in range(len(DIDS) if depth is None else depth):
        now = {to for of, to in edges if of in now} - seen
        seen |= now
    return seen - {start}


def lineage_of(root: Path, records: list[ProvenanceRecord], compacted: int) -> Lineage:
    """The door to a root with these records, the first of them in compacted files."""
    for at, part in enumerate((records[:compacted], records[compacted:])):
        if part:
            RawWriter(root).write(RawName(NODE, at * 1000 + 1, at * 1000 + len(part)), part)
        if not at:
            Compactor(root).compact()
    return Lineage.open(root)


@settings(FILES, max_examples=12)
@given(
    parents=PARENTS,
    did=st.sampled_from(DIDS),
    up=st.booleans(),
    down=st.booleans(),
    depth=st.none() | st.integers(0, 3),
    compacted=st.integers(0, 18),
    named_max=st.sampled_from([1, 3, 2_000]),
    look_from=st.integers(0, 3) | st.just(100),
    edges_max=st.sampled_from([3, 100]),
)
def test_a_journey_has_what_following_each_edge_by_hand_has(
    *,
    parents: dict[str, set[str | None]],
    did: str,
    up: bool,
    down: bool,
    depth: int | None,
    compacted: int,
    named_max: int,
    look_from: int,
    edges_max: int,
) -> None:
    edges = {(parent, child) for child, named in parents.items() for parent in named if parent is not None}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("waybill.lineage.tracing._NAMED_MAX", named_max)
        patch.setattr("waybill.lineage.tracing._LOOK_FROM", look_from)
        patch.setattr("waybill.lineage.tracing._LOOK_S", 60)
        patch.setattr("waybill.lineage.tracing._EDGES_MAX", edges_max)
        lineage = lineage_of(Path(folder), records_of(parents), compacted)
        if did not in parents and not any(parent == did for parent, _ in edges):
            with pytest.raises(NotFoundError, match=did):
                lineage.trace(did)
            return
        journey = lineage.trace(did, up=up, down=down, depth=depth)
    above = reached({(child, parent) for parent, child in edges}, did, depth) if up else set()
    below = reached(edges, did, depth) if down else set()
    assert journey.files.keys() == {did} | above | below
    if not (up and down):  # in a circle, a cut journey may lead on over what the other way found
        assert {file.did for file in journey.ancestors()} >= above
        assert {file.did for file in journey.descendants()} >= below
    for file in journey.files.values():
        assert {one.parent_did for one in file.records} == parents.get(file.did, set())
        assert set(file.parents) == {one for one in parents.get(file.did, set()) if one is not None}
    assert set(journey.edges()) == {edge for edge in edges if journey.files.keys() >= set(edge)}
    inner = {(child, parent) for parent, child in journey.edges()}
    over = {did: reached(inner, did, None) for did in journey.files}
    begins = {file.did for file in journey.origins()}
    for file in (journey.file, *journey.ancestors()):
        assert begins & {file.did, *over[file.did]}
    assert all(begin in over[other] for begin in begins for other in over[begin])
    assert len(begins) == len({frozenset(over[begin] | {begin}) for begin in begins})
    if down or not up:
        assert {line.of.did for line in outline(journey, folded_from=None)} == journey.files.keys()


def test_a_uuid_may_be_spelled_in_any_way(tmp_path: Path) -> None:
    lineage = lineage_of(tmp_path, [record(DID), record("child", parent_did=DID)], 2)
    for spelled in (DID.upper(), DID.replace("-", ""), f"{{{DID}}}"):
        assert lineage.trace(spelled).did == DID
        assert [file.did for file in lineage.descendants(spelled)] == ["child"]


def test_the_nearest_come_first_and_siblings_are_in_order_of_their_beginning_and_name(tmp_path: Path) -> None:
    records = [
        record("a"),
        record("c2", parent_did="a", filename="2.csv"),
        record("c1", parent_did="a", filename="1.csv"),
        record("d", parent_did="c2"),
    ]
    lineage = lineage_of(tmp_path, records, 4)
    assert [file.did for file in lineage.descendants("a")] == ["c1", "c2", "d"]
    assert [file.did for file in lineage.ancestors("d")] == ["c2", "a"]


def test_the_paths_of_a_file_are_oldest_first_and_those_of_one_instant_by_sink_and_transforms(
    tmp_path: Path,
) -> None:
    paths = [
        record("a", at_ms=0, data_sink="z"),
        record("a", at_ms=1, data_sink=None),
        record("a", at_ms=1, data_sink="b", transforms=("t",)),
        record("a", at_ms=1, data_sink="b", transforms=("t", "a")),
        record("a", at_ms=1, data_sink="b", transforms=("t a",)),
    ]
    lineage = lineage_of(tmp_path, paths[::-1], 3)
    assert lineage.trace("a").file.records == tuple(paths)


def test_a_generation_of_thousands_is_one_question(tmp_path: Path) -> None:
    wide = [record(f"c{at}", parent_did="a", at_ms=at) for at in range(3_000)]
    deep = [record(f"d{at}", parent_did=f"c{at}", at_ms=at) for at in range(3_000)]
    lineage = lineage_of(tmp_path, [record("a"), *wide, *deep], 7_000)
    asked: list[Query] = []

    def ask(query: Query, columns: Sequence[str]) -> Iterator[pa.Table]:
        asked.append(query)
        return lineage.tables(query, columns)

    assert len(trace(ask, "a").descendants()) == 6_000
    # The file's parents and its children; all edges, since these are many; and the records.
    assert len(asked) == 4


def test_a_thousand_generations_are_a_few_questions(tmp_path: Path) -> None:
    chain = [record(f"f{at}", parent_did=f"f{at - 1}" if at else None, at_ms=at) for at in range(1_000)]
    lineage = lineage_of(tmp_path, chain, 1_000)
    asked: list[Query] = []

    def ask(query: Query, columns: Sequence[str]) -> Iterator[pa.Table]:
        asked.append(query)
        return lineage.tables(query, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("waybill.lineage.tracing._LOOK_S", 60)
        assert [file.did for file in trace(ask, "f999").ancestors()] == [
            f"f{at}" for at in range(998, -1, -1)
        ]
        assert len(asked) < 10
        asked.clear()
        assert [file.did for file in trace(ask, "f0").descendants()] == [f"f{at}" for at in range(1, 1_000)]
        assert len(asked) < 10


def test_a_file_that_has_only_begun_is_a_journey_of_one_file(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    before_ms = time.time_ns() // 1_000_000
    with Tracker(settings=settings) as tracker, tracker.file("lost.csv", data_source="in") as lost:
        lineage = Lineage.open(settings.home)
        journey = lineage.trace(lost.did)
        assert [(file.filename, file.records) for file in journey.files.values()] == [("lost.csv", ())]
        assert [file.did for file in lineage.open_files()] == [lost.did]
        assert lineage.trace(lost.did, as_of_ms=time.time_ns() // 1_000_000) == journey
        with pytest.raises(NotFoundError, match="nothing was known"):
            lineage.trace(lost.did, as_of_ms=before_ms - 1)
        [part] = lost.split(["part.csv"], data_source="parts")
        assert {file.did: file.open is not None for file in lineage.descendants(lost.did)} == {part.did: True}
        with part:
            part.egress("lake")
    assert not lineage.open_files()
    assert lineage.trace(part.did).file.open is None


def test_no_folder_is_no_lineage(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no folder"):
        Lineage.open(tmp_path / "nothing")
