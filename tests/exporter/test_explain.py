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
from layouts import START_MS, event, facet

from waybill.exporter import Compactor, Wanted, explain
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.exporter.sources import EventsSource, JournalSource, LinesSource, Source
from waybill.facets import FinalState, RunEvent, decode_event, fold
from waybill.lineage import find
from waybill.transport import Kind

if TYPE_CHECKING:
    from sites import Site

    from waybill.exporter.verification import Explanation

WANTED = Wanted(system_name="tests")


def explained(did: str, site: Site) -> Explanation:
    sources: list[Source] = [EventsSource(site.root), JournalSource(site.settings.home)]
    return explain(did, sources, site.root, WANTED)


def test_all_files_that_one_was_joined_from_are_shown(site: Site) -> None:
    upstream = [{"job": {"namespace": "edge", "name": "in"}, "run": {"runId": name}} for name in ("p", "q")]
    file = {"did": "r", "parentDid": "p", "filename": "day.csv"}
    facets = {"waybill_deltaFile": file, "jobDependencies": {"upstream": upstream}}
    site.tell(event("r", "COMPLETE", 5, facets=facets), event("s", "COMPLETE", 6))
    found = explained("r", site)
    assert (found.parents, [row.record.parent_did for row in found.rows]) == (("p", "q"), ["p"])
    assert explained("s", site).parents == ()


def test_a_derived_record_is_followed_event_by_event_to_its_row(site: Site) -> None:
    site.tell(
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
    found = explained("r", site)
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
    assert found.steps[0].places[1] == f"entry 3 of the journal at {site.settings.home}"
    assert [json.loads(step.body)["eventType"] for step in found.steps] == ["START", "COMPLETE", "FAIL"]
    assert [step.receipts for step in found.steps] == [(f"{site.journal.node}-{seq}",) for seq in (3, 4, 1)]
    (row,) = found.rows
    assert (row.record,) == found.records == tuple(r for r in find(site.root) if r.did == "r")
    assert (row.file.startswith("provenance/compacted/edge/"), row.as_folded, found.is_proven) == (
        True,
        True,
        True,
    )
    table = pq.ParquetFile(site.root / row.file).read()
    assert table["did"][row.row].as_py() == "r"


def test_each_attempt_of_a_run_that_was_begun_again_is_a_step(site: Site) -> None:
    site.tell(event("r", "START", 1), event("r", "FAIL", 5))
    (row,) = explained("r", site).rows
    assert row.record.final_state == FinalState.ERROR
    site.tell(event("r", "START", 10), event("r", "COMPLETE", 19))
    found = explained("r", site)
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


def test_one_run_id_in_two_job_namespaces_is_explained_as_two_runs(site: Site) -> None:
    both = [("ns", "COMPLETE"), ("other", "FAIL")]
    told = [(json.loads(event("r", kind, 1)), {"namespace": name, "name": "j"}) for name, kind in both]
    site.tell(*(json.dumps({**one, "job": job}).encode() for one, job in told))
    found = explained("r", site)
    assert [(step.namespace, len(step.records)) for step in found.steps] == [("ns", 1), ("other", 1)]
    assert {(row.record.system_name, row.record.final_state) for row in found.rows} == {
        ("ns", FinalState.COMPLETE),
        ("other", FinalState.ERROR),
    }
    assert found.is_proven


def test_a_step_that_was_inferred_says_from_what(site: Site) -> None:
    gone = {"waybill_inferred": {"reason": "the program that ran it is gone"}}
    site.tell(event("r", "START", 1), event("r", "ABORT", 5, facets=gone))
    found = explained("r", site)
    assert [step.inferred for step in found.steps] == [None, "the program that ran it is gone"]
    (row,) = found.rows
    assert row.record.annotations == {"waybill.evidence": "inferred: the program that ran it is gone"}
    assert found.is_proven


@pytest.mark.parametrize(
    "facets",
    [
        facet(did='dä"1'),
        {"tags": {"tags": [{"key": "waybill_did", "value": 'dä"1'}]}},
    ],
)
def test_a_file_that_its_run_is_not_named_after_is_found_with_all_of_the_runs_events(
    site: Site, facets: dict[str, object]
) -> None:
    site.tell(event("run-7", "START", 1), event("run-7", "COMPLETE", 2, facets=facets))
    found = explained('dä"1', site)
    assert [step.event_type for step in found.steps] == ["START", "COMPLETE"]
    assert found.is_proven
    assert len(found.rows) == 1
    # The run itself has no record, and that is proven too.
    assert explained("run-7", site).rows == ()


def test_records_that_came_as_they_are_are_their_own_proof(site: Site) -> None:
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    site.journal.append(Kind.PROVENANCE, json.dumps([record, {**record, "did": "e"}]).encode())
    site.flush()
    found = explained("d", site)
    assert [(step.event_type, step.changed) for step in found.steps] == [(None, ("records",))]
    assert found.is_proven
    assert [row.record.system_name for row in found.rows] == ["tests"]
    assert json.loads(found.steps[0].body) == [record], "and not those of other files"


def test_an_array_that_only_names_a_file_as_a_parent_is_none_of_its_steps(site: Site) -> None:
    record = {"did": "d", "finalState": "COMPLETE", "created": START_MS, "completed": START_MS + 5}
    child = {**record, "did": "e", "parentDid": "d"}
    for one in (record, child):
        site.journal.append(Kind.PROVENANCE, json.dumps([one]).encode())
        site.flush()
    assert [step.receipts for step in explained("d", site).steps] == [(f"{site.journal.node}-1",)]


def test_a_row_that_no_event_says_is_not_proven(site: Site) -> None:
    site.tell(event("r", "COMPLETE", 5))
    (record,) = find(site.root)
    forged = msgspec.structs.replace(record, filename="another", data_sink="elsewhere")
    RawWriter(site.root).write(RawName("f0", 1, 1), [forged])
    Compactor(site.root).compact()
    found = explained("r", site)
    assert [row.as_folded for row in found.rows] == [True, False]
    assert not found.is_proven


def test_a_record_that_no_row_says_is_not_proven(site: Site) -> None:
    site.tell(event("r", "COMPLETE", 5))
    for path in (site.root / "provenance/compacted").rglob("*.parquet"):
        path.unlink()
    found = explained("r", site)
    assert (len(found.records), found.rows, found.is_proven) == (1, (), False)


def test_a_row_is_found_though_a_compaction_takes_its_raw_file_meanwhile(site: Site, tmp_path: Path) -> None:
    site.tell(event("r", "COMPLETE", 5))
    compacted, aside = site.root / "provenance/compacted", tmp_path / "aside"
    compacted.rename(aside)
    # Listed but missing: a reader sees this when a raw file is removed in between.
    gone = site.root / "provenance/raw/20260101/00/aa-1-10.parquet"
    gone.parent.mkdir(parents=True)
    gone.symlink_to(tmp_path / "nowhere")
    found: list[Explanation] = []
    reader = threading.Thread(target=lambda: found.append(explained("r", site)))
    reader.start()
    reader.join(0.5)
    aside.rename(compacted)
    gone.unlink()
    reader.join()
    assert found[0].is_proven


def test_of_a_file_that_is_nowhere_nothing_is_known(site: Site, tmp_path: Path) -> None:
    site.tell(event("r", "COMPLETE", 5))
    found = explain("none", [EventsSource(site.root)], tmp_path / "nowhere", WANTED)
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
