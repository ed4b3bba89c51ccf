"""The correlation index: its tables follow from what was said, and its answers from the tables."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from waybill.exporter.sources import JournalSource
from waybill.exporter.verification import find_collisions
from waybill.facets import PRODUCER
from waybill.lineage import CorrelationIndex
from waybill.lineage.correlation import (
    INDEX_NAME,
    Content,
    Correlation,
    Details,
    IndexWriter,
    Relations,
    Sighting,
)
from waybill.transport import Journal, Kind, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TABLES = {
    "correlation_event": "id_event process version fingerprint input_size event_time forced",
    "correlation_details": "id_event field JSON",
    "correlation_lineage": "id_parent id_child depth",
}
DIDS = "abcdefgh"
EDGES = st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=14)
"""Each a parent and a child: trees, joins and circles, in any order, some twice."""

SOME = st.lists(st.sampled_from("xyz"), max_size=2, unique=True).map(lambda found: tuple(sorted(found)))
SAID = st.lists(
    st.builds(
        Sighting,
        did=st.sampled_from(DIDS[:4]),
        parents=SOME,
        details=st.builds(Details, st.sampled_from("xy"), SOME, SOME, st.sampled_from("xy")),
        filename=st.sampled_from([None, "a", "b"]),
        at_ms=st.integers(1, 3),
        last_ms=st.integers(1, 3),
        content=st.none()
        | st.builds(
            Content,
            version=st.sampled_from([None, "1", "2"]),
            fingerprint=st.sampled_from([None, "1", "2"]),
            input_size=st.sampled_from([None, 1, 2]),
            is_forced=st.booleans(),
        ),
    ),
    max_size=12,
)
"""Events of few files, which contradict each other in everything."""

Rows = dict[str, list[tuple[object, ...]]]


def seen(did: str, *parents: str, sinks: tuple[str, ...] = (), last_ms: int = 5) -> Sighting:
    """What an event says of a file."""
    return Sighting(did, parents, Details("in", sinks, system="edge"), f"{did}.csv", 5, last_ms)


def tables_of(folder: Path) -> Rows:
    """The rows of every table, sorted, as anyone sees them who opens the file."""
    with contextlib.closing(
        apsw.Connection(str(folder / INDEX_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    ) as opened:
        return {
            name: sorted(opened.execute(f"SELECT * FROM {name}").fetchall(), key=repr)  # noqa: S608 - our names
            for name in TABLES
        }


def written(folder: Path, batches: Iterable[Sequence[Sighting]], ancestors_max: int = 100) -> None:
    """Write an index in some batches."""
    with contextlib.closing(IndexWriter(folder / INDEX_NAME, ancestors_max=ancestors_max)) as writer:
        for at, batch in enumerate(batches, writer.place[1] + 1):
            writer.add(batch, ("node", at))


def forget(folder: Path, retain_days: float) -> None:
    """Forget what is old on the tenth day."""
    with contextlib.closing(IndexWriter(folder / INDEX_NAME, ancestors_max=100)) as writer:
        while not writer.forget(10, retain_days):
            pass


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[CorrelationIndex]:
    """The index of a folder."""
    index = CorrelationIndex.open(folder)
    assert index is not None
    with contextlib.closing(index):
        yield index


def depths(edges: Iterable[tuple[str, str]], start: str) -> dict[str, int]:
    """Everything that edges lead to from a start, and in how many steps at least."""
    found, now = {start: 0}, {start}
    for depth in itertools.count(1):
        now = {to for of, to in edges if of in now} - found.keys()
        if not now:
            return found
        found |= dict.fromkeys(now, depth)
    raise AssertionError


def test_a_child_and_a_grandchild_and_another_child_give_eight_rows(tmp_path: Path) -> None:
    written(tmp_path, [[seen("aaa"), seen("bbb", "aaa"), seen("ccc", "bbb"), seen("eee", "aaa")]])
    assert tables_of(tmp_path)["correlation_lineage"] == sorted(
        [(one, one, 0) for one in ("aaa", "bbb", "ccc", "eee")]
        + [("aaa", "bbb", 1), ("bbb", "ccc", 1), ("aaa", "eee", 1), ("aaa", "ccc", 2)],
        key=repr,
    )


def test_the_tables_have_the_columns_that_are_promised(tmp_path: Path) -> None:
    written(tmp_path, [[]])
    with contextlib.closing(apsw.Connection(str(tmp_path / INDEX_NAME))) as connection:
        for table, columns in TABLES.items():
            assert [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] == columns.split()


def test_all_ancestors_and_all_descendants_are_one_query_that_scans_no_table(tmp_path: Path) -> None:
    written(tmp_path, [[seen("b", "a"), seen("c", "b")]])
    with contextlib.closing(apsw.Connection(str(tmp_path / INDEX_NAME))) as connection:
        up = "SELECT id_parent, depth FROM correlation_lineage WHERE id_child = ? ORDER BY depth DESC"
        down = "SELECT id_child, depth FROM correlation_lineage WHERE id_parent = ? ORDER BY depth"
        assert connection.execute(up, ("c",)).fetchall() == [("a", 2), ("b", 1), ("c", 0)]
        assert connection.execute(down, ("a",)).fetchall() == [("a", 0), ("b", 1), ("c", 2)]
        for query in (up, down):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", ("a",))]
            assert [step for step in plan if step.startswith("SCAN")] == ["SCAN correlation_lineage"]


@hypothesis_settings(max_examples=25)
@given(edges=EDGES, data=st.data(), ancestors_max=st.sampled_from([0, 1, 2, 3, 100]))
def test_closure_edges_and_a_naive_walk_give_the_same_answers_in_any_order(
    edges: list[tuple[str, str]], data: st.DataObject, ancestors_max: int
) -> None:
    said = [seen(child, parent) for parent, child in edges]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=3)))
    ends = [0, *cuts, len(said)]
    with tempfile.TemporaryDirectory() as folder:
        some, other = Path(folder, "some"), Path(folder, "other")
        some.mkdir()
        other.mkdir()
        written(some, [said[a:b] for a, b in itertools.pairwise(ends)], ancestors_max)
        written(other, [data.draw(st.permutations(said + said[:3]))], ancestors_max)
        assert tables_of(some) == tables_of(other)
        turned = [(child, parent) for parent, child in edges]
        with opened(some) as index:
            for did in {did for edge in edges for did in edge}:
                down, up = index.descendants(did), index.ancestors(did)
                assert dict(down) == depths(edges, did)
                assert dict(up) == depths(turned, did)
                assert [depth for _, depth in down] == sorted(depth for _, depth in down)
                assert [depth for _, depth in up] == sorted((depth for _, depth in up), reverse=True)
                beside = set(edges) - {(did, did)}
                assert index.parents_of([did]).get(did, ()) == tuple(
                    sorted({a for a, b in beside if b == did})
                )
                assert index.children_of([did]).get(did, ()) == tuple(
                    sorted({b for a, b in beside if a == did})
                )


@hypothesis_settings(max_examples=25)
@given(said=SAID, data=st.data())
def test_what_is_known_of_a_file_follows_from_the_set_of_what_was_said(
    said: list[Sighting], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(said)))
    with tempfile.TemporaryDirectory() as folder:
        some, other = Path(folder, "some"), Path(folder, "other")
        some.mkdir()
        other.mkdir()
        written(some, [said[:cut], said[cut:]])
        written(other, [data.draw(st.permutations(said + said[:3]))])
        assert tables_of(some) == tables_of(other)


def record(did: str, parent: str | None = None, **more: object) -> dict[str, object]:
    """A record as DeltaFi sends it."""
    said = {
        "did": did,
        "parentDid": parent,
        "systemName": "edge",
        "dataSource": "in",
        "filename": f"{did}.csv",
    }
    ended = {"finalState": "COMPLETE", "dataSink": "out", "created": 1_000, "completed": 2_000}
    return {**said, **ended, "transforms": [], **more}


def details_of(home: Path, did: str) -> dict[str, object]:
    """The details of one file."""
    rows = tables_of(home)["correlation_details"]
    return {str(field): json.loads(str(value)) for of, field, value in rows if of == did}


def test_a_runner_indexes_what_a_tracker_and_deltafi_report(settings: Settings) -> None:
    settings = settings.with_values({"correlation_enabled": True}, "tests")
    tracker = Tracker(settings=settings)
    with tracker.file("a.csv", data_source="in") as a, tracker.file("b.csv", data_source="in") as b:
        ab = tracker.join([a, b], "ab.csv", data_source="daily")
    with ab:
        ab.egress("lake")
        ab.egress("mart")
    tracker.close()
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.append(Kind.PROVENANCE, json.dumps([record("x", ab.did)]).encode())
    assert flush(settings).left == {}
    assert details_of(settings.home, ab.did) == {
        "filename": "ab.csv",
        "inputs": ["tests/daily"],
        "producers": [PRODUCER],
        "sinks": ["lake", "mart"],
        "states": ["COMPLETE"],
        "system": "tests",
    }
    assert details_of(settings.home, "x")["sinks"] == ["out"]
    events = {row[0]: row[1] for row in tables_of(settings.home)["correlation_event"]}
    assert events == {a.did: "in", b.did: "in", ab.did: "daily", "x": "in"}
    with opened(settings.home) as index:
        assert index.parents_of([ab.did])[ab.did] == tuple(sorted([a.did, b.did]))
        assert index.ancestors("x")[-2:] == [(ab.did, 1), ("x", 0)]
        assert {did for did, depth in index.ancestors("x") if depth == 2} == {a.did, b.did}


def test_an_event_has_the_version_of_its_job_and_the_fingerprint_of_its_input(site: Site) -> None:
    said = {"fingerprint": "xxh3-128:" + "ab" * 16, "inputBytes": 12, "contentBytes": 40, "forced": True}
    read = {"namespace": "edge", "name": "in", "inputFacets": {"waybill_fingerprint": said}}
    event = {
        "eventTime": "2026-01-31T12:00:00Z",
        "eventType": "START",
        "producer": "https://example.org",
        "run": {"runId": "r"},
        "job": {"namespace": "e", "name": "j", "facets": {"sourceCodeLocation": {"version": "v7"}}},
        "inputs": [read],
    }
    site.journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    site.catch_up()
    (row,) = tables_of(site.settings.home)["correlation_event"]
    assert row == ("r", "j", "v7", said["fingerprint"], 12, 1769860800000, 1)


class Site:
    """A home whose index is kept up step by step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.home)
        self.index = Correlation(self.journal, settings, linger_s=0)

    def append(self, *records: dict[str, object]) -> int:
        return self.journal.append(Kind.PROVENANCE, json.dumps(records).encode())

    def catch_up(self) -> None:
        while self.index.step().applied:
            pass

    def reopen(self) -> None:
        """As after the death of the runner: what was not committed is gone."""
        self.index.close()
        self.index = Correlation(self.journal, self.settings, linger_s=0)


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    one = Site(settings)
    yield one
    one.index.close()
    one.journal.close()


