from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from hypothesis import given, strategies as st
from layouts import (
    FILES,
    HOUR_MS,
    NODE,
    Layout,
    findings,
    in_order,
    record,
    records_strategy,
    split,
    temporaries,
)

from waybill.exporter import check
from waybill.exporter.compaction import Retraction
from waybill.exporter.directory import FileStamp
from waybill.exporter.names import Hour
from waybill.exporter.parquet import WINDOW_ROWS
from waybill.facets import FinalState, ProvenanceRecord, merge_all, record_key

FIRST_HOUR = Hour("20260101", "00")


@FILES
@given(
    st.lists(records_strategy(), max_size=12),
    st.lists(st.integers(0), max_size=4),
    st.sets(st.integers(0, 4)),
    st.sampled_from([(NODE,), (NODE, "ffff")]),
    st.sampled_from([1, 3, WINDOW_ROWS]),
)
def test_any_split_into_raw_files_windows_and_compactions_gives_what_the_merge_gives(
    records: list[ProvenanceRecord],
    cuts: list[int],
    compacted_after: set[int],
    nodes: tuple[str, ...],
    window_rows: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        for at, part in enumerate(split(records, cuts)):
            layout.write(*part, node=nodes[at % len(nodes)])
            if at in compacted_after:
                layout.compactor(window_rows).compact()
            assert findings(layout.root) == []
        layout.compactor(window_rows).compact()
        assert layout.rows() == in_order(merge_all(records))
        assert layout.raw() == []
        checked = list(check(layout.root))
        assert [(one.path, one.findings) for one in checked] == [
            (str(path.relative_to(folder)), ()) for path in layout.compacted()
        ]
        assert sum(one.rows for one in checked) == len(merge_all(records))


def test_an_hour_of_more_systems_than_files_may_be_open_is_compacted_at_once(layout: Layout) -> None:
    for _ in range(2):
        layout.write(*(record(f"did-{at}", system_name=f"system-{at}") for at in range(40)))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 16, limits[1]))
        try:
            report = layout.compactor().compact()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert (len(report.published), report.unreadable, report.failed) == (40, {}, {})
    assert layout.raw() == []


def test_an_hour_is_one_file_for_each_system_and_its_raw_files_go(layout: Layout) -> None:
    layout.write(record("a"), record("b", system_name="core/7"), record("c", at_ms=HOUR_MS))
    report = layout.compactor().compact()
    assert report.published == (
        "provenance/compacted/core%2F7/20260101/00.parquet",
        "provenance/compacted/edge/20260101/00.parquet",
        "provenance/compacted/edge/20260101/01.parquet",
    )
    assert [str(path.relative_to(layout.root)) for path in layout.compacted()] == list(report.published)
    assert not (layout.root / "provenance/raw/20260101/00").exists()


def test_only_the_hours_asked_for_are_compacted(layout: Layout) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    assert layout.compactor().compact([FIRST_HOUR]).published == (
        "provenance/compacted/edge/20260101/00.parquet",
    )
    assert len(layout.raw()) == 1


def test_an_hour_with_nothing_new_is_not_written_again(layout: Layout) -> None:
    layout.add(record())
    before = FileStamp.of(layout.compacted()[0].stat())
    assert layout.compactor().compact([FIRST_HOUR]).published == ()
    assert FileStamp.of(layout.compacted()[0].stat()) == before


def test_the_footer_lists_the_ranges_of_each_node_joined_where_they_meet(layout: Layout) -> None:
    layout.write(record("a"))
    layout.write(record("b"), node="ffff")
    layout.add(record("c"))
    layout.write(at := record("d", at_ms=HOUR_MS))
    layout.add(record("e"))
    assert at.completed
    first, second = (pq.read_metadata(path).metadata for path in layout.compacted())
    assert json.loads(first[b"waybill.covers"]) == {NODE: [[1, 20], [31, 40]], "ffff": [[1, 10]]}
    assert json.loads(second[b"waybill.covers"]) == {NODE: [[21, 30]]}


def test_duckdb_reads_exactly_the_promised_schema(layout: Layout) -> None:
    layout.add(record(annotations={"k": "v"}))
    relation = duckdb.read_parquet(f"{layout.root}/provenance/compacted/*/*/*.parquet")
    assert dict(zip(relation.columns, map(str, relation.types), strict=True)) == {
        "did": "VARCHAR",
        "parent_did": "VARCHAR",
        "system_name": "VARCHAR",
        "data_source": "VARCHAR",
        "filename": "VARCHAR",
        "transforms": "VARCHAR[]",
        "data_sink": "VARCHAR",
        "final_state": "VARCHAR",
        "created": "TIMESTAMP WITH TIME ZONE",
        "completed": "TIMESTAMP WITH TIME ZONE",
        "annotations": "MAP(VARCHAR, VARCHAR)",
    }
    assert relation.select("did, annotations['k'], epoch_ms(completed)").fetchall() == [
        ("did-1", "v", record().completed)
    ]
    columns = pq.ParquetFile(layout.compacted()[0]).schema
    required = {"did", "system_name", "data_source", "filename", "final_state", "created", "completed"}
    assert {
        columns.column(at).name for at in range(len(columns)) if columns.column(at).max_definition_level == 0
    } == required


