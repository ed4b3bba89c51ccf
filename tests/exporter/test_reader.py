from __future__ import annotations

import fnmatch
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path, PurePosixPath

import pyarrow.parquet as pq
import pytest
from growth import check_linear
from hypothesis import given, settings, strategies as st
from layouts import (
    FILES,
    HOUR_MS,
    NODE,
    START_MS,
    Layout,
    StoppedError,
    StoppingFiles,
    find,
    queries_strategy,
    record,
    records_strategy,
    without_rights,
)
from msgspec import structs

from waybill.exporter import Query, parquet
from waybill.exporter.compaction import Retraction
from waybill.exporter.names import compacted_path, hour_of
from waybill.exporter.quarantine import note_restored, quarantine
from waybill.exporter.query import (
    CursorError,
    Dimension,
    IncompleteError,
    InvalidQueryError,
    compare,
    cursor_of,
    scan,
    sums_of,
    write_answer,
)
from waybill.facets import FinalState, ProvenanceRecord, merge_all, record_key
from waybill.facets.arrow import from_table, to_table


def meets(one: ProvenanceRecord, query: Query) -> bool:
    """The query in plain Python."""
    wanted = {
        name: value
        for name in ("did", "parent_did", "data_source", "data_sink", "system_name")
        if (value := getattr(query, name)) is not None
    }
    return (
        all(getattr(one, name) == value for name, value in wanted.items())
        and (query.dids is None or one.did in query.dids)
        and (query.parent_dids is None or one.parent_did in query.parent_dids)
        and (query.filename is None or fnmatch.fnmatchcase(one.filename, query.filename.replace("[", "[[]")))
        and all((one.annotations or {}).get(key) == value for key, value in query.annotations.items())
        and (query.final_state is None or one.final_state in query.final_state)
        and one.final_state not in query.not_final_states
        and (query.has_data_sink is None or (one.data_sink is not None) == query.has_data_sink)
        and one.data_sink not in query.not_data_sinks
        and (query.created_since_ms is None or one.created >= query.created_since_ms)
        and (query.created_until_ms is None or one.created < query.created_until_ms)
        and (query.since_ms is None or one.completed >= query.since_ms)
        and (query.until_ms is None or one.completed < query.until_ms)
    )