def test_an_index_that_was_deleted_or_damaged_is_made_again_with_the_same_tables(site: Site) -> None:
    for number in range(5):
        site.append(record(f"d{number}", f"d{number - 1}" if number else None))
        site.catch_up()
    before = tables_of(site.settings.home)
    site.index.close()
    path = site.settings.home / INDEX_NAME
    for spoiled in (None, b"no database", b""):
        for one in site.settings.home.glob(f"{INDEX_NAME}*"):
            one.unlink()
        if spoiled is not None:
            path.write_bytes(spoiled)
        site.reopen()
        site.catch_up()
        assert tables_of(site.settings.home) == before
        assert site.journal.cursor("correlation") == site.journal.last_seq()


def test_an_index_of_another_format_is_made_again(site: Site) -> None:
    site.append(record("d0"), record("d1", "d0"))
    site.catch_up()
    before = tables_of(site.settings.home)
    site.index.close()
    with contextlib.closing(apsw.Connection(str(site.settings.home / INDEX_NAME))) as connection:
        number = connection.pragma("user_version")
        connection.execute("DROP VIEW correlation_event")
        connection.pragma("user_version", number + 1)
    assert CorrelationIndex.open(site.settings.home) is None
    site.reopen()
    site.catch_up()
    assert tables_of(site.settings.home) == before