# -- disks -------------------------------------------------------------------------------------------------


def test_an_hour_that_cannot_be_written_is_told_and_the_others_are_done(layout: Layout) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    blocked = layout.root / "provenance/compacted/edge/20260101/00.parquet"
    blocked.mkdir(parents=True)
    (blocked / "in the way").touch()
    report = layout.compactor().compact()
    assert not report.failed
    assert list(report.unreadable) == [FIRST_HOUR]
    assert report.published == ("provenance/compacted/edge/20260101/01.parquet",)


# -- crashes -----------------------------------------------------------------------------------------------


def test_what_a_dead_process_left_unpublished_is_removed_and_other_nodes_files_are_not(
    layout: Layout,
) -> None:
    layout.write(record())
    folder = layout.raw()[0].parent
    ours, theirs = folder / f".{NODE}-1-9.parquet.00.tmp", folder / ".ffff-1-9.parquet.00.tmp"
    ours.touch()
    theirs.touch()
    layout.compactor().compact()
    assert temporaries(layout.root) == [theirs]


WORKER = """
import sys
from pathlib import Path
from waybill.exporter import Compactor
print(len(Compactor(Path(sys.argv[1]), workers=1).compact().published))
"""


def test_compactors_in_several_processes_take_turns_and_do_each_hour_once(layout: Layout) -> None:
    for at in range(6):
        layout.write(*(record(f"did-{at}-{hour}", at_ms=hour * HOUR_MS + at) for hour in range(4)))
    command = [sys.executable, "-c", WORKER, str(layout.root)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(map(int, said)) == 4
    assert len(layout.rows()) == 24
    assert layout.raw() == []
    assert findings(layout.root) == []


# -- retractions -------------------------------------------------------------------------------------------


def test_a_retraction_takes_records_out_of_raw_and_compacted_files_and_spares_its_own_range(
    layout: Layout,
) -> None:
    wrong = record("run", filename="wrong.csv")
    layout.add(record("a"), wrong)
    layout.write(record("b"), wrong)
    raw = layout.write(record("run", filename="right.csv"))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    assert layout.rows() == [record("a"), record("b"), record("run", filename="right.csv")]


def test_an_instant_of_large_rows_stays_in_its_place_among_others(layout: Layout) -> None:
    instant = [record(f"d{at:02}", transforms=("t" * 10_000, str(at))) for at in range(20)]
    others = [record(f"d{at:02}", at_ms=at % 3, transforms=("t" * 10_000, str(at))) for at in range(20)]
    layout.write(*instant)
    layout.write(*others)
    layout.compactor(window_rows=100).compact()
    places = [(row.completed, row.did) for row in layout.rows()]
    assert places == sorted(places)
    assert layout.rows() == merge_all([*instant, *others])
    assert findings(layout.root) == []


def test_a_large_hour_is_compacted_in_windows_and_its_retractions_with_it(layout: Layout) -> None:
    for at in range(10):
        layout.write(*(record(f"did-{at}-{more}", at_ms=at * 1_000 + more) for more in range(10)))
    layout.compactor(window_rows=25).compact()
    file = pq.ParquetFile(layout.compacted()[0])
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [20] * 5
    gone = [record(f"did-{at}-0", at_ms=at * 1_000) for at in range(10)]
    raw = layout.write(record("new", at_ms=500))
    keys = frozenset(map(record_key, gone))
    layout.compactor(window_rows=25).compact(retraction=Retraction(raw, keys))
    dids = [row.did for row in layout.rows()]
    assert len(dids) == 91
    assert dids[9] == "new"
    assert not {one.did for one in gone} & set(dids)


def test_a_raw_file_damaged_in_the_middle_is_set_aside_whole(layout: Layout) -> None:
    layout.write(*(record(f"good-{at}", at_ms=at) for at in range(100)))
    for at in range(3):
        layout.write(*(record(f"bad-{at}-{more}", at_ms=at * 1_000 + more) for more in range(100)))
    bad = layout.raw()[-1]
    data = bytearray(bad.read_bytes())
    data[4:200] = bytes(196)  # its first pages
    bad.write_bytes(data)
    report = layout.compactor(window_rows=150).compact()
    assert [one.path for one in report.aside] == [str(bad.relative_to(layout.root))]
    assert {row.did.rpartition("-")[0] for row in layout.rows()} == {"good", "bad-0", "bad-1"}
    assert layout.raw() == []


def test_a_retraction_that_leaves_nothing_leaves_a_file_without_rows(layout: Layout) -> None:
    wrong = record("run")
    layout.add(wrong)
    raw = layout.write(record("run", at_ms=HOUR_MS, final_state=FinalState.ERROR))
    layout.compactor().compact([], retraction=Retraction(raw, frozenset({record_key(wrong)})))
    [path] = layout.compacted()
    assert pq.ParquetFile(path).metadata.num_rows == 0
    layout.compactor().compact()
    assert layout.rows() == [record("run", at_ms=HOUR_MS, final_state=FinalState.ERROR)]
    assert findings(layout.root) == []
