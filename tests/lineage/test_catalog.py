from __future__ import annotations

import functools
import shutil
import tempfile
from collections import Counter
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import HOUR_MS, START_MS, Layout, StoppedError, StoppingFiles, find, record, records_strategy

from waybill.exporter import Query, age_off
from waybill.exporter.names import compacted_path, hour_of
from waybill.exporter.query import FOLDERS, STATS_BY, Dimension, scan, stats_of, sums_of
from waybill.facets import FinalState, ProvenanceRecord, merge_all
from waybill.lineage import Lineage
from waybill.lineage.catalog import Catalog, forget_catalog, keep_catalog, keep_step, open_catalog
from waybill.transport import Journal, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CATALOG = "provenance/catalog"
DAY_MS = 86_400_000


@pytest.fixture
def layout(root: Path) -> Layout:
    """An empty root."""
    return Layout(root)


def maybe(*values: object) -> st.SearchStrategy[object]:
    return st.none() | st.sampled_from(values)


QUERIES = st.builds(
    Query,
    did=maybe("d1", "d2", "d3"),
    dids=maybe(frozenset({"d1", "d3"}), frozenset()),
    parent_did=maybe("p1", "p3"),
    parent_dids=maybe(frozenset({"p1", "p2"})),
    system_name=maybe("edge", "core/7", "nobody"),
    filename=maybe("a", "a*", "", "ab"),
    data_source=maybe("a", ""),
    data_sink=maybe("a"),
    has_data_sink=st.none() | st.booleans(),
    final_state=maybe(FinalState.ERROR, (FinalState.COMPLETE, FinalState.ERROR)),
    annotations=st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["a", "", "b"]), max_size=2),
    since_ms=maybe(START_MS + 1, START_MS + HOUR_MS),
    until_ms=maybe(START_MS + 1, START_MS + HOUR_MS),
)

# Most queries with so many conditions find nothing.
QUERIES |= st.builds(
    Query,
    data_source=maybe("a"),
    has_data_sink=st.none() | st.booleans(),
    final_state=maybe(FinalState.ERROR),
    since_ms=maybe(START_MS + 1, START_MS + HOUR_MS),
)

WRITE, COMPACT, KEEP, STEP, AGE_OFF, FORGET = "write", "compact", "keep", "step", "age off", "forget"
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just(WRITE), st.lists(records_strategy(), max_size=5)),
        st.tuples(st.sampled_from([COMPACT, COMPACT, KEEP, STEP, AGE_OFF, FORGET]), st.just([])),
    ),
    min_size=2,
    max_size=9,
)


def change(layout: Layout, what: str, records: list[ProvenanceRecord]) -> None:
    if what == WRITE:
        layout.write(*records)
    elif what == COMPACT:
        layout.compactor().compact()
    elif what == KEEP:
        keep_catalog(layout.root)
    elif what == STEP:
        keep_step(layout.root, step_keys=1)
    elif what == AGE_OFF:
        age_off(layout.root, days=0, days_by_system={"core/7": 10_000}, now_ms=START_MS + 10**12)
    else:
        forget_catalog(layout.root)


