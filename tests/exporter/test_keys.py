from __future__ import annotations

import functools
import shutil
import tempfile
from collections import Counter
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import (
    HOUR_MS,
    START_MS,
    Layout,
    StoppedError,
    StoppingFiles,
    find,
    record,
    records_strategy,
    stats,
)

from waybill.exporter import IncompleteError, Query, age_off
from waybill.exporter.compaction import Retraction
from waybill.exporter.differing import list_differing
from waybill.exporter.keys import Keys, changed, keep_step, open_keys
from waybill.exporter.keys.hashes import HASHES, wanted_hashes
from waybill.exporter.ledger import comparing
from waybill.exporter.names import compacted_path, hour_of
from waybill.exporter.parquet import COMPACTED_FILTERS, encode
from waybill.exporter.query import FOLDERS, STATS_BY, Dimension, connect, run, scan, stats_of, sums_of
from waybill.facets import FinalState, ProvenanceRecord, merge_all, record_key
from waybill.facets.arrow import to_table
from waybill.lineage import Lineage
from waybill.transport import Journal, Settings, Tracker, flush
from waybill.transport.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from waybill.exporter.keys.contents import Contents

KEYS = "provenance/keys"
DAY_MS = 86_400_000


def keep(root: Path, files: Files | None = None) -> Contents | None:
    """Bring the keys of a root up to date; return their contents."""
    contents = keep_step(root, files=files, again=True)
    while contents is not None and contents.waiting:
        contents = keep_step(root, files=files)
    return contents


def files_in(contents: Contents | None) -> int:
    """How many files the keys know."""
    assert contents is not None
    return sum(span.live for span in contents.spans)


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
        keep(layout.root)
    elif what == STEP:
        keep_step(layout.root, step_files=1)
    elif what == AGE_OFF:
        age_off(layout.root, days=0, days_by_system={"core/7": 10_000}, now_ms=START_MS + 10**12)
    else:
        shutil.rmtree(layout.root / KEYS, ignore_errors=True)


@hypothesis_settings(max_examples=5)
@given(CHANGES, st.lists(QUERIES, min_size=3, max_size=6))
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