def test_what_is_indexed_again_changes_nothing_and_what_is_told_later_is_merged(tmp_path: Path) -> None:
    said = [seen(f"{at:04}", sinks=("lake",)) for at in range(1_000)]
    written(tmp_path, [said])
    before = tables_of(tmp_path)
    written(tmp_path, [said])
    assert tables_of(tmp_path) == before
    other = seen("0500", sinks=("mart",), last_ms=9)
    written(tmp_path, [[seen("new"), *said[:500], other]])
    after = tables_of(tmp_path)
    assert ("0500", "sinks", '["lake","mart"]') in after["correlation_details"]
    assert {row[0] for row in after["correlation_event"]} == {"new", *(one.did for one in said)}


def test_what_the_journal_no_longer_has_is_read_from_the_archive(site: Site) -> None:
    for number in range(4):
        site.append(record(f"d{number}", f"d{number - 1}" if number else None))
    assert flush(site.settings).left == {}
    assert site.journal.prune(3, 2**50) == 3
    site.append(record("late", "d3"))
    site.catch_up()
    chain = ["d0", "d1", "d2", "d3", "late"]
    with opened(site.settings.home) as index:
        assert index.descendants("d0") == [(did, depth) for depth, did in enumerate(chain)]
    assert details_of(site.settings.home, "d0")["filename"] == "d0.csv"