@FILES
@given(
    st.lists(records_strategy(), max_size=8),
    st.lists(st.lists(records_strategy(), max_size=4), max_size=3),
    queries_strategy(),
)
def test_a_query_finds_what_meets_it_whether_raw_or_compacted_and_in_how_many_parts(
    early: list[ProvenanceRecord],
    late: list[list[ProvenanceRecord]],
    query: Query,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        layout.add(*early)
        for some in late:
            layout.write(*some)
        wanted = [one for one in merge_all([*early, *chain(*late)]) if meets(one, query)]
        found = find(layout.root, query)
        assert [one.completed for one in found] == sorted((one.completed for one in found), reverse=True)
        assert merge_all(found) == wanted
        assert len(found) == len(wanted)
        layout.compactor().compact()
        assert merge_all(find(layout.root, query)) == wanted


@settings(FILES, max_examples=8)
@given(
    records=st.lists(records_strategy(), min_size=2, max_size=10),
    early=st.integers(0, 10),
    query=queries_strategy(),
    oldest_first=st.booleans(),
    is_compacted=st.booleans(),
)
def test_pages_have_each_record_once_in_order_while_others_arrive(
    records: list[ProvenanceRecord],
    early: int,
    query: Query,
    *,
    oldest_first: bool,
    is_compacted: bool,
) -> None:
    query = structs.replace(query, oldest_first=oldest_first, limit=2)
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        layout.add(*records[:early])
        layout.write(*records[early:])
        if is_compacted:
            layout.compactor().compact()
        wanted = [one for one in merge_all(records) if meets(one, query)]
        found: list[ProvenanceRecord] = []
        while page := find(layout.root, query):
            found += page
            query = structs.replace(query, after=cursor_of(page[-1]))
            # What is before the place that was reached is on no later page.
            end_ms = START_MS - 10 * HOUR_MS if oldest_first else START_MS + 10 * HOUR_MS
            layout.write(record(f"more-{len(found)}", at_ms=end_ms - START_MS))
        assert merge_all(found) == wanted
        assert len(found) == len(wanted)
        ends = [(one.completed, one.did) for one in found]
        assert ends == sorted(ends, reverse=not oldest_first)
        more = find(layout.root, structs.replace(query, limit=1, oldest_first=not oldest_first))
        assert [one for one in more if one in wanted] == found[-2:-1] or len(found) < 2


@pytest.mark.parametrize("bad", ["BAD", "", ["error", "LOST"]])
@pytest.mark.parametrize("name", ["final_state", "not_final_states"])
def test_what_is_no_state_is_refused(name: str, bad: object) -> None:
    with pytest.raises(InvalidQueryError, match="is not one of COMPLETE, ERROR, FILTERED") as raised:
        Query(**{name: bad})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args


def test_states_may_be_texts_in_small_letters(layout: Layout) -> None:
    layout.write(record("good"), record("bad", final_state=FinalState.ERROR))
    assert [one.did for one in find(layout.root, Query(final_state="error"))] == ["bad"]
    assert [one.did for one in find(layout.root, Query(not_final_states=["error", "split"]))] == ["good"]


def test_what_is_no_cursor_is_refused(layout: Layout) -> None:
    layout.write(record("a"))
    (one,) = find(layout.root)
    good = cursor_of(one)
    assert re.fullmatch("[A-Za-z0-9_-]+", cursor_of(structs.replace(one, did="ü%&?#/" * 700)))
    assert find(layout.root, Query(after=good)) == []
    for bad in ("", "nonsense", good[:-4], good + "=", f"{good} ", "ü", "A" * 9):
        with pytest.raises(CursorError, match="give the whole cursor that came") as raised:
            Query(after=bad)
        assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args


@FILES
@given(
    st.lists(records_strategy(), max_size=8), st.lists(st.sampled_from(Dimension), max_size=3, unique=True)
)
def test_sums_count_each_record_once_by_what_it_has(
    records: list[ProvenanceRecord], by: list[Dimension]
) -> None:
    half = len(records) // 2
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        layout.add(*records)
        layout.write(*records[:half])
        tables = list(scan(layout.root, summed_by=by))
    counts: Counter[tuple[object, ...]] = Counter() if by else Counter({(): 0})
    for one in merge_all(records):
        values = structs.asdict(one) | {"completed": one.completed - one.completed % HOUR_MS}
        counts[tuple(values[dimension.column] for dimension in by)] += 1
    sums = sums_of(tables, by)
    assert sums == counts
    assert list(sums) == sorted(sums, key=lambda kind: [(one is not None, one) for one in kind])


@pytest.mark.parametrize("replace", [False, True])
def test_an_answer_s_file_is_whole_wherever_writing_stops(
    layout: Layout, tmp_path: Path, *, replace: bool
) -> None:
    layout.write(record("a"))
    path, survived = tmp_path / "found.parquet", False
    for at in range(1, 20):
        path.unlink(missing_ok=True)
        if replace:
            path.write_bytes(b"before")
        try:
            write_answer(scan(layout.root), path, replace=replace, files=StoppingFiles(at))
            survived = True
        except StoppedError:
            is_before = path.read_bytes() == b"before" if path.exists() else not replace
            assert is_before or pq.read_table(path).num_rows == 1
        if survived:
            break
    assert survived
    assert at > 3
    assert pq.read_table(path).num_rows == 1


def test_a_filename_is_matched_exactly_or_as_a_pattern(layout: Layout) -> None:
    every = ["orders.csv", "orders-csv", "a b.csv", "x[1].txt", "^", "line\nend"]
    layout.write(*(record(f"did-{at}", filename=name) for at, name in enumerate(every)))
    for pattern, names in (
        ("orders.csv", ["orders.csv"]),
        ("orders?csv", ["orders-csv", "orders.csv"]),
        ("*.csv", ["a b.csv", "orders.csv"]),
        ("x[1].txt", ["x[1].txt"]),
        ("x[?]*", ["x[1].txt"]),
        ("[ao]*", []),
        ("line*end", ["line\nend"]),
        ("orders", []),
        ("^[", []),
    ):
        assert sorted(one.filename for one in find(layout.root, Query(filename=pattern))) == names, pattern


def test_an_empty_root_answers_with_nothing(root: Path) -> None:
    root.mkdir(exist_ok=True)
    assert find(root) == []
    assert find(root, Query(system_name="../..")) == []


@pytest.mark.parametrize("where", ["raw", "compacted"])
@pytest.mark.parametrize("how", ["cut short", "a folder"])
def test_an_answer_that_lacks_a_files_records_is_an_error_that_names_it(
    layout: Layout, where: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    layout.add(record("good", at_ms=HOUR_MS))
    layout.write(record("bad"))
    if where == "compacted":
        layout.compactor().compact()
    bad = layout.raw()[0] if where == "raw" else layout.compacted()[0]
    data = bad.read_bytes()
    bad.unlink()
    if how == "a folder":
        bad.mkdir()  # it opens, and cannot be read
    else:
        bad.write_bytes(data[:100])
    found: list[str] = []
    with pytest.raises(IncompleteError) as raised:
        for table in scan(layout.root):
            found += table["did"].to_pylist()
    assert found == ["good"]
    (sentence,) = raised.value.unread
    assert str(bad) in sentence
    assert sentence in str(raised.value)
    assert sentence in caplog.text
    assert pickle.loads(pickle.dumps(raised.value)).unread == raised.value.unread
    # An hour that was not queried, or comes after enough newer records, lacks nothing.
    assert [one.did for one in find(layout.root, Query(since_ms=START_MS + HOUR_MS))] == ["good"]
    assert [one.did for one in find(layout.root, Query(limit=1))] == ["good"]
    with pytest.raises(IncompleteError):
        find(layout.root, Query(limit=2))
    with pytest.raises(IncompleteError):
        list(compare(layout.root, layout.root))


def test_a_raw_file_that_vanishes_before_it_is_read_is_looked_for_in_the_compacted_files(
    tmp_path: Path,
) -> None:
    layout, later = Layout(tmp_path / "root"), Layout(tmp_path / "later")
    later.add(record("a"))
    # Listed but missing: a reader sees this when a raw file is removed in between.
    gone = layout.root / f"provenance/raw/20260101/00/{NODE}-1-10.parquet"
    gone.parent.mkdir(parents=True)
    gone.symlink_to(tmp_path / "nowhere")
    found: list[ProvenanceRecord] = []
    reader = threading.Thread(target=lambda: found.extend(find(layout.root)))
    reader.start()
    time.sleep(0.2)
    shutil.copytree(later.root / "provenance/compacted", layout.root / "provenance/compacted")
    gone.unlink()
    reader.join()
    assert found == [record("a")]


def test_the_next_question_knows_what_a_new_compacted_file_covers(layout: Layout) -> None:
    layout.add(record("a"))
    wrong = record("run", filename="wrong.csv")
    layout.write(wrong)
    raw_file = layout.raw()[0]
    content = raw_file.read_bytes()
    assert sorted(one.filename for one in find(layout.root)) == ["orders.csv", "wrong.csv"]
    raw = layout.write(record("run", filename="right.csv"))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    raw_file.parent.mkdir(parents=True)
    raw_file.write_bytes(content)
    assert sorted(one.filename for one in find(layout.root)) == ["orders.csv", "right.csv"]


def test_each_record_is_seen_once_at_any_moment_while_hours_are_compacted(layout: Layout) -> None:
    written = threading.Event()
    seen: list[list[str]] = []

    def look() -> None:
        while not written.is_set():
            seen.append([one.did for one in find(layout.root)])

    reader = threading.Thread(target=look)
    layout.write(record("00"))
    reader.start()
    try:
        for at in range(1, 16):
            layout.add(record(f"{at:02}", at_ms=at), record(f"{at:02}-other", system_name="core", at_ms=at))
    finally:
        written.set()
        reader.join()
    assert len(seen) > 5
    for before, dids in zip([[], *seen], seen, strict=False):
        assert len(dids) == len(set(dids))
        assert set(before) <= set(dids)


def test_an_hour_of_more_files_than_may_be_open_is_read_whole(layout: Layout) -> None:
    layout.add(*(record(f"compacted-{at}", system_name=f"system-{at}") for at in range(40)))
    for at in range(40):
        layout.write(record(f"raw-{at}", at_ms=at))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 16, limits[1]))
    try:
        found = find(layout.root)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(found) == 80