@given(st.lists(records_strategy(), max_size=12), QUERIES)
@hypothesis_settings(max_examples=5)
def test_the_files_that_are_read_are_those_that_hold_every_text_asked_for(
    records: list[ProvenanceRecord], query: Query
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        layout.write(*records)
        layout.compactor().compact()
        keep(layout.root)
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


def test_a_uuid_is_found_however_it_is_spelled(layout: Layout) -> None:
    did = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"
    layout.write(record(did), record("other", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep(layout.root)
    assert listed(layout.root, Query(did=did.upper().replace("-", ""))) == {"edge 00"}


def test_an_hour_that_changes_after_the_keys_is_read_whole_until_the_keys_has_it(
    layout: Layout,
) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep(layout.root)
    layout.write(record("late"))
    layout.compactor().compact()
    assert listed(layout.root, Query(did="late")) == {"edge 00"}
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}
    keep(layout.root)
    assert listed(layout.root, Query(did="b")) == {"edge 01"}


def test_a_root_in_place_of_another_has_a_keys_of_its_own(layout: Layout, tmp_path: Path) -> None:
    """A root that was restored from a copy, beside a keys that is newer than the copy."""
    layout.write(record("a"))
    layout.compactor().compact()
    shutil.copytree(layout.root, tmp_path / "copy")
    layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep(layout.root)
    shutil.copytree(layout.root / KEYS, tmp_path / "copy" / KEYS)
    other = Layout(tmp_path / "copy")
    other.write(record("c", at_ms=2 * HOUR_MS))
    other.compactor().compact()
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
        layout.write(record(f"did-{at}", at_ms=at * HOUR_MS - 365 * DAY_MS))
        layout.compactor().compact()
        keep(layout.root)
    assert spans_in(layout.root) == ["2025"]
    for at in hours:
        (found,) = find(layout.root, Query(did=f"did-{at}"), access=Keys())
        assert listed(layout.root, Query(did=found.did)) == {f"edge {at % 24:02}"}


def test_a_late_record_does_not_rewrite_the_keys_of_its_month(layout: Layout) -> None:
    for day in range(3):
        layout.write(*(record(f"{day}-{at}", at_ms=day * DAY_MS + at) for at in range(100)))
        layout.compactor().compact()
        keep(layout.root)
    assert spans_in(layout.root) == ["202601"]
    (large,) = (layout.root / KEYS).glob("202601-*.keys.parquet")
    for at in range(3):
        layout.write(record(f"late-{at}", at_ms=(at + 5) * HOUR_MS))
        layout.compactor().compact()
        keep(layout.root)
    assert spans_in(layout.root) == ["202601", "20260101"]
    assert large.exists()
    assert listed(layout.root, Query(did="late-1")) == {"edge 06"}
    assert listed(layout.root, Query(did="0-1")) == {"edge 00"}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["", "\0", "a\0b", "🗂", "a"])


@given(st.lists(st.tuples(TEXTS, TEXTS, st.none() | TEXTS, TEXTS), min_size=1, max_size=9))
@hypothesis_settings(max_examples=10)
def test_duckdb_and_a_question_hash_alike_and_pairs_are_not_confused(
    rows: list[tuple[str, str, str | None, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, connect() as connection:
        path = Path(folder, "00.parquet")
        records = [
            record(did, filename=name, parent_did=parent, annotations={name: text})
            for did, name, parent, text in rows
        ]
        path.write_bytes(encode(to_table(records), COMPACTED_FILTERS))
        found = run(connection, HASHES, {"files": [str(path)]}).fetchall()
        assert {hashed for _, hashed in found if hashed is not None} == {
            hashed
            for one in records
            for query in (
                Query(
                    did=one.did,
                    filename=one.filename,
                    literal=frozenset({"filename"}),
                    annotations=one.annotations or {},
                ),
                Query(parent_did=one.parent_did),
            )
            for (hashed,) in wanted_hashes(query)
        }


def test_a_surrogate_which_no_file_can_have_is_found_nowhere(layout: Layout) -> None:
    layout.write(record("a"))
    layout.compactor().compact()
    keep(layout.root)
    assert listed(layout.root, Query(did="\ud800", annotations={"\ud800": "a"})) == set()
    assert wanted_hashes(Query(annotations={"a": "b c"})) != wanted_hashes(Query(annotations={"a b": "c"}))


def test_what_an_age_off_removes_leaves_the_keys_too(layout: Layout) -> None:
    layout.write(*(record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(6)))
    layout.compactor().compact()
    keep(layout.root)
    age_off(layout.root, days=0, now_ms=START_MS + 10**12)
    assert files_in(keep(layout.root)) == 0
    assert list((layout.root / KEYS).glob("*.keys.parquet")) == []


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["contents.json", "*.files.parquet", "*.keys.parquet", "*.sums.parquet"])
@pytest.mark.parametrize("where", ["flipped at the end", "flipped in the middle", "empty", "gone"])
def test_a_damaged_file_of_the_keys_is_set_aside_and_made_again_while_answers_are_whole(
    layout: Layout, kind: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    layout.write(*(record(f"did-{at}", at_ms=at * HOUR_MS) for at in range(4)))
    layout.compactor().compact()
    keep(layout.root)
    (path,) = (layout.root / KEYS).glob(kind)
    if where == "gone":
        path.unlink()
    elif where == "empty":
        path.write_bytes(b"")
    else:
        damage(path, -1 if "end" in where else 40)
    keys = Keys()
    for _ in range(3):
        for at in range(4):
            query = Query(did=f"did-{at}")
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


@pytest.mark.parametrize("kind", ["files", "keys", "sums"])
def test_a_file_of_the_keys_that_lacks_rows_hides_no_record(
    layout: Layout, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    layout.write(*(record(f"did-{at}", at_ms=at * HOUR_MS, data_source=f"in-{at}") for at in range(4)))
    layout.compactor().compact()
    keep(layout.root)
    (path,) = (layout.root / KEYS).glob(f"*.{kind}.parquet")
    whole = pq.read_table(path)
    pq.write_table(whole.slice(0, whole.num_rows // 2), path, write_page_checksum=True)
    keys = Keys()
    for at in range(4):
        for query in (Query(did=f"did-{at}"), Query(data_source=f"in-{at}")):
            assert len(find(layout.root, query, access=keys)) == 1, query
    assert stats(layout.root, access=keys).total_records == 4
    assert any("cannot be used; until it is made again" in message for message in caplog.messages)
    keep(layout.root)
    assert len(find(layout.root, Query(data_source="in-3"), access=keys)) == 1
    assert keys.problem is None


def test_a_file_that_cannot_be_read_is_told_of_by_every_question_about_its_hour(layout: Layout) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    (first, _) = layout.compacted()
    first.write_bytes(b"nothing")
    contents = keep(layout.root)
    assert contents is not None
    assert contents.whole == (hour_of(START_MS),)
    assert listed(layout.root, Query(did="b")) == {"edge 00", "edge 01"}


def test_a_file_without_rows_is_known_beside_others(layout: Layout) -> None:
    wrong = record("a")
    layout.write(wrong)
    layout.compactor().compact()
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
    layout.write(record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
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
    layout.write(*(record(f"b{at}", at_ms=HOUR_MS) for at in range(100)))
    layout.compactor().compact()
    keep(layout.root)
    keys, by = Keys(), [Dimension.HOUR]
    for did in ("c", "d"):
        assert sums_of(scan(layout.root, access=keys, summed_by=by), by)
        layout.write(record(did))
        layout.compactor().compact()
        for _ in range(2):
            expected = sums_of(scan(layout.root, summed_by=by), by)
            assert sums_of(scan(layout.root, access=keys, summed_by=by), by) == expected
            keep(layout.root)


def test_files_that_somebody_adds_or_deletes_by_hand_are_noticed(layout: Layout, tmp_path: Path) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep(layout.root)
    other = Layout(tmp_path / "other")
    other.write(record("c", at_ms=2 * HOUR_MS))
    other.compactor().compact()
    path = compacted_path("edge", hour_of(START_MS + 2 * HOUR_MS))
    shutil.copy(other.root / path, layout.root / path)
    (layout.root / compacted_path("edge", hour_of(START_MS))).unlink()
    assert files_in(keep(layout.root)) == 2
    lineage = Lineage.open(layout.root)
    with pytest.raises(IncompleteError) as raised:
        lineage.find()
    gone, added = raised.value.unread
    assert "is gone, and no age-off removed it" in gone
    assert "is not the file in the ledger" in added
    with pytest.raises(IncompleteError):
        lineage.count()
    known = Query(since_ms=START_MS + HOUR_MS, until_ms=START_MS + 2 * HOUR_MS)
    assert [one.did for one in lineage.find(known)] == ["b"]
    there: list[str] = []
    with pytest.raises(IncompleteError):
        there.extend(did for table in scan(layout.root, access=Keys()) for did in table["did"].to_pylist())
    assert there == ["c", "b"]


def take_back(layout: Layout) -> None:
    raw = layout.write(record("e"))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(record("a"))})))


def remove_old(layout: Layout) -> None:
    age_off(layout.root, days=0, now_ms=START_MS + 10**12, files=layout.files)


LEGITIMATE: list[Callable[[Layout], object]] = [
    lambda layout: layout.compactor().compact(),
    take_back,
    remove_old,
]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("change", LEGITIMATE, ids=["compaction", "retraction", "age-off"])
def test_a_change_that_dies_at_any_moment_is_no_difference(
    tmp_path: Path, change: Callable[[Layout], object], every: int
) -> None:
    has_ended, at = False, 1
    while not has_ended:
        layout, keys, at = Layout(tmp_path / str(at)), Keys(), at + every
        layout.write(record("a"), record("b", at_ms=HOUR_MS))
        layout.compactor().compact()
        keep(layout.root)
        listing = keys.list_files(layout.root, Query(dids=frozenset({"a", "b"})), ())
        layout.write(record("c"), record("d", at_ms=HOUR_MS))
        layout.files = StoppingFiles(at)
        with suppress(StoppedError):
            change(layout)
            has_ended = True
        layout.files = Files()
        # A question that listed its files before, and one that comes now.
        assert [listing.compacted(hour, ()) != [] for hour in listing.hours] == [True, True]
        assert list(listing.differing()) == []
        assert find(layout.root, access=keys) == find(layout.root)
        for _ in range(2):
            keep(layout.root)
            assert list_differing(layout.root) == []
            layout.compactor().compact()  # which completes what was begun
        assert find(layout.root, access=keys) == find(layout.root)


def test_a_question_names_a_file_that_it_opens_and_that_somebody_changed_even_where_it_cannot_note_it(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    layout.compactor().compact()
    keep(layout.root)
    path = compacted_path("edge", hour_of(START_MS))
    monkeypatch.setattr(changed, "_HOLDS_S", 10**9)  # Nobody compares all files.
    (layout.root / path).unlink()
    keys = Keys()
    assert [one.did for one in find(layout.root, Query(did="b"), access=keys)] == ["b"]

    @contextmanager
    def refuse(path: Path) -> Iterator[None]:
        raise PermissionError(path)
        yield

    with monkeypatch.context() as patched:
        patched.setattr(comparing, "locked", refuse)
        for query in (Query(did="a"), Query()):
            with pytest.raises(IncompleteError, match=f"{path} is gone"):
                find(layout.root, query, access=keys)
    assert list_differing(layout.root) == []
    with pytest.raises(IncompleteError):
        find(layout.root, Query(did="a"), access=keys)
    # It is noted now, so what opens no file says so too.
    with pytest.raises(IncompleteError, match=f"{path} is gone"):
        stats(layout.root, access=keys)


def test_an_older_file_is_noticed_in_an_hour_that_changed_since_the_keys_were_made(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "_HOLDS_S", 0)
    layout.write(record("a"))
    layout.compactor().compact()
    keep(layout.root)
    (path,) = layout.compacted()
    older = path.read_bytes()
    layout.write(record("b"))
    layout.compactor().compact()
    assert stats(layout.root, access=Keys()).total_records == 2
    path.write_bytes(older)
    with pytest.raises(IncompleteError, match="is not the file in the ledger"):
        stats(layout.root, access=Keys())


def test_folders_list_what_the_folders_have(layout: Layout) -> None:
    layout.write(record("a"))
    layout.compactor().compact()
    assert FOLDERS.list_files(layout.root, Query(), ()).hours == [hour_of(START_MS)]


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