DAY_MS = 86_400_000


@hypothesis_settings(max_examples=25)
@given(
    edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] < edge[1])),
    days=st.lists(st.integers(1, 9), min_size=8, max_size=8),
    retain_days=st.sampled_from([1, 2.5, 4]),
    ancestors_max=st.sampled_from([0, 2, 100]),
)
def test_old_files_are_forgotten_unless_a_file_that_stays_came_from_them(
    edges: list[tuple[int, int]], days: list[int], retain_days: float, ancestors_max: int
) -> None:
    said = [seen(DIDS[at], last_ms=day * DAY_MS, sinks=(str(day),)) for at, day in enumerate(days)]
    said += [seen(DIDS[child], DIDS[parent], last_ms=0) for parent, child in edges]
    named = [(DIDS[parent], DIDS[child]) for parent, child in edges]
    young = {DIDS[at] for at, day in enumerate(days) if day >= 10 - retain_days}
    staying = {did for did in DIDS if young & depths(named, did).keys()}
    with tempfile.TemporaryDirectory() as folder:
        aged, fresh = Path(folder, "aged"), Path(folder, "fresh")
        aged.mkdir()
        fresh.mkdir()
        written(aged, [said], ancestors_max)
        forget(aged, retain_days)
        written(fresh, [[one for one in said if one.did in staying]], ancestors_max)
        assert tables_of(aged) == tables_of(fresh)


def test_a_long_chain_is_forgotten_in_bounded_steps(tmp_path: Path) -> None:
    written(tmp_path, [[seen(f"{at}", f"{at - 1}") for at in range(12_000)]], ancestors_max=0)
    with contextlib.closing(IndexWriter(tmp_path / INDEX_NAME, ancestors_max=0)) as writer:
        left = [len(tables_of(tmp_path)["correlation_event"])]
        while not writer.forget(10, 1):
            left.append(len(tables_of(tmp_path)["correlation_event"]))
    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= 5_000
    assert all(rows == [] for rows in tables_of(tmp_path).values())


@hypothesis_settings(max_examples=12)
@given(
    said=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(DIDS), st.sampled_from(DIDS), st.integers(0, 4)),
        max_size=9,
    )
)
def test_an_index_that_forgot_is_made_again_with_the_same_tables(
    said: list[tuple[int, str, str, int]],
) -> None:
    """Each is accepted some days after the one before, and is about something some days before that."""
    now = [100 * DAY_MS]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now[0] * 1_000_000)
        given = {"home": f"{folder}/home", "root": f"{folder}/root", "lineage_retain_days": 2}
        site = Site(Settings.load(given, env={}))
        for later, did, parent, age in said:
            now[0] += later * DAY_MS
            site.append(record(did, parent, completed=now[0] - age * DAY_MS, filename=f"{now[0]}"))
            if later % 2:
                site.catch_up()
        now[0] += DAY_MS
        site.catch_up()
        before = tables_of(site.settings.home)
        for one in site.settings.home.glob(f"{INDEX_NAME}*"):
            one.unlink()
        site.reopen()
        site.catch_up()
        assert tables_of(site.settings.home) == before
        assert {row[0] for row in before["correlation_event"]} <= {did for _, did, _, _ in said}
        site.index.close()
        site.journal.close()


