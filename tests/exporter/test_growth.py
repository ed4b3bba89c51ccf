"""The layout's work is proportional to its input, and its memory and rows stay small."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from growth import check_linear
from layouts import HOUR_MS, NODE, START_MS, Layout, event, facet, in_order, record
from sites import Site, folded

from waybill.exporter import Compactor
from waybill.exporter.archive import read_entries, read_run_ids
from waybill.exporter.archive.files import ArchivedEntry, encode_entries
from waybill.exporter.compaction import RawWriter
from waybill.exporter.layout.runs import Run, UnsettledRuns
from waybill.exporter.names import RawName, events_folder, hour_of
from waybill.exporter.parquet import (
    CODED_SCHEMA,
    Room,
    code,
    encode,
    in_windows,
    join,
    merge_table,
    open_bytes,
    read_window,
    spans,
)
from waybill.facets import FinalState, ProvenanceRecord, RunEvent, decode_event, merge_all
from waybill.facets.arrow import from_table, to_table, to_tables
from waybill.transport import Journal, Kind, Settings
from waybill.transport.journal import Entry, key_of_run


@pytest.fixture
def site(settings: Settings) -> Site:
    return Site(settings, names=("layout",))


def outputs(*names: str) -> list[dict[str, str]]:
    return [{"namespace": "o", "name": name} for name in names]


# -- the rows of the state ---------------------------------------------------------------------------------


def test_a_run_without_room_gets_no_further_outputs_and_ends_with_those_that_it_has(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waybill.exporter.layout.runs._RUN_BYTES_MAX", 20_000)
    many = [outputs(*(f"{at}-{n}-" + "x" * 200 for n in range(40))) for at in range(3)]
    bodies = [event("r", "RUNNING", at, outputs=one) for at, one in enumerate(many)]
    for body in (*bodies, event("r", "COMPLETE", 5), event("neighbour", "COMPLETE", 6)):
        site.emit(body)
        site.work()
    site.flush()
    refused = site.journal.poison.all()
    assert [one.seq for one in refused] == [3]
    assert "its run already has too many outputs" in refused[0].reason
    kept = [*bodies[:2], event("r", "COMPLETE", 5), event("neighbour", "COMPLETE", 6)]
    assert in_order(site.rows()) == in_order(folded(*kept))


def test_a_run_that_is_stored_in_parts_takes_back_what_was_written(site: Site) -> None:
    many = [outputs(*(f"{at}-{n}-" + "x" * 200 for n in range(40))) for at in range(8)]
    bodies = [event("r", "RUNNING", 1, outputs=one) for one in many[:4]]
    bodies += [event("r", "COMPLETE", 5), event("r", "RUNNING", 2, outputs=many[4])]
    for body in bodies:
        site.emit(body)
        site.work()
    site.flush()
    site.check()
    for body in (*(event("r", "RUNNING", 3, outputs=one) for one in many[5:]), event("r", "FAIL", 4)):
        site.tell(body)
        site.restart()
        site.check()
    assert len(site.journal.state("layout", "part:")) <= 4


def test_a_run_that_settles_again_and_again_stays_in_few_parts(site: Site) -> None:
    bodies = [event("r", "COMPLETE", 5)]
    bodies += [event("r", "RUNNING", 1, outputs=outputs(f"{at}-" + "x" * 200)) for at in range(12)]
    for body in bodies:
        site.emit(body)
        site.work()
        site.flush()
    site.check()
    (row,) = site.journal.state("layout", "run:").values()
    assert len(msgspec.msgpack.decode(row, type=Run).parts) <= 6


def test_a_facet_removes_the_parts_of_its_run(site: Site) -> None:
    site.tell(event("r", "COMPLETE", 5, outputs=outputs(*(f"{n}" + "x" * 200 for n in range(40)))))
    assert site.journal.state("layout", "part:")
    site.tell(event("r", "COMPLETE", 6, facets=facet(did="d", dataSource="in")))
    assert site.journal.state("layout", "part:") == {}
    assert [row.did for row in site.rows()] == ["d"]


# -- growth ------------------------------------------------------------------------------------------------


class Late:
    """Folds the late failures of runs beside an archive whose entries were not folded."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self.journal = journal
        self.runs = UnsettledRuns(journal, settings, settle_ms=1)
        self.seq = 10_000

    def fail(self, run_ids: Iterable[str], at_ms: int) -> set[str]:
        """Fold them as one batch; return the runs whose earlier records are taken back."""
        for run_id in run_ids:
            body = decode_event(event(run_id, "FAIL", 9))
            assert isinstance(body, RunEvent)
            self.runs.add_event(body, system_name="s", received_ms=at_ms)
        self.runs.settle_all()
        batch = self.runs.finish(RawName(self.journal.node, self.seq, self.seq), at_ms)
        assert list(batch.records)
        self.journal.commit("layout", put=batch.put, delete=batch.delete)
        self.seq += 1
        return {did for _, did, *_ in batch.retracted}