def test_a_file_that_cannot_be_opened_is_no_empty_file(layout: Layout) -> None:
    layout.write(record("a"))
    assert len(find(layout.root)) == 1  # all that is loaded late is loaded
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises((IncompleteError, OSError)):
            find(layout.root)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_folder_that_cannot_be_read_is_not_empty() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other users
        layout = Layout(Path(folder))
        layout.write(record("a"))
        for path in (layout.root, *layout.root.rglob("*")):
            path.chmod(0o755)
        assert len(find(layout.root)) == 1  # all that is loaded late is loaded
        with without_rights():
            assert len(find(layout.root)) == 1
        (layout.root / "provenance/raw").chmod(0)
        with without_rights(), pytest.raises(PermissionError):
            find(layout.root)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hours", [1, 1_000], ids=["one-hour", "an-hour-each"])
def test_files_of_many_systems_are_read_in_time_that_grows_as_they_do(tmp_path: Path, hours: int) -> None:
    def prepare(count: int) -> Callable[[], object]:
        root = tmp_path / str(count)
        for at in range(count):
            one = record(system_name=f"system-{at}", at_ms=at % hours * HOUR_MS)
            path = root / compacted_path(one.system_name, hour_of(one.completed))
            path.parent.mkdir(parents=True)
            path.write_bytes(parquet.encode(to_table([one]), parquet.COMPACTED_FILTERS))
        assert sum(table.num_rows for table in scan(root, columns=("system_name",))) == count
        return lambda: list(scan(root, columns=("system_name",)))

    check_linear(prepare, 100)