def test_relations_have_what_the_index_does_not_have_yet(site: Site) -> None:
    assert Relations.open(site.settings.home) is None
    site.append(record("c", "a"))
    site.catch_up()
    site.append(record("c", "b"), record("d", "c"))
    relations = Relations.open(site.settings.home)
    assert relations is not None
    with relations:
        assert relations.parents_of(["c", "d", "a"]) == {"c": ("a", "b"), "d": ("c",)}
        assert relations.children_of(["a", "b", "c"]) == {"a": ("c",), "b": ("c",), "c": ("d",)}


def test_two_stories_under_one_did_are_found_in_what_is_stored(site: Site) -> None:
    site.append(record("a", "p"), record("b", "p"), record("c"))
    site.append(record("a", "p"), record("b", "q"), record("c", filename="other.csv"))
    site.append(record("d"), record("d", dataSink="mart", completed=3_000))
    site.catch_up()
    with opened(site.settings.home) as index:
        doubted = index.conflicts()
    assert doubted == ["b", "c"]
    assert details_of(site.settings.home, "b")["conflict"] is True
    found = list(find_collisions(doubted, [JournalSource(site.settings.home)], system_name="tests"))
    assert [(one.did, [story.filename for story in one.stories]) for one in found] == [
        ("b", ["b.csv", "b.csv"]),
        ("c", ["c.csv", "other.csv"]),
    ]
    assert [story.parent_did for story in found[0].stories] == ["p", "q"]
    assert ["entry 1" in found[0].places[0], "entry 2" in found[0].places[1]] == [True, True]


def killed_at(statement: int, work: Callable[[], None]) -> bool:
    """Work in a process that is killed at a statement; False if it got to the end before."""
    child = os.fork()
    if not child:
        left = itertools.count(1)

        def trace(*_: object) -> bool:
            if next(left) == statement:
                os.kill(os.getpid(), signal.SIGKILL)
            return True

        def watch(connection: apsw.Connection) -> None:
            connection.exec_trace = trace

        apsw.connection_hooks.append(watch)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_kill_at_any_statement_leaves_tables_and_place_as_before_or_after(tmp_path: Path) -> None:
    said = [seen("b", "a"), seen("c", "b", sinks=("lake",)), seen("a", "0"), seen("b", "x")]
    whole, half = tmp_path / "whole", tmp_path / "half"
    for folder in (whole, half):
        folder.mkdir()
        written(folder, [said[:1]])
    before = tables_of(half)
    written(whole, [said[1:]])
    for statement in itertools.count(1, 5):
        was_killed = killed_at(statement, lambda: written(half, [said[1:]]))
        with opened(half) as index:
            at = index.place[1]
        assert tables_of(half) == {1: before, 2: tables_of(whole)}[at]
        if not was_killed or at == 2:
            break
    assert statement > 20, "it was never killed late"


def test_a_kill_while_it_forgets_leaves_what_the_next_run_forgets(tmp_path: Path) -> None:
    said = [seen("a"), seen("b", "a"), seen("c", "b"), seen("d", "a", last_ms=9 * DAY_MS)]
    kept = {("a", "a", 0), ("d", "d", 0), ("a", "d", 1)}
    for statement in itertools.count(1, 3):
        folder = tmp_path / str(statement)
        folder.mkdir()
        written(folder, [said])
        was_killed = killed_at(statement, functools.partial(forget, folder, 2))
        assert kept <= set(tables_of(folder)["correlation_lineage"])
        forget(folder, 2)
        assert set(tables_of(folder)["correlation_lineage"]) == kept
        if not was_killed:
            break
    assert statement > 15, "it was never killed late"
