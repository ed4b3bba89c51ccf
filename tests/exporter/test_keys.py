from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import HOUR_MS, START_MS, Layout, find, queries_strategy, record, records_strategy, stats

from waybill.exporter import IncompleteError, Query, age_off
from waybill.exporter.compaction import Retraction
from waybill.exporter.differing import list_differing
from waybill.exporter.keys import Keys, changed, keep_step, open_keys
from waybill.exporter.keys.hashes import wanted_hashes
from waybill.exporter.ledger import comparing
from waybill.exporter.names import compacted_path, hour_of
from waybill.exporter.query import STATS_BY, Dimension, scan, stats_of, sums_of
from waybill.facets import ProvenanceRecord, record_key
from waybill.lineage import Lineage
from waybill.transport import Journal, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.exporter.keys.contents import Contents

KEYS = "provenance/keys"
DAY_MS = 86_400_000


def keep(root: Path) -> Contents | None:
    """Bring the keys of a root up to date; return their contents."""
    contents = keep_step(root, again=True)
    while contents is not None and contents.waiting:
        contents = keep_step(root)
    return contents


def files_in(contents: Contents | None) -> int:
    """How many files the keys know."""
    assert contents is not None
    return sum(span.live for span in contents.spans)


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
        keep(layout.root)
    elif what == STEP:
        keep_step(layout.root, step_files=1)
    elif what == AGE_OFF:
        age_off(layout.root, days=0, days_by_system={"core/7": 10_000}, now_ms=START_MS + 10**12)
    else:
        shutil.rmtree(layout.root / KEYS, ignore_errors=True)