@hypothesis_settings(max_examples=10)
@given(CHANGES, st.lists(QUERIES, min_size=3, max_size=6))
def test_an_answer_by_the_catalog_is_that_of_all_files_whatever_happens_in_which_order(
    changes: list[tuple[str, list[ProvenanceRecord]]], queries: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout, catalog = Layout(Path(folder)), Catalog()
        for at, (what, records) in enumerate(changes):
            change(layout, what, records)
            # The last time all of them: what a question finds does not hang on those before it.
            for query in queries if at == len(changes) - 1 else queries[at % len(queries) :][:1]:
                found = find(layout.root, query)
                assert find(layout.root, query, access=catalog) == found
                tables = list(scan(layout.root, query, access=catalog, summed_by=list(Dimension)))
                assert sums_of(tables, list(Dimension)) == counted_by_hand(found)
                ends = [one.completed for one in found]
                few = list(scan(layout.root, query, access=catalog, summed_by=STATS_BY))
                known = stats_of(few)
                assert known == stats_of(scan(layout.root, query, summed_by=STATS_BY))
                assert known.total_records == len(found)
                assert known.oldest_record == min(ends, default=None)
                assert known.newest_record == max(ends, default=None)
        assert catalog.problem is None


def counted_by_hand(records: list[ProvenanceRecord]) -> Counter[tuple[object, ...]]:
    return Counter(
        (one.final_state, one.system_name, one.data_source, one.data_sink, one.completed // HOUR_MS * HOUR_MS)
        for one in records
    )


def listed(root: Path, query: Query) -> set[str]:
    """The compacted files that a question reads, as system and hour."""
    files = Catalog().list_files(root, query, ())
    found = chain.from_iterable(files.compacted(hour, ()) for hour in files.hours)
    return {f"{path.parent.parent.name} {path.stem}" for path in found}


@given(st.lists(records_strategy(), max_size=12), QUERIES)
@hypothesis_settings(max_examples=8)
def test_the_files_that_are_read_are_those_that_hold_every_text_asked_for(
    records: list[ProvenanceRecord], query: Query
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        layout.write(*records)
        layout.compactor().compact()
        keep_catalog(layout.root)
        by_file: dict[tuple[str, str], list[ProvenanceRecord]] = {}
        for one in merge_all(records):
            key = (one.system_name.replace("/", "%2F"), hour_of(one.completed).hour)
            by_file.setdefault(key, []).append(one)
        # By kind, files are only looked for where no text is asked for.
        demands = list(demands_of(query)) or [functools.partial(_is_of_kind, query)]
        wanted = {
            " ".join(key)
            for key, rows in by_file.items()
            if query.system_name in {None, rows[0].system_name}
            and (query.since_ms is None or any(one.completed >= query.since_ms for one in rows))
            and (query.until_ms is None or any(one.completed < query.until_ms for one in rows))
            and all(any(test(one) for one in rows) for test in demands)
        }
        assert listed(layout.root, query) == wanted


def demands_of(query: Query) -> Iterator[Callable[[ProvenanceRecord], bool]]:
    """Of each text that a query asks for, whether a record has it."""
    did, dids, parent, parents = query.did, query.dids, query.parent_did, query.parent_dids
    if did is not None:
        yield lambda one: one.did == did
    if dids is not None:
        yield lambda one: one.did in dids
    if parent is not None:
        yield lambda one: one.parent_did == parent
    if parents is not None:
        yield lambda one: one.parent_did in parents
    if query.filename is not None and query.filename != "a*":
        yield lambda one: one.filename == query.filename
    for key, value in query.annotations.items():
        yield functools.partial(_has, key, value)


def _is_of_kind(query: Query, one: ProvenanceRecord) -> bool:
    states = query.final_state or tuple(FinalState)
    return (
        query.data_source in {None, one.data_source}
        and query.data_sink in {None, one.data_sink}
        and (query.has_data_sink is None or query.has_data_sink == (one.data_sink is not None))
        and one.final_state in states
    )


def _has(key: str, value: str, one: ProvenanceRecord) -> bool:
    return (one.annotations or {}).get(key) == value


NAMES = ['it\'s "quoted"', "100%", "Grüße 🗂", "n" * 4096, "\0", "key=value", " "]


def test_any_text_is_data_and_is_found(layout: Layout) -> None:
    layout.write(
        *(
            record(
                f"did {name}", at_ms=at * HOUR_MS, parent_did=name, filename=name, annotations={name: name}
            )
            for at, name in enumerate(NAMES)
        )
    )
    layout.compactor().compact()
    keep_catalog(layout.root)
    catalog = Catalog()
    for at, name in enumerate(NAMES):
        for query in (
            Query(did=f"did {name}"),
            Query(parent_did=name),
            Query(filename=name),
            Query(annotations={name: name}),
        ):
            assert listed(layout.root, query) == {f"edge {at:02}"}
            (found,) = find(layout.root, query, access=catalog)
            assert found.filename == name


def test_a_uuid_is_found_however_it_is_spelled(layout: Layout) -> None:
    did = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"
    layout.write(record(did), record("other", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep_catalog(layout.root)
    assert listed(layout.root, Query(did=did.upper().replace("-", ""))) == {"edge 00"}


def test_an_hour_that_changes_after_the_catalog_is_read_whole_until_the_catalog_has_it(
    layout: Layout,
) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep_catalog(layout.root)
    layout.write(record("late"))
    layout.compactor().compact()
    assert listed(layout.root, Query(did="late")) == {"edge 00"}
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}
    keep_catalog(layout.root)
    assert listed(layout.root, Query(did="b")) == {"edge 01"}


def test_a_root_in_place_of_another_has_a_catalog_of_its_own(layout: Layout, tmp_path: Path) -> None:
    """A root that was restored from a copy, beside a catalog that is newer than the copy."""
    layout.write(record("a"))
    layout.compactor().compact()
    shutil.copytree(layout.root, tmp_path / "copy")
    layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep_catalog(layout.root)
    shutil.copytree(layout.root / CATALOG, tmp_path / "copy" / CATALOG)
    other = Layout(tmp_path / "copy")
    other.write(record("c", at_ms=2 * HOUR_MS))
    other.compactor().compact()
    assert listed(other.root, Query(did="c")) == {"edge 00", "edge 02"}
    keep_catalog(other.root)
    assert listed(other.root, Query(did="c")) == {"edge 02"}


def test_a_catalog_that_is_deleted_is_made_again(layout: Layout) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    first = keep_catalog(layout.root)
    shutil.rmtree(layout.root / CATALOG)
    assert listed(layout.root, Query(did="a")) == {"edge 00", "edge 01"}
    assert keep_catalog(layout.root) == first
    assert listed(layout.root, Query(did="a")) == {"edge 00"}


def test_a_root_without_compacted_files_gets_no_catalog(layout: Layout) -> None:
    layout.write(record("a"))
    assert keep_catalog(layout.root).files == 0
    assert not (layout.root / CATALOG).exists()


def test_many_small_segments_become_few(layout: Layout) -> None:
    for at in range(20):
        layout.write(record(f"did-{at}", at_ms=at * HOUR_MS))
        layout.compactor().compact()
        keep_catalog(layout.root)
    assert len(list((layout.root / CATALOG).glob("*.keys"))) < 8
    assert [listed(layout.root, Query(did=f"did-{at}")) for at in range(20)] == [
        {f"edge {at:02}"} for at in range(20)
    ]


def test_what_an_age_off_removes_leaves_the_catalog_too(layout: Layout) -> None:
    layout.write(*(record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(6)))
    layout.compactor().compact()
    keep_catalog(layout.root)
    age_off(layout.root, days=0, now_ms=START_MS + 10**12)
    report = keep_catalog(layout.root)
    assert report.files == 0
    assert list((layout.root / CATALOG).glob("*.keys")) == []


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["catalog", "*.files", "*.keys"])
@pytest.mark.parametrize("where", ["flipped at the end", "flipped at the begin", "empty", "gone"])
def test_a_damaged_catalog_is_set_aside_and_made_again_while_answers_are_whole(
    layout: Layout, kind: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    layout.write(*(record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(4)))
    layout.compactor().compact()
    keep_catalog(layout.root)
    (path,) = (layout.root / CATALOG).glob(kind)
    if where == "gone":
        path.unlink()
    elif where == "empty":
        path.write_bytes(b"")
    else:
        damage(path, -1 if "end" in where else 3)
    catalog = Catalog()
    for _ in range(3):
        for at in range(4):
            query = Query(did=f"did-{at}")
            assert find(layout.root, query, access=catalog) == find(layout.root, query)
    if where != "gone":
        assert len(caplog.messages) == 1
        assert "is damaged; until it is made again, answers take longer" in caplog.messages[0]
    if (kind, where) != ("catalog", "gone"):
        assert catalog.problem is not None
    keep_catalog(layout.root)
    assert listed(layout.root, Query(did="did-2")) == {"edge 02"}
    assert len(find(layout.root, Query(did="did-2"), access=catalog)) == 1
    assert catalog.problem is None


def test_whoever_keeps_the_catalog_up_dies_at_any_step_and_the_next_goes_on(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "root")
    for at in range(10):  # so many that some are merged
        layout.write(record(f"did-{at}", at_ms=at * HOUR_MS))
        layout.compactor().compact()
        keep_catalog(layout.root)
    layout.write(record("late", at_ms=1), record("more", at_ms=11 * HOUR_MS))
    layout.compactor().compact()
    shutil.copytree(layout.root / CATALOG, tmp_path / "before")
    for calls in range(1, 100):
        catalog = Catalog()
        try:
            keep_catalog(layout.root, files=StoppingFiles(calls))
        except StoppedError:
            pass
        else:
            break
        assert len(find(layout.root, Query(did="late"), access=catalog)) == 1
        keep_catalog(layout.root)
        assert listed(layout.root, Query(did="late")) == {"edge 00"}
        assert len(find(layout.root, Query(did="more"), access=catalog)) == 1
        shutil.rmtree(layout.root / CATALOG)
        shutil.copytree(tmp_path / "before", layout.root / CATALOG)
    assert calls > 8


def test_a_file_that_cannot_be_read_is_told_of_by_every_question_about_its_hour(layout: Layout) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    (first, _) = layout.compacted()
    first.write_bytes(b"nothing")
    assert keep_catalog(layout.root).unread == ("20260101/00",)
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}


def test_a_file_with_one_long_name_in_many_kinds_is_counted_by_reading_it(layout: Layout) -> None:
    sinks = [f"sink-{at}" for at in range(12)]
    layout.write(*(record("a", data_source="s" * 100_000, data_sink=sink) for sink in sinks))
    layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep_catalog(layout.root)
    catalog, by = Catalog(), [Dimension.SINK]
    sums = sums_of(scan(layout.root, access=catalog, summed_by=by), by)
    assert sums == sums_of(scan(layout.root, summed_by=by), by)
    assert sum(sums.values()) == len(sinks) + 1


def test_files_that_somebody_adds_or_deletes_by_hand_are_noticed(layout: Layout, tmp_path: Path) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep_catalog(layout.root)
    other = Layout(tmp_path / "other")
    other.write(record("c", at_ms=2 * HOUR_MS))
    other.compactor().compact()
    path = compacted_path("edge", hour_of(START_MS + 2 * HOUR_MS))
    shutil.copy(other.root / path, layout.root / path)
    (layout.root / compacted_path("edge", hour_of(START_MS))).unlink()
    assert keep_catalog(layout.root).files == 2
    lineage = Lineage.open(layout.root)
    assert [one.did for one in lineage.find()] == ["c", "b"]
    assert lineage.count() == 2


def test_folders_list_what_the_folders_have(layout: Layout) -> None:
    layout.write(record("a"))
    layout.compactor().compact()
    assert FOLDERS.list_files(layout.root, Query(), ()).hours == [hour_of(START_MS)]


def test_a_flush_leaves_a_catalog_that_knows_what_it_compacted(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        for name in ("a.csv", "b.csv"):
            with tracker.file(name, data_source="sftp") as file:
                file.egress("lake")
    report = flush(settings)
    assert (report.left, report.problems) == ({}, {})
    files = Catalog().list_files(settings.root, Query(filename="c.csv"), ())
    assert list(files.hours) == []
    assert len(Lineage.open(settings.home).find(Query(filename="a.csv"))) == 1


def test_a_catalog_that_cannot_be_written_holds_up_no_journal(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("a.csv", data_source="sftp") as file:
        file.egress("lake")
    (settings.root / CATALOG).parent.mkdir(parents=True, exist_ok=True)
    (settings.root / CATALOG).write_text("somebody's file")
    assert set(flush(settings).problems) == {"catalog"}
    with closing(Journal(settings.home)) as journal:
        keeper = open_catalog(journal, settings)
        assert keeper is not None
        problem = keeper.step().problem
        assert problem is not None
        assert "cannot be written" in problem
        assert journal.cursor("catalog") == journal.cursor("layout")
    assert len(Lineage.open(settings.home).find(Query(filename="a.csv"))) == 1