def _an_output_each(number: int) -> list[list[bytes]]:
    """A run with another output in each of so many events."""
    return [[event("r", "COMPLETE", 1, outputs=outputs(f"out-{at}")) for at in range(number)]]


def _a_late_failure(number: int) -> list[list[bytes]]:
    """A run of so many outputs that were written when it turns out to have failed."""
    ended = event("r", "COMPLETE", 5, outputs=outputs(*(f"out-{at}" for at in range(number))))
    return [[ended], [event("r", "FAIL", 4)]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batches_of", [_an_output_each, _a_late_failure])
def test_a_run_of_many_outputs_takes_time_as_their_number(
    journal: Journal, settings: Settings, batches_of: Callable[[int], list[list[bytes]]]
) -> None:
    def work(number: int) -> None:
        runs = UnsettledRuns(journal, settings, settle_ms=1)
        for bodies in batches_of(number):
            for body in map(decode_event, bodies):
                assert isinstance(body, RunEvent)
                runs.add_event(body, system_name="s", received_ms=START_MS)
            runs.settle_all()
            batch = runs.finish(RawName(NODE, 1, 1), START_MS)
            assert sum(1 for _ in batch.records) == number
            journal.commit("layout", put=batch.put, delete=batch.delete)
        journal.commit("layout", delete=journal.state("layout"))

    check_linear(lambda number: partial(work, number), 500)


def test_what_a_batch_stores_of_a_run_does_not_grow_with_what_the_run_has_said(site: Site) -> None:
    stored_bytes = 0
    commit = site.journal.commit

    def counted(projection: str, **given: object) -> None:
        nonlocal stored_bytes
        put = given.get("put") or {}
        assert isinstance(put, dict)
        stored_bytes += sum(len(value) for value in put.values())
        commit(projection, **given)  # type: ignore[arg-type]

    site.journal.commit = counted  # type: ignore[method-assign]
    said_bytes = 0
    for at in range(60):
        body = event("r", "RUNNING", 1, outputs=outputs(*(f"{at}-{n}-" + "x" * 100 for n in range(50))))
        said_bytes += len(body)
        site.emit(body)
        site.work()
    # Each is stored once, and merged again each time the number doubles.
    assert stored_bytes < 4 * said_bytes


class Archived:
    """An archive of this many files, an hour apart."""

    def __init__(self, root: Path, files: int, node: str) -> None:
        self.runs: list[str] = []
        for at in range(files):
            arrived_ms = START_MS + at * HOUR_MS
            runs = [str(uuid.uuid4()) for _ in range(20)]
            entries = [
                Entry(at * 20 + n + 1, arrived_ms, Kind.OPENLINEAGE, "", event(run, "COMPLETE", 5))
                for n, run in enumerate(runs)
            ]
            folder = root / events_folder(hour_of(arrived_ms))
            folder.mkdir(parents=True)
            name = RawName(node, entries[0].seq, entries[-1].seq)
            (folder / str(name)).write_bytes(
                encode_entries(node, list(map(ArchivedEntry.of, entries)), None)[0]
            )
            self.runs += runs
        self.forgotten_ms = START_MS + (files + 24 * 7) * HOUR_MS


def test_of_runs_that_the_archive_holds_only_the_row_groups_with_them_are_read(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = Archived(settings.root, 20, journal.node)
    late = Late(journal, settings)
    columns: list[list[str]] = []
    groups: list[int] = []
    read_row_group, iter_batches = pq.ParquetFile.read_row_group, pq.ParquetFile.iter_batches

    def note_columns(file: pq.ParquetFile, group: int, read: list[str]) -> pa.Table:
        columns.append(read)
        return read_row_group(file, group, read)

    def note_groups(file: pq.ParquetFile, size: int, *, row_groups: list[int], **named: object) -> object:
        groups.extend(row_groups)
        return iter_batches(file, size, row_groups=row_groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", note_columns)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", note_groups)
    assert late.fail((str(uuid.uuid4()) for _ in range(10)), archived.forgotten_ms) == set()
    assert (columns, groups) == ([], [])
    wanted = archived.runs[::79]
    assert late.fail(wanted, archived.forgotten_ms) == set(wanted)
    assert columns == [["run_id"]] * 20
    assert len(groups) == len(wanted)


def test_a_run_is_looked_for_in_no_file_from_before_it_began(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = Archived(settings.root, 10, journal.node)
    began_ms = START_MS + 32 * HOUR_MS
    run = str(uuid.UUID(int=(began_ms << 80) | (7 << 76) | (2 << 62)))
    late = Late(journal, settings)
    journal.commit("layout", put={f"run:{key_of_run(run)}": msgspec.msgpack.encode(Run(1))})
    opened: list[Path] = []

    def note(path: Path, **_: object) -> tuple[()]:
        opened.append(path)
        return ()

    monkeypatch.setattr("waybill.exporter.sources.events.read_entries", note)
    late.fail([run], archived.forgotten_ms)
    assert len(opened) == 2  # a clock may be a day ahead


def test_a_long_backfill_opens_each_file_that_the_state_says_nothing_of_once(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = Archived(settings.root, 50, journal.node)
    opened: Counter[Path] = Counter()
    for room, read in (("sources.events", read_entries), ("layout.forgotten_runs", read_run_ids)):

        def note(path: Path, read: Callable[..., object] = read, **given: object) -> object:
            opened[path] += 1
            return read(path, **given)

        monkeypatch.setattr(f"waybill.exporter.{room}.{read.__name__}", note)
    late = Late(journal, settings)
    for _ in range(40):
        assert late.fail((str(uuid.uuid4()) for _ in range(100)), archived.forgotten_ms) == set()
    assert len(opened) == 50
    assert max(opened.values()) == 1
    wanted = archived.runs[::79]
    assert late.fail(wanted, archived.forgotten_ms) == set(wanted)


# -- memory ------------------------------------------------------------------------------------------------


def test_records_that_share_long_texts_become_tables_of_bounded_size() -> None:
    records = [record(f"d{at}", filename="f" * 10_000) for at in range(100)]
    tables = list(to_tables(records, size_bytes=100_000))
    assert max(table.nbytes for table in tables) < 130_000
    assert [one for table in tables for one in from_table(table)] == records


def test_rows_that_are_too_many_for_memory_make_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [record(f"d{at}", at_ms=at * HOUR_MS // 8, system_name=f"s{at % 2}") for at in range(40)]
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    hours = RawWriter(whole).write(RawName(NODE, 1, 40), records)
    monkeypatch.setattr("waybill.exporter.compaction.raw.HELD_BYTES_MAX", 1_000)
    tables = [to_table(records[at : at + 7]) for at in range(0, 40, 7)]
    assert RawWriter(pieces).write_tables(RawName(NODE, 1, 40), tables) == hours
    layouts = Layout(whole), Layout(pieces)
    assert len(layouts[0].raw()) == len(layouts[1].raw()) == 5
    for layout in layouts:
        Compactor(layout.root).compact()
        assert in_order(layout.rows()) == in_order(records)
    assert [path for path in pieces.iterdir() if path.is_file()] == []


BIG: Final = "t" * 50_000


@pytest.mark.parametrize(
    "records",
    [
        [record(f"d{at}", at_ms=at, transforms=(BIG,)) for at in range(60)],
        [record(f"d{at:02}", transforms=(BIG,)) for at in range(60)],
        [record("d", data_sink=f"{at:02}" + BIG, system_name=BIG) for at in range(60)],
        [
            record("d", data_sink=None if at % 2 else f"{at:02}", filename=BIG[:20_000], at_ms=at // 30)
            for at in range(60)
        ],
    ],
    ids=["instants", "files", "sinks", "sinks-and-none"],
)
def test_windows_are_cut_by_the_memory_that_they_take(records: list[ProvenanceRecord]) -> None:
    room_bytes = 512_000
    file = open_bytes(encode(to_table(records), {}))
    taken: list[int] = []

    def read(room: Room) -> pa.Table:
        table = read_window(file, room)
        taken.append(table.nbytes)
        return table

    merged = [
        merge_table(join([table])) for table in in_windows(spans(file.metadata), room_bytes // 512, read)
    ]
    assert max(taken) <= room_bytes
    found = [one for table in merged for one in from_table(table)]
    assert merge_all(found) == merge_all(records)
    places = [(one.completed, one.did) for one in found]
    assert places == sorted(places)


def test_a_row_group_is_bounded_by_what_its_rows_take_without_a_dictionary() -> None:
    records = [record(f"d{at}", data_sink=f"{at % 2}" * 2**19) for at in range(64)]
    table = code(to_table(records))
    assert table.schema.equals(CODED_SCHEMA)
    file = open_bytes(encode(table, {}))
    assert file.num_row_groups >= 4
    assert [
        one for at in range(file.num_row_groups) for one in from_table(file.read_row_group(at))
    ] == records


def test_repeats_of_rows_that_share_long_texts_are_merged_as_records_are() -> None:
    records = [
        record("d", data_sink=sink, system_name=system, final_state=state, filename=name)
        for sink in (None, "", "b", "a", "ä")
        for system in ("s2", "s1")
        for state in (FinalState.ERROR, FinalState.COMPLETE)
        for name in ("f", "g")
    ]
    merged = from_table(merge_table(join([code(to_table(records[:7])), code(to_table(records[7:]))])))
    assert merged == merge_all(records)


COMPARED: Final = """
import sys
from pathlib import Path
import pyarrow as pa
from waybill.exporter.query import compare

print(*(one.ours.did for one in compare(*map(Path, sys.argv[1:]))), pa.default_memory_pool().max_memory())
"""


@pytest.mark.exhaustive
def test_roots_whose_rows_share_long_texts_are_compared_with_few_of_them_written_out(tmp_path: Path) -> None:
    records = [record(f"d{at:03}", at_ms=at, transforms=("t" * 900_000,)) for at in range(600)]
    ours, theirs = Layout(tmp_path / "ours"), Layout(tmp_path / "theirs")
    ours.write(*records)
    theirs.write(*records[1:])
    for layout in (ours, theirs):
        layout.compactor().compact()
    command = [sys.executable, "-c", COMPARED, str(ours.root), str(theirs.root)]
    did, most_bytes = subprocess.check_output(command, text=True).split()
    assert did == "d000"
    assert int(most_bytes) < 300 * 10**6  # written out, each root has 540 MB
