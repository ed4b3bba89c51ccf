"""The proof behind a record, over a home with a live layout and an archive."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest
from growth import check_linear
from layouts import START_MS, event

from waybill.exporter import Compactor, Wanted, explain
from waybill.exporter.archive import Archive
from waybill.exporter.compaction import RawWriter
from waybill.exporter.layout import Layout as Projection
from waybill.exporter.names import RawName
from waybill.exporter.sources import EventsSource, JournalSource, LinesSource, Source
from waybill.facets import FinalState, RunEvent, decode_event, fold
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from waybill.exporter.verification import Explanation

WANTED = Wanted(system_name="tests")


def work(journal: Journal, settings: Settings, *bodies: bytes, kind: Kind = Kind.OPENLINEAGE) -> None:
    """Keep these entries, and flush the layout and the archive."""
    journal.append_many((kind, body, "") for body in bodies)
    mark = journal.mark(b"flush")
    layout, archive = Projection(journal, settings, workers=1), Archive(journal, settings)
    while journal.cursor("layout") < mark:
        assert layout.step().problem is None
    while journal.cursor("archive") < mark:
        assert archive.step().problem is None


def explained(did: str, settings: Settings) -> Explanation:
    sources: list[Source] = [EventsSource(settings.root), JournalSource(settings.home)]
    return explain(did, sources, settings.root, WANTED)


def test_all_files_that_one_was_joined_from_are_shown(journal: Journal, settings: Settings) -> None:
    upstream = [{"job": {"namespace": "edge", "name": "in"}, "run": {"runId": name}} for name in ("p", "q")]
    file = {"did": "r", "parentDid": "p", "filename": "day.csv"}
    facets = {"waybill_deltaFile": file, "jobDependencies": {"upstream": upstream}}
    work(journal, settings, event("r", "COMPLETE", 5, facets=facets), event("s", "COMPLETE", 6))
    found = explained("r", settings)
    assert (found.parents, [row.record.parent_did for row in found.rows]) == (("p", "q"), ["p"])
    assert explained("s", settings).parents == ()


def test_a_derived_record_is_followed_event_by_event_to_its_row(journal: Journal, settings: Settings) -> None:
    work(
        journal,
        settings,
        event("r", "FAIL", 9, facets={"errorMessage": {"message": "no header"}}),
        event(
            "other",
            "COMPLETE",
            3,
            facets={"parent": {"run": {"runId": "r"}, "job": {"namespace": "", "name": ""}}},
        ),
        event("r", "START", 1, inputs=[{"namespace": "file", "name": "in/a.csv"}]),
        event("r", "COMPLETE", 5),
    )
    found = explained("r", settings)
    assert [(step.event_type, step.changed) for step in found.steps] == [
        ("START", ("created", "first_input")),
        ("COMPLETE", ("ending",)),
        ("FAIL", ("ending", "cause")),
    ]
    assert [[one.final_state for one in step.records] for step in found.steps] == [
        [],
        [FinalState.COMPLETE],
        [FinalState.ERROR],
    ]
    assert [len(step.places) for step in found.steps] == [2, 2, 2], "in the archive and in the journal"
    assert found.steps[0].places[1] == f"entry 3 of the journal at {settings.home}"
    assert [json.loads(step.body)["eventType"] for step in found.steps] == ["START", "COMPLETE", "FAIL"]
    assert [step.receipts for step in found.steps] == [(f"{journal.node}-{seq}",) for seq in (3, 4, 1)]
    (row,) = found.rows
    assert (row.record,) == found.records == tuple(r for r in find(settings.root) if r.did == "r")
    assert (row.file.startswith("provenance/compacted/edge/"), row.as_folded, found.is_proven) == (
        True,
        True,
        True,
    )
    table = pq.ParquetFile(settings.root / row.file).read()
    assert table["did"][row.row].as_py() == "r"


def test_each_attempt_of_a_run_that_was_begun_again_is_a_step(journal: Journal, settings: Settings) -> None:
    work(journal, settings, event("r", "START", 1), event("r", "FAIL", 5))
    (row,) = explained("r", settings).rows
    assert row.record.final_state == FinalState.ERROR
    work(journal, settings, event("r", "START", 10), event("r", "COMPLETE", 19))
    found = explained("r", settings)
    assert [(step.event_type, step.changed) for step in found.steps] == [
        ("START", ("created",)),
        ("FAIL", ("ending",)),
        ("START", ("begun again",)),
        ("COMPLETE", ("ending",)),
    ]
    assert [[one.final_state for one in step.records] for step in found.steps] == [
        [],
        [FinalState.ERROR],
        [FinalState.ERROR],
        [FinalState.COMPLETE],
    ]
    (row,) = found.rows
    assert (row.record.final_state, row.as_folded, found.is_proven) == (FinalState.COMPLETE, True, True)


def test_one_run_id_in_two_job_namespaces_is_explained_as_two_runs(
    journal: Journal, settings: Settings
) -> None:
    both = [("ns", "COMPLETE"), ("other", "FAIL")]
    told = [(json.loads(event("r", kind, 1)), {"namespace": name, "name": "j"}) for name, kind in both]
    work(journal, settings, *(json.dumps({**one, "job": job}).encode() for one, job in told))
    found = explained("r", settings)
    assert [(step.namespace, len(step.records)) for step in found.steps] == [("ns", 1), ("other", 1)]
    assert {(row.record.system_name, row.record.final_state) for row in found.rows} == {
        ("ns", FinalState.COMPLETE),
        ("other", FinalState.ERROR),
    }
    assert found.is_proven


def test_a_step_that_was_inferred_says_from_what(journal: Journal, settings: Settings) -> None:
    gone = {"waybill_inferred": {"reason": "the program that ran it is gone"}}
    work(journal, settings, event("r", "START", 1), event("r", "ABORT", 5, facets=gone))
    found = explained("r", settings)
    assert [step.inferred for step in found.steps] == [None, "the program that ran it is gone"]
    (row,) = found.rows
    assert row.record.annotations == {"waybill.evidence": "inferred: the program that ran it is gone"}
    assert found.is_proven


@pytest.mark.parametrize(
    "facets",
    [
        {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", "did": 'dä"1'}},
        {"tags": {"tags": [{"key": "waybill_did", "value": 'dä"1'}]}},
    ],
)
def test_a_file_that_its_run_is_not_named_after_is_found_with_all_of_the_runs_events(
    journal: Journal, settings: Settings, facets: dict[str, object]
) -> None:
    work(journal, settings, event("run-7", "START", 1), event("run-7", "COMPLETE", 2, facets=facets))
    found = explained('dä"1', settings)
    assert [step.event_type for step in found.steps] == ["START", "COMPLETE"]
    assert found.is_proven
    assert len(found.rows) == 1
    # The run itself has no record, and that is proven too.
    assert explained("run-7", settings).rows == ()


def test_records_that_came_as_they_are_are_their_own_proof(journal: Journal, settings: Settings) -> None:
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    work(journal, settings, json.dumps([record, {**record, "did": "e"}]).encode(), kind=Kind.PROVENANCE)
    found = explained("d", settings)
    assert [(step.event_type, step.changed) for step in found.steps] == [(None, ("records",))]
    assert found.is_proven
    assert [row.record.system_name for row in found.rows] == ["tests"]
    assert json.loads(found.steps[0].body) == [record], "and not those of other files"


def test_an_array_that_only_names_a_file_as_a_parent_is_none_of_its_steps(
    journal: Journal, settings: Settings
) -> None:
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    child = {**record, "did": "e", "parentDid": "d"}
    for one in (record, child):
        work(journal, settings, json.dumps([one]).encode(), kind=Kind.PROVENANCE)
    assert [step.receipts for step in explained("d", settings).steps] == [(f"{journal.node}-1",)]


def test_a_row_that_no_event_says_is_not_proven(journal: Journal, settings: Settings) -> None:
    work(journal, settings, event("r", "COMPLETE", 5))
    (record,) = find(settings.root)
    forged = msgspec.structs.replace(record, filename="another", data_sink="elsewhere")
    RawWriter(settings.root).write(RawName("f0", 1, 1), [forged])
    Compactor(settings.root).compact()
    found = explained("r", settings)
    assert [row.as_folded for row in found.rows] == [True, False]
    assert not found.is_proven


def test_a_record_that_no_row_says_is_not_proven(journal: Journal, settings: Settings) -> None:
    work(journal, settings, event("r", "COMPLETE", 5))
    for path in (settings.root / "provenance/compacted").rglob("*.parquet"):
        path.unlink()
    found = explained("r", settings)
    assert (len(found.records), found.rows, found.is_proven) == (1, (), False)


def test_a_row_is_found_though_a_compaction_takes_its_raw_file_meanwhile(
    journal: Journal, settings: Settings, tmp_path: Path
) -> None:
    work(journal, settings, event("r", "COMPLETE", 5))
    compacted, aside = settings.root / "provenance/compacted", tmp_path / "aside"
    compacted.rename(aside)
    # Listed but missing: a reader sees this when a raw file is removed in between.
    gone = settings.root / "provenance/raw/20260101/00/aa-1-10.parquet"
    gone.parent.mkdir(parents=True)
    gone.symlink_to(tmp_path / "nowhere")
    found: list[Explanation] = []
    reader = threading.Thread(target=lambda: found.append(explained("r", settings)))
    reader.start()
    reader.join(0.5)
    aside.rename(compacted)
    gone.unlink()
    reader.join()
    assert found[0].is_proven


def test_of_a_file_that_is_nowhere_nothing_is_known(
    journal: Journal, settings: Settings, tmp_path: Path
) -> None:
    work(journal, settings, event("r", "COMPLETE", 5))
    found = explain("none", [EventsSource(settings.root)], tmp_path / "nowhere", WANTED)
    assert (found.steps, found.records, found.rows) == ((), (), ())


def _many_outputs(count: int) -> list[bytes]:
    outputs = [{"namespace": "s3", "name": f"out-{at}"} for at in range(count)]
    return [event("r", "START", 1), event("r", "COMPLETE", 2, outputs=outputs)]


def _an_output_each(count: int) -> list[bytes]:
    names = (f"out-{at}" for at in range(count))
    late = [
        event("r", "RUNNING", at + 9, outputs=[{"namespace": "s3", "name": name}])
        for at, name in enumerate(names)
    ]
    return [event("r", "COMPLETE", 2), *late]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("events", "count"), [(_many_outputs, 3_000), (_an_output_each, 1_500)])
def test_a_file_of_many_outputs_is_explained_in_time_that_grows_as_they_do(
    tmp_path: Path, events: Callable[[int], list[bytes]], count: int
) -> None:
    def prepare(number: int) -> Callable[[], object]:
        bodies = events(number)
        decoded = [one for body in bodies if isinstance(one := decode_event(body), RunEvent)]
        records = fold(decoded, system_name="tests")
        root = tmp_path / str(number)
        RawWriter(root).write(RawName("a0", 1, 1), records)
        (tmp_path / f"{number}.jsonl").write_bytes(b"\n".join(bodies))
        source = LinesSource((tmp_path / f"{number}.jsonl",))
        found = explain("r", [source], root, WANTED)
        assert (len(found.records), len(found.rows)) == (number, number)
        assert found.is_proven
        assert [len(step.records) for step in found.steps[:1]] == [0 if events is _many_outputs else 1]
        return lambda: explain("r", [source], root, WANTED)

    check_linear(prepare, count)
