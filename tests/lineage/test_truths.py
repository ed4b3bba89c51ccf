"""Ordinary questions about joined, open and second-input files, through every door."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from calling import call
from keeping import settings_in
from served import Collector, event, record, without_runner

from waybill.exporter import Query
from waybill.exporter.query import InvalidQueryError
from waybill.lineage import Lineage
from waybill.lineage.answers import CollectorReadError, UnknownNameError
from waybill.transport import Journal, Kind, Tracker, flush

PARENT = "01a1fd6a-9e75-7d78-870f-0000000000aa"
CHILD = "01a1fd6a-9e75-7d78-870f-0000000000bb"
MOVED = "01a1fd6a-9e75-7d78-870f-0000000000cc"
RUN = "01a1fd6a-9e75-7d78-870f-0000000000ee"


class Pipeline(NamedTuple):
    """A home in which everything has happened, a collector of it, and the dids of its files by name."""

    home: Path
    collector: Collector
    dids: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return call(*arguments, "--home", self.home)

    def get(self, path: str, **given: str) -> Any:  # noqa: ANN401 - a reply
        return self.collector.get(f"{path}?{urlencode(given)}")


def moved(kind: str, parent: str) -> bytes:
    """An event of a file that names a parent."""
    facet = {"did": MOVED, "parentDid": parent, "filename": "moved.csv", "dataSource": "daily"}
    return event(eventType=kind, run={"runId": MOVED, "facets": {"waybill_deltaFile": facet}})


def child_in_capitals() -> bytes:
    facet = {"did": CHILD, "parentDid": PARENT.upper(), "filename": "child.csv"}
    run = {"runId": facet["did"], "facets": {"waybill_deltaFile": facet}}
    return event(eventType="COMPLETE", run=run)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    settings = settings_in(tmp_path_factory.mktemp("truths")).with_values(
        {"provenance_enabled": True}, "tests"
    )
    home, dids = settings.home, {}
    with Tracker(settings=settings) as tracker:
        parts = [tracker.file(name, data_source="landing") for name in ("a.csv", "b.csv", "c.csv")]
        with tracker.join(parts, "daily.csv", data_source="daily") as daily:
            daily.egress("warehouse")
        with tracker.file("stuck.csv", data_source="landing", annotations={"customer": "acme"}) as stuck:
            stuck.egress("report")
        for name in ("report[1].csv", "report1.csv"):
            with tracker.file(name, data_source="landing") as report:
                report.egress("warehouse")
            dids[name] = report.did
        (home.parent / "content").write_bytes(b"orders")
        content: dict[str, Any] = {"path": home.parent / "content", "fingerprint": True, "force": True}
        for name in ("same.csv", "again.csv"):
            with tracker.file(name, data_source="daily", **content) as same:
                same.egress("warehouse")
            dids[name] = same.did
        lost = tracker.file("lost.csv", data_source="landing")
        with lost.transform("unpack"):
            pass
        dids |= {file.filename: file.did for file in (*parts, daily, stuck, lost)}
        inputs = [{"namespace": "file", "name": f"/in/{name}.csv"} for name in ("left", "right")]
        run = event(eventType="COMPLETE", run={"runId": "join"}, inputs=inputs)
        one_run = event(run={"runId": RUN.upper()}), event(eventType="COMPLETE", run={"runId": RUN})
        corrected = moved("START", PARENT[:-2] + "dd"), moved("COMPLETE", "right")
        chain = {"app": "app", "step": "app", "sub": "step"}
        asking = {"asked": "what?.csv", "told": "whats.csv"}
        records = [
            *({"did": did, "parentDid": parent} for did, parent in chain.items()),
            *({"did": did, "filename": name} for did, name in asking.items()),
        ]
        with contextlib.closing(Journal(home)) as journal:
            bodies = (run, child_in_capitals(), *one_run, *corrected)
            journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])
            whole = [record(**one, dataSource="daily", dataSink="") for one in records]
            journal.append(Kind.PROVENANCE, json.dumps(whole).encode())
        assert flush(settings).left == {}
        with without_runner(home) as collector:
            yield Pipeline(home, collector, dids)
        lost.cancel()


def _query(given: Mapping[str, str]) -> Query:
    fields = {"input": "input_dataset"}
    return Query(**{fields.get(name, name): value for name, value in given.items()})  # type: ignore[arg-type]


def find(pipeline: Pipeline, given: Mapping[str, str]) -> list[str]:
    return [one.did for one in Lineage.open(pipeline.home).find(_query(given))]


def lineages(pipeline: Pipeline) -> tuple[Lineage, Lineage]:
    """The home and, from afar, its collector."""
    return Lineage.open(pipeline.home), Lineage.open(pipeline.collector.url)


def traced(pipeline: Pipeline, did: str) -> set[str]:
    """The files of a journey, which are the same by every door."""
    done = pipeline.run("trace", did, "--json")
    assert done.returncode == 0, done.stderr
    by_command = {one["did"] for one in json.loads(done.stdout)["files"]}
    over_http = {one["did"] for one in pipeline.get(f"/trace/{quote(did)}").json["files"]}
    assert [by_command, over_http] == [set(one.trace(did).files) for one in lineages(pipeline)]
    return by_command


def test_a_journey_is_the_same_by_every_door(pipeline: Pipeline) -> None:
    dids = pipeline.dids
    parts = {dids[name] for name in ("a.csv", "b.csv", "c.csv", "daily.csv")}
    assert traced(pipeline, dids["b.csv"]) == {dids["b.csv"], dids["daily.csv"]}
    assert traced(pipeline, dids["daily.csv"]) == parts
    assert traced(pipeline, "sub") == {"app", "step", "sub"}, "an ancestor that names itself"
    assert traced(pipeline, MOVED) == {MOVED, "right"}, "the later event of a file names its parent"
    assert traced(pipeline, dids["lost.csv"]) == {dids["lost.csv"]}, "it has begun and not ended"


def test_ancestors_and_the_proof_have_the_parents_that_a_journey_has(pipeline: Pipeline) -> None:
    told = json.loads(pipeline.run("explain", MOVED, "--json").stdout)
    assert told["parents"] == list(Lineage.open(pipeline.home).explain(MOVED).parents) == ["right"]
    for lineage in lineages(pipeline):
        assert [file.did for file in lineage.ancestors(MOVED)] == ["right"]
        names = {file.filename for file in lineage.ancestors(pipeline.dids["daily.csv"])}
        assert names == {"a.csv", "b.csv", "c.csv"}


def test_a_collector_says_where_a_file_is_explained(pipeline: Pipeline) -> None:
    with pytest.raises(CollectorReadError, match=f"run `waybill explain {MOVED}` on its host"):
        Lineage.open(pipeline.collector.url).explain(MOVED)


def test_an_entry_is_located_by_every_door(pipeline: Pipeline) -> None:
    with contextlib.closing(Journal(pipeline.home, to_read=True)) as journal:
        node, seq = journal.node, journal.last_seq()
    told = pipeline.get("/where", receipt=f"{node}-{seq}").json
    assert told == json.loads(pipeline.run("where", f"{node}-{seq}", "--json").stdout)
    for lineage in lineages(pipeline):
        found = lineage.locate(f"{node}-{seq}")
        assert found is not None
        assert found.receipt == told["receipt"] == f"{node}-{seq}"
        assert lineage.locate(f"{node}-{seq + 1_000_000}") is None
        with pytest.raises(InvalidQueryError, match="'nothing' is none"):
            lineage.locate("nothing")


def test_a_file_is_traced_by_its_name_with_brackets_and_while_it_is_open(pipeline: Pipeline) -> None:
    dids = {"what?.csv": "asked"} | {name: pipeline.dids[name] for name in ("report[1].csv", "lost.csv")}
    for name, did in dids.items():
        told = json.loads(pipeline.run("trace", name, "--json").stdout)
        assert [one["did"] for one in told["files"]] == [did]
    told = pipeline.run("trace", "lost.csv").stdout
    assert "not ended" in told
    assert "landing, last began unpack" in told


FOUND: list[tuple[dict[str, str], list[str]]] = [
    # A first parent that a later event changed is the parent.
    ({"parent_did": "right"}, [MOVED]),
    ({"parent_did": PARENT[:-2] + "dd"}, []),
    # A name with brackets is a name.
    ({"filename": "report[1].csv"}, ["report[1].csv"]),
    ({"filename": "report*.csv"}, ["report1.csv", "report[1].csv"]),
    ({"filename": "what?.csv"}, ["asked"]),
    ({"filename": "wha?s.csv"}, ["told"]),
    # A run that began in capitals and ended in small letters is one, and a parent may be spelled in any way.
    *(({"did": spelled}, [RUN]) for spelled in (RUN, RUN.upper())),
    *(({"parent_did": spelled}, [CHILD]) for spelled in (PARENT, PARENT.upper(), PARENT.replace("-", ""))),
    # A run is found by its second input, and a dataset by the last part of its name.
    ({"filename": "right.csv"}, ["join"]),
    ({"input": "file:/in/right.csv"}, ["join"]),
    ({"data_source": "left.csv"}, ["join"]),
    ({"data_source": "file:/in/left.csv"}, ["join"]),
    ({"data_source": "eft.csv"}, []),
    # What was joined got to the sink of the joined file.
    ({"missing_sink": "warehouse", "data_source": "landing"}, ["stuck.csv"]),
]
"""By conditions, the dids or names of the files that meet them."""


@pytest.mark.parametrize(("given", "wanted"), FOUND, ids=str)
def test_files_are_found(pipeline: Pipeline, given: dict[str, str], wanted: list[str]) -> None:
    dids = [pipeline.dids.get(name, name) for name in wanted]
    assert sorted(find(pipeline, given)) == sorted(dids)


MISSING = {"missing_sink": "warehouse", "data_source": "landing"}


def test_files_that_never_ended_are_missing_too_and_counted(pipeline: Pipeline) -> None:
    done = pipeline.run("find", "--missing-sink", "warehouse", "--data-source", "landing", "--count")
    assert done.stdout == "2\n"
    assert "1 more file has not ended" in done.stderr
    assert pipeline.run("find", "--data-source", "landing", "--count").stdout == "6\n"
    reply = pipeline.get("/api/v1/records/stats", **MISSING)
    assert (reply.json["total_records"], "1 more file has not ended" in reply.headers["warning"]) == (1, True)
    for lineage in lineages(pipeline):
        assert lineage.count(_query(MISSING)) == 2
        assert [file.filename for file in lineage.open_files(_query(MISSING))] == ["lost.csv"]


def test_a_file_that_has_not_ended_is_told_of_whatever_the_first_moment(pipeline: Pipeline) -> None:
    missing = ("--missing-sink", "warehouse", "--data-source", "landing")
    done = pipeline.run("find", *missing, "--since", "1h", "--count")
    assert (done.stdout, "1 more file has not ended" in done.stderr) == ("2\n", True)
    says = "1 file has begun and not ended: lost.csv"
    assert says in pipeline.run("find", "--filename", "lost.csv", "--since", "2026-01-01").stderr
    reply = pipeline.get("/api/v1/records", **{"filename": "lost.csv", "from": "1"})
    assert says in reply.headers["warning"]
    query = Query(filename="lost.csv", since_ms=1)
    for lineage in lineages(pipeline):
        assert says in lineage.find(query).notes


def test_open_files_are_found_by_what_they_can_meet_and_all_else_is_an_error(pipeline: Pipeline) -> None:
    for given in ({"since_ms": 1}, {"missing_sink": "warehouse"}, {"producer": "https://example.org"}):
        query = Query(**given)
        wanted = [] if query.producer else ["lost.csv"]
        options = {"since_ms": "--since", "missing_sink": "--missing-sink", "producer": "--producer"}
        words = [word for name, value in given.items() for word in (options[name], str(value))]
        words = ["--since", "2026-01-01"] if query.since_ms else words
        done = pipeline.run("find", "--open", "--json", *words)
        assert [json.loads(line)["filename"] for line in done.stdout.splitlines()] == wanted, done.stderr
        reply = pipeline.get("/api/v1/records/open", **dict(query.http_params()))
        assert [one["filename"] for one in reply.json] == wanted
        for lineage in lineages(pipeline):
            assert [file.filename for file in lineage.open_files(query)] == wanted
    says = "is a condition that open files do not have yet"
    done = pipeline.run("find", "--open", "--data-sink", "lake")
    assert (done.returncode, done.stdout, "--data-sink" in done.stderr) == (2, "", True)
    reply = pipeline.get("/api/v1/records/open", data_sink="lake")
    assert (reply.status, says in reply.json["detail"]) == (400, True)
    for lineage in lineages(pipeline):
        with pytest.raises(InvalidQueryError, match=says):
            lineage.open_files(Query(data_sink="lake"))


def test_what_the_journal_has_let_go_of_is_open_all_the_same(pipeline: Pipeline, tmp_path: Path) -> None:
    home, did = tmp_path / "home", pipeline.dids["lost.csv"]
    shutil.copytree(pipeline.home, home, ignore=shutil.ignore_patterns("*-shm"))
    with contextlib.closing(Journal(home)) as journal:
        assert journal.prune(journal.last_seq(), 2**62)
        assert did.encode() not in b"".join(entry.body for entry in journal.read(0, limit=1_000))
    says = "1 file has begun and not ended: lost.csv"
    assert set(Lineage.open(home).trace(did).files) == {did}
    assert says in call("find", "--filename", "lost.csv", "--home", home).stderr
    assert says in Lineage.open(home).find(Query(filename="lost.csv")).notes


def test_a_sink_that_no_record_has_is_an_error_that_names_the_nearest(pipeline: Pipeline) -> None:
    done = pipeline.run("find", "--missing-sink", "reprot")
    assert (done.returncode, done.stdout) == (2, "")
    says = "no record has the sink 'reprot'; there are report, warehouse"
    assert says in done.stderr
    reply = pipeline.get("/api/v1/records", missing_sink="reprot")
    assert (reply.status, reply.json["detail"]) == (404, says)
    for lineage in lineages(pipeline):
        with pytest.raises(UnknownNameError) as caught:
            lineage.find(Query(missing_sink="reprot"))
        error = caught.value
        assert (str(error), error.name, error.nearest) == (says, "reprot", ("report", "warehouse"))
        with pytest.raises(UnknownNameError, match="there are report, warehouse"):
            lineage.open_files(Query(missing_sink="reprot"))
    assert pipeline.get("/api/v1/records/open", missing_sink="reprot").status == 404


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data_source": "landng"}, "no record has the source 'landng'; there are landing"),
        ({"filename": "stck.csv"}, "no record has the filename 'stck.csv'; among the newest are stuck.csv"),
        ({"filename": "lost.csv"}, "1 file has begun and not ended: lost.csv"),
    ],
)
def test_an_answer_with_nothing_in_it_says_why(pipeline: Pipeline, given: dict[str, str], says: str) -> None:
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert says in pipeline.run("find", *options).stderr
    reply = pipeline.get("/api/v1/records", **given)
    assert (reply.json, says in reply.headers["warning"]) == ([], True)
    for lineage in lineages(pipeline):
        records = lineage.find(_query(given))
        assert records == []
        assert any(says in note for note in records.notes)


def test_what_one_answer_lacks_is_not_said_of_the_next(pipeline: Pipeline) -> None:
    for lineage in lineages(pipeline):
        assert lineage.find(Query(data_source="landng")).notes
        assert lineage.find(Query(data_source="daily")).notes == ()


def test_a_question_by_a_key_that_is_not_allowed_says_so(pipeline: Pipeline) -> None:
    says = "records have the annotation 'customer' only if provenance_annotations_allowed has it"
    done = pipeline.run("find", "--annotation", "customer=acme", "--count")
    assert (done.stdout, says in done.stderr) == ("0\n", True)
    assert says in pipeline.get("/api/v1/records", annotation="customer=acme").headers["warning"]
    assert says in Lineage.open(pipeline.home).find(Query(annotations={"customer": "acme"})).notes


def test_open_files_are_asked_for_by_every_door(pipeline: Pipeline) -> None:
    done = pipeline.run("find", "--open", "--json")
    (told,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (told["filename"], told["did"]) == ("lost.csv", pipeline.dids["lost.csv"])
    assert told["transform"] == "unpack"
    (reply,) = pipeline.get("/api/v1/records/open", filename="lost*").json
    assert (reply["did"], reply["transform"]) == (pipeline.dids["lost.csv"], "unpack")
    assert pipeline.get("/api/v1/records/open", filename="other").json == []
    for lineage in lineages(pipeline):
        (file,) = lineage.open_files(Query(data_source="landing"))
        assert (file.did, file.transform) == (pipeline.dids["lost.csv"], "unpack")


def test_files_of_one_content_are_told_by_every_door(pipeline: Pipeline) -> None:
    (told,) = pipeline.get("/api/v1/records/duplicates").json
    assert [(one["did"], one["filename"]) for one in told] == [
        (pipeline.dids[name], name) for name in ("same.csv", "again.csv")
    ]
    here, there = lineages(pipeline)
    assert here.duplicates() == there.duplicates()
    assert [one.did for (alike,) in (here.duplicates(),) for one in alike] == [one["did"] for one in told]


def test_a_run_is_found_at_once_and_is_marked_while_it_may_change(pipeline: Pipeline) -> None:
    body = event(eventType="COMPLETE", run={"runId": "fresh"})
    assert pipeline.collector.post("/api/v1/lineage", body).status == 201
    reply = pipeline.get("/api/v1/records", did="fresh")
    assert [one["did"] for one in reply.json] == ["fresh"]
    assert "may still change" in reply.headers["warning"]
    for lineage in lineages(pipeline):
        assert [one.did for one in lineage.find(Query(did="fresh"))] == ["fresh"]
    assert traced(pipeline, "fresh") == {"fresh"}


def test_a_state_that_cannot_be_is_an_error(pipeline: Pipeline) -> None:
    assert pipeline.run("find", "--state", "BAD").returncode == 2
    assert pipeline.get("/api/v1/records", final_state="BAD").status == 400
    with pytest.raises(InvalidQueryError, match="'BAD' is not one of COMPLETE, ERROR"):
        Query(final_state="BAD")


def test_a_name_with_line_breaks_leaves_the_warnings_of_an_answer_whole(pipeline: Pipeline) -> None:
    odd = record(did="odd", dataSource="odd\r\nX-Other: 1")
    assert pipeline.collector.post("/provenance", json.dumps([odd]).encode()).status == 202
    warning = pipeline.get("/api/v1/records", data_source="od").headers["warning"]
    assert "no record has the source 'od'; there are " in warning
    assert "odd\\r\\nX-Other: 1" in warning
    assert "may still change" not in warning


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A home with an entry that is poison, and with a file that has one of the two keys that are allowed."""
    given = {"provenance_enabled": True, "provenance_annotations_allowed": ["customer", "tier"]}
    settings = settings_in(tmp_path).with_values(given, "tests")
    acme = {"customer": "acme"}
    with (
        Tracker(settings=settings) as tracker,
        tracker.file("a.csv", data_source="landing", annotations=acme) as file,
    ):
        file.egress("warehouse")
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.append(Kind.PROVENANCE, b'[{"did": 1}]')
    assert flush(settings).left == {}
    return settings.home


def test_a_key_that_no_record_has_is_told_with_the_nearest(poisoned: Path) -> None:
    says = "none of the newest 1,000 records has the annotation 'tier'; they have customer"
    copy = poisoned.parent / "copy"
    shutil.copytree(poisoned, copy, ignore=shutil.ignore_patterns("*.db*", "journal*"))
    for place in (poisoned, copy):
        assert says in Lineage.open(place).find(Query(annotations={"tier": "gold"})).notes
    notes = Lineage.open(poisoned).find(Query(annotations={"customer": "other"})).notes
    assert not any("annotation" in note for note in notes)


def test_a_journey_says_what_it_lacks(poisoned: Path, caplog: pytest.LogCaptureFixture) -> None:
    (found,) = Lineage.open(poisoned).find()
    caplog.clear()
    Lineage.open(poisoned).trace(found.did)
    assert "1 entry is poison and in no answer" in caplog.text
    done = call("trace", found.did, "--home", poisoned)
    assert (done.returncode, "1 entry is poison and in no answer" in done.stderr) == (0, True)