def test_an_hour_that_is_compacted_while_newer_ones_are_read_is_found(layout: Layout) -> None:
    layout.write(record("old"), record("new", at_ms=HOUR_MS))
    tables = scan(layout.root)
    found = next(tables)["did"].to_pylist()
    layout.compactor().compact()
    assert [*found, *(did for table in tables for did in table["did"].to_pylist())] == ["new", "old"]


def test_a_file_that_comes_back_from_the_quarantine_while_newer_ones_are_read_is_found(
    layout: Layout,
) -> None:
    layout.add(record("old"), record("new", at_ms=HOUR_MS))
    file = layout.compacted()[0]
    data = file.read_bytes()
    place = PurePosixPath(file.relative_to(layout.root))
    aside = quarantine(layout.root, place, hour_of(START_MS), data, reason="a test", files=layout.files)
    tables = scan(layout.root)
    found = next(tables)["did"].to_pylist()
    file.write_bytes(data)
    note_restored(layout.root, [aside.kept], layout.files)
    assert [*found, *(did for table in tables for did in table["did"].to_pylist())] == ["new", "old"]


def test_tables_are_of_bounded_size_once_their_texts_are_written_out(layout: Layout) -> None:
    shared = "x" * 900_000
    wanted = [record(f"did-{at:02}", transforms=(shared, str(at % 3))) for at in range(24)]
    wanted += [record("same", at_ms=1, transforms=(shared, str(at))) for at in range(24)]
    layout.add(*wanted[::2])
    layout.write(*wanted[1::2], *wanted[:3])
    tables = list(scan(layout.root))
    assert max(table.nbytes for table in tables) < 17 * 2**20
    assert merge_all(one for table in tables for one in from_table(table)) == merge_all(wanted)
    assert sum(table.num_rows for table in tables) == 48
    some = list(scan(layout.root, columns=("completed", "system_name")))
    assert {tuple(table.column_names) for table in some} == {("completed", "system_name")}
    assert sum(table.num_rows for table in some) == 48
    dids = [did for table in tables for did in table["did"].to_pylist()]
    assert dids == sorted(dids, reverse=True)


@pytest.mark.parametrize("connect", ["connect", "connect_alone"])
def test_a_program_that_is_given_as_text_prints_no_progress_of_a_query(connect: str) -> None:
    """DuckDB draws it there by default, see ``findings/duckdb-progress-in-output.sh``."""
    asks = "connect().execute(\"SELECT current_setting('enable_progress_bar')\").fetchone()"
    program = f"from waybill.exporter.query import {connect} as connect; print({asks})"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert printed.stdout == "(False,)\n"