@hypothesis_settings(max_examples=5)
@given(CHANGES, st.lists(queries_strategy(), min_size=3, max_size=6))
def test_an_answer_by_the_keys_is_that_of_all_files_whatever_happens_in_which_order(
    changes: list[tuple[str, list[ProvenanceRecord]]], queries: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout, keys = Layout(Path(folder)), Keys()
        for at, (what, records) in enumerate(changes):
            change(layout, what, records)
            # The last time all of them: what a question finds does not hang on those before it.
            for query in queries if at == len(changes) - 1 else queries[at % len(queries) :][:1]:
                found = find(layout.root, query)
                assert find(layout.root, query, access=keys) == found
                tables = list(scan(layout.root, query, access=keys, summed_by=list(Dimension)))
                assert sums_of(tables, list(Dimension)) == counted_by_hand(found)
                ends = [one.completed for one in found]
                few = list(scan(layout.root, query, access=keys, summed_by=STATS_BY))
                known = stats_of(few)
                assert known == stats_of(scan(layout.root, query, summed_by=STATS_BY))
                assert known.total_records == len(found)
                assert known.oldest_record == min(ends, default=None)
                assert known.newest_record == max(ends, default=None)
        assert keys.problem is None


def counted_by_hand(records: list[ProvenanceRecord]) -> Counter[tuple[object, ...]]:
    return Counter(
        (one.final_state, one.system_name, one.data_source, one.data_sink, one.completed // HOUR_MS * HOUR_MS)
        for one in records
    )


def listed(root: Path, query: Query) -> set[str]:
    """The compacted files that a question reads, as system and hour."""
    files = Keys().list_files(root, query, ())
    found = chain.from_iterable(files.compacted(hour, ()) for hour in files.hours)
    return {f"{path.parent.parent.name} {path.stem}" for path in found}


NAMES = ['it\'s "quoted"', "100%", "Grüße 🗂", "n" * 4096, "\0", "key=value", " "]


def test_any_text_is_data_and_is_found(layout: Layout) -> None:
    layout.add(
        *(
            record(
                f"did {name}", at_ms=at * HOUR_MS, parent_did=name, filename=name, annotations={name: name}
            )
            for at, name in enumerate(NAMES)
        )
    )
    keep(layout.root)
    keys = Keys()
    for at, name in enumerate(NAMES):
        for query in (
            Query(did=f"did {name}"),
            Query(parent_did=name),
            Query(filename=name),
            Query(annotations={name: name}),
        ):
            assert listed(layout.root, query) == {f"edge {at:02}"}
            (found,) = find(layout.root, query, access=keys)
            assert found.filename == name
    # A file is read only if it holds every text that is asked for.
    assert listed(layout.root, Query(parent_did=NAMES[0], filename=NAMES[1])) == set()
    assert listed(layout.root, Query(dids=frozenset({"did %"}), annotations={NAMES[1]: NAMES[1]})) == set()


def test_an_hour_that_changes_after_the_keys_is_read_whole_until_the_keys_has_it(
    layout: Layout,
) -> None:
    layout.add(record("a"), record("b", at_ms=HOUR_MS))
    keep(layout.root)
    layout.add(record("late"))
    assert listed(layout.root, Query(did="late")) == {"edge 00"}
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}
    keep(layout.root)
    assert listed(layout.root, Query(did="b")) == {"edge 01"}


def test_a_root_in_place_of_another_has_a_keys_of_its_own(layout: Layout, tmp_path: Path) -> None:
    """A root that was restored from a copy, beside a keys that is newer than the copy."""
    layout.add(record("a"))
    shutil.copytree(layout.root, tmp_path / "copy")
    layout.add(record("b", at_ms=HOUR_MS))
    keep(layout.root)
    shutil.copytree(layout.root / KEYS, tmp_path / "copy" / KEYS)
    other = Layout(tmp_path / "copy")
    other.add(record("c", at_ms=2 * HOUR_MS))
    assert listed(other.root, Query(did="c")) == {"edge 00", "edge 02"}
    keep(other.root)
    assert listed(other.root, Query(did="c")) == {"edge 02"}


def test_a_root_without_compacted_files_gets_no_keys(layout: Layout) -> None:
    layout.write(record("a"))
    assert keep(layout.root) is None
    assert not (layout.root / KEYS).exists()


def spans_in(root: Path) -> list[str]:
    """The names of the spans that have keys."""
    return sorted(path.name.partition("-")[0] for path in (root / KEYS).glob("*.keys.parquet"))


def test_many_small_spans_become_one_of_their_day_month_and_year(layout: Layout) -> None:
    hours = [*range(4), 30, 31 * 24, 200 * 24]
    for at in hours:
        layout.add(record(f"did-{at}", at_ms=at * HOUR_MS - 365 * DAY_MS))
        keep(layout.root)
    assert spans_in(layout.root) == ["2025"]
    for at in hours:
        (found,) = find(layout.root, Query(did=f"did-{at}"), access=Keys())
        assert listed(layout.root, Query(did=found.did)) == {f"edge {at % 24:02}"}


def test_a_late_record_does_not_rewrite_the_keys_of_its_month(layout: Layout) -> None:
    for day in range(3):
        layout.add(*(record(f"{day}-{at}", at_ms=day * DAY_MS + at) for at in range(100)))
        keep(layout.root)
    assert spans_in(layout.root) == ["202601"]
    (large,) = (layout.root / KEYS).glob("202601-*.keys.parquet")
    for at in range(3):
        layout.add(record(f"late-{at}", at_ms=(at + 5) * HOUR_MS))
        keep(layout.root)
    assert spans_in(layout.root) == ["202601", "20260101"]
    assert large.exists()
    assert listed(layout.root, Query(did="late-1")) == {"edge 06"}
    assert listed(layout.root, Query(did="0-1")) == {"edge 00"}


def test_a_surrogate_which_no_file_can_have_is_found_nowhere(layout: Layout) -> None:
    layout.add(record("a"))
    keep(layout.root)
    assert listed(layout.root, Query(did="\ud800", annotations={"\ud800": "a"})) == set()
    assert wanted_hashes(Query(annotations={"a": "b c"})) != wanted_hashes(Query(annotations={"a b": "c"}))


def test_what_an_age_off_removes_leaves_the_keys_too(layout: Layout) -> None:
    layout.add(*(record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(6)))
    keep(layout.root)
    age_off(layout.root, days=0, now_ms=START_MS + 10**12)
    assert files_in(keep(layout.root)) == 0
    assert list((layout.root / KEYS).glob("*.keys.parquet")) == []


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("contents.json", "flipped in the middle"),
        ("contents.json", "gone"),
        ("*.files.parquet", "flipped at the end"),
        ("*.files.parquet", "empty"),
        ("*.keys.parquet", "flipped in the middle"),
        ("*.keys.parquet", "gone"),
        ("*.sums.parquet", "flipped in the middle"),
        ("*.files.parquet", "without half of its rows"),
        ("*.keys.parquet", "without half of its rows"),
        ("*.sums.parquet", "without half of its rows"),
    ],
)
def test_a_damaged_file_of_the_keys_is_set_aside_and_made_again_while_answers_are_whole(
    layout: Layout, kind: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    layout.add(*(record(f"did-{at}", at_ms=at * HOUR_MS, data_source=f"in-{at}") for at in range(4)))
    keep(layout.root)
    (path,) = (layout.root / KEYS).glob(kind)
    if where == "gone":
        path.unlink()
    elif where == "empty":
        path.write_bytes(b"")
    elif where == "without half of its rows":
        whole = pq.read_table(path)
        pq.write_table(whole.slice(0, whole.num_rows // 2), path, write_page_checksum=True)
    else:
        damage(path, -1 if "end" in where else 40)
    keys = Keys()
    for _ in range(3):
        for at in range(4):
            for query in (Query(did=f"did-{at}"), Query(data_source=f"in-{at}")):
                assert find(layout.root, query, access=keys) == find(layout.root, query)
        assert stats(layout.root, access=keys).total_records == 4
    if where != "gone" and kind != "contents.json":
        assert len(caplog.messages) == 1
        assert "cannot be used; until it is made again, answers take longer" in caplog.messages[0]
    if (kind, where) != ("contents.json", "gone"):
        assert keys.problem is not None
    keep(layout.root)
    assert listed(layout.root, Query(did="did-2")) == {"edge 02"}
    assert len(find(layout.root, Query(did="did-2"), access=keys)) == 1
    assert keys.problem is None


def test_a_file_that_cannot_be_read_is_told_of_by_every_question_about_its_hour(layout: Layout) -> None:
    layout.add(record("a"), record("b", at_ms=HOUR_MS))
    (first, _) = layout.compacted()
    first.write_bytes(b"nothing")
    contents = keep(layout.root)
    assert contents is not None
    assert contents.whole == (hour_of(START_MS),)
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}


def test_a_file_without_rows_is_known_beside_others(layout: Layout) -> None:
    wrong = record("a")
    layout.add(wrong)
    raw = layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    layout.compactor().compact()
    for again in (False, True):
        contents = keep_step(layout.root, again=again)
        assert contents is not None
        assert (files_in(contents), contents.whole, contents.waiting) == (2, (), ())
    assert listed(layout.root, Query(did="b")) == {"edge 01"}
    by = [Dimension.HOUR]
    assert sums_of(scan(layout.root, access=Keys(), summed_by=by), by) == {(HOUR_MS + START_MS,): 1}


def test_a_file_with_one_long_name_in_many_kinds_is_counted_by_reading_it(layout: Layout) -> None:
    sinks = [f"sink-{at}" for at in range(12)]
    layout.write(*(record("a", data_source="s" * 100_000, data_sink=sink) for sink in sinks))
    layout.add(record("b", at_ms=HOUR_MS))
    keep(layout.root)
    keys, by = Keys(), [Dimension.SINK]
    sums = sums_of(scan(layout.root, access=keys, summed_by=by), by)
    assert sums == sums_of(scan(layout.root, summed_by=by), by)
    assert sum(sums.values()) == len(sinks) + 1
    one = Query(data_sink=sinks[3])
    assert sum(table.num_rows for table in scan(layout.root, one, access=keys)) == 1


def test_an_hour_that_changes_is_counted_once_before_the_keys_have_it_and_after(layout: Layout) -> None:
    layout.write(record("a"))
    # So many keys are not rewritten without the few of a file that is gone.
    layout.add(*(record(f"b{at}", at_ms=HOUR_MS) for at in range(100)))
    keep(layout.root)
    keys, by = Keys(), [Dimension.HOUR]
    for did in ("c", "d"):
        assert sums_of(scan(layout.root, access=keys, summed_by=by), by)
        layout.add(record(did))
        for _ in range(2):
            expected = sums_of(scan(layout.root, summed_by=by), by)
            assert sums_of(scan(layout.root, access=keys, summed_by=by), by) == expected
            keep(layout.root)


def test_a_question_names_a_file_that_somebody_removed_even_where_it_cannot_note_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.add(record("a"), record("b", at_ms=HOUR_MS))
    keep(layout.root)
    path = compacted_path("edge", hour_of(START_MS))
    (layout.root / path).unlink()

    @contextmanager
    def refuse(path: Path) -> Iterator[None]:
        raise PermissionError(path)
        yield

    monkeypatch.setattr(comparing, "locked", refuse)
    for query in (Query(did="a"), Query()):
        with pytest.raises(IncompleteError, match=f"{path} is gone"):
            find(layout.root, query, access=Keys())
    assert list_differing(layout.root) == []


def test_an_older_file_is_noticed_in_an_hour_that_changed_since_the_keys_were_made(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "_HOLDS_S", 0)
    layout.add(record("a"))
    keep(layout.root)
    (path,) = layout.compacted()
    older = path.read_bytes()
    layout.add(record("b"))
    assert stats(layout.root, access=Keys()).total_records == 2
    path.write_bytes(older)
    with pytest.raises(IncompleteError, match="is not the file in the ledger"):
        stats(layout.root, access=Keys())


def test_a_flush_leaves_a_keys_that_knows_what_it_compacted(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        for name in ("a.csv", "b.csv"):
            with tracker.file(name, data_source="sftp") as file:
                file.egress("lake")
    report = flush(settings)
    assert (report.left, report.problems) == ({}, {})
    files = Keys().list_files(settings.root, Query(filename="c.csv"), ())
    assert list(files.hours) == []
    assert len(Lineage.open(settings.home).find(Query(filename="a.csv"))) == 1


def test_a_keys_that_cannot_be_written_holds_up_no_journal(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("a.csv", data_source="sftp") as file:
        file.egress("lake")
    (settings.root / KEYS).parent.mkdir(parents=True, exist_ok=True)
    (settings.root / KEYS).write_text("somebody's file")
    assert set(flush(settings).problems) == {"keys"}
    with closing(Journal(settings.home)) as journal:
        keeper = open_keys(journal, settings)
        assert keeper is not None
        problem = keeper.step().problem
        assert problem is not None
        assert "cannot be written" in problem
        assert journal.cursor("keys") == journal.cursor("layout")
    assert len(Lineage.open(settings.home).find(Query(filename="a.csv"))) == 1
