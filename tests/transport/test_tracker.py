"""The Tracker through its public interface: its events are kept in a journal and folded into records."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow
import pytest
from events import event as event_of
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport
from waiting import at_once

from waybill.facets import (
    FinalState,
    ProvenanceRecord,
    RunEvent,
    decode_event,
    fold,
    parents_of,
    parse_instant_us,
)
from waybill.transport import (
    AdmissionError,
    Journal,
    Kind,
    Settings,
    SettingsError,
    TrackedFile,
    Tracker,
    TrackerStateError,
)
from waybill.transport.tracker.datasets import FIELDS_MAX, SCHEMA_MAX_BYTES
from waybill.transport.tracker.file_run import JOINED_MAX, SINKS_MAX, _warn_of_dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator


def records_in(settings: Settings) -> list[ProvenanceRecord]:
    """The records of a home's journal, by file in order of beginning, each file's ends in order."""
    events = [
        decode_event(entry.body)
        for entry in Journal(settings.home).read(0, limit=100_000)
        if entry.kind is Kind.OPENLINEAGE
    ]
    runs = [event for event in events if isinstance(event, RunEvent)]
    begun = list(dict.fromkeys(event.run.runId for event in runs))
    return sorted(fold(runs, system_name="not stamped"), key=lambda r: (begun.index(r.did), r.completed))


class Trail:
    """A Tracker with its own journal, and the records of that journal."""

    def __init__(self, settings: Settings) -> None:
        self.tracker = Tracker(settings=settings)
        self._settings = settings

    def events(self) -> list[dict[str, Any]]:
        return [
            json.loads(entry.body)
            for entry in Journal(self._settings.home).read(0, limit=100_000)
            if entry.kind is Kind.OPENLINEAGE
        ]

    def records(self) -> list[ProvenanceRecord]:
        return records_in(self._settings)

    def record(self) -> ProvenanceRecord:
        (record,) = self.records()
        return record

    def ends(self) -> list[tuple[str, tuple[str, ...], str | None]]:
        return [(r.final_state, r.transforms, r.data_sink) for r in self.records()]


@pytest.fixture
def trail(settings: Settings) -> Iterator[Trail]:
    trail = Trail(settings)
    yield trail
    trail.tracker.close()


@pytest.fixture
def f(trail: Trail) -> TrackedFile:
    return trail.tracker.file("orders.csv.gz", data_source="sftp-in")


# -- one path ------------------------------------------------------------------------------------------------


def test_a_file_that_leaves_by_a_sink_is_a_complete_record(trail: Trail) -> None:
    before_ms = time.time_ns() // 1_000_000
    with trail.tracker.file("orders.csv.gz", data_source="sftp-in", annotations={"region": "eu"}) as f:
        f.annotate(rows=336_776, checked=True)
        with f.transform("decompress"):
            pass
        with f.transform("validate"):
            f.annotate({"schema-version": "7"}, rows=12)
        f.egress("warehouse")
    record = trail.record()
    assert before_ms <= record.created <= record.completed <= time.time_ns() // 1_000_000
    assert record == ProvenanceRecord(
        did=f.did,
        parent_did=None,
        system_name="tests",
        data_source="sftp-in",
        filename="orders.csv.gz",
        transforms=("decompress", "validate"),
        data_sink="warehouse",
        final_state=FinalState.COMPLETE,
        created=record.created,
        completed=record.completed,
        annotations={"region": "eu", "rows": "12", "checked": "true", "schema-version": "7"},
    )


def test_a_did_is_a_uuid_of_version_7_and_the_id_of_the_run(trail: Trail, f: TrackedFile) -> None:
    f.egress("warehouse")
    assert UUID(f.did).version == 7
    assert {event["run"]["runId"] for event in trail.events()} == {f.did}


def test_a_file_is_a_run_of_the_job_named_after_its_source(trail: Trail, f: TrackedFile) -> None:
    f.egress("warehouse")
    start, end = trail.events()
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (start["outputs"], end["outputs"][0]["name"]) == ([], "warehouse")
    assert "finalState" not in start["run"]["facets"]["waybill_deltaFile"]
    for event in (start, end):
        assert (event["job"]["namespace"], event["job"]["name"]) == ("tests", "sftp-in")
        assert (event["inputs"][0]["namespace"], event["inputs"][0]["name"]) == ("tests", "sftp-in")
        assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def outputs_of(trail: Trail) -> list[list[str]]:
    return [[dataset["name"] for dataset in event["outputs"]] for event in trail.events()]


def test_a_sink_is_named_only_by_the_end_of_a_path_that_reached_it(trail: Trail) -> None:
    """Each naming is a write to a backend, and a version of the dataset."""
    declared = {"lake": "/data/lake", "report": "/data/report"}
    with trail.tracker.file("a.csv", data_source="in", data_sinks=declared) as first:
        first.filter("empty")
    with trail.tracker.file("b.csv", data_source="in") as second:
        second.egress("lake")
        second.egress("archive")
        second.error("torn afterwards")
    trail.tracker.file("c.csv", data_source="in").cancel()
    (month,) = trail.tracker.file("d.csv", data_source="in").split(["1.csv"])
    month.egress("report")
    lake, archive, report = ["/data/lake"], ["archive"], ["/data/report"]
    assert outputs_of(trail) == [[], [], [], lake, archive, [], [], [], [], [], [], report]
    assert [record.data_sink for record in trail.records() if record.data_sink] == [
        "lake",
        "archive",
        "report",
    ]


def test_a_size_stands_with_the_sink_that_it_went_to(trail: Trail, f: TrackedFile) -> None:
    f.egress("lake")
    f.egress("report", size_bytes=7)
    with pytest.raises(AdmissionError, match="size_bytes: is -1"):
        f.egress("report", size_bytes=-1)
    assert [
        {
            output["name"]: (output.get("outputFacets") or {}).get("outputStatistics", {}).get("size")
            for output in event["outputs"]
        }
        for event in trail.events()
    ] == [{}, {"lake": None}, {"report": 7}]


def datasets_in(trail: Trail) -> list[dict[str, list[str]]]:
    """By event, the datasets that it names as outputs, each with its sinks."""
    return [
        {
            f"{output['namespace']} {output['name']}": [
                f"{one['namespace']} {one['name']} {one['type']}"
                for one in (output.get("facets") or {}).get("symlinks", {}).get("identifiers", [])
            ]
            for output in event["outputs"]
        }
        for event in trail.events()
    ]


def test_a_sink_is_named_as_its_dataset_with_a_symlink_and_in_the_record_by_its_own_name(
    trail: Trail,
) -> None:
    told = {"lake": "s3a://bucket/lake/"}
    trail.tracker.file("a", data_source="in", data_sinks=told).egress("lake")
    trail.tracker.file("b", data_source="in").egress("report", dataset=("postgres://db:5432", "s.report"))
    sink = f"{trail.tracker.system_name} {{}} DATA_SINK"
    lake = {"s3://bucket lake": [sink.format("lake")]}
    report = {"postgres://db:5432 s.report": [sink.format("report")]}
    assert datasets_in(trail) == [{}, lake, {}, report]
    assert [record.data_sink for record in trail.records()] == ["lake", "report"]


def test_what_a_sink_writes_is_remembered_for_a_bounded_number_of_sinks(trail: Trail) -> None:
    sinks = {f"sink-{number}": f"/data/{number}" for number in range(SINKS_MAX + 1)}
    file = trail.tracker.file("a", data_source="in", data_sinks=sinks)
    for number in (0, SINKS_MAX - 1, SINKS_MAX):
        file.egress(f"sink-{number}")
    file.egress(f"sink-{SINKS_MAX}", dataset=f"/data/{SINKS_MAX}")
    assert outputs_of(trail) == [
        [],
        ["/data/0"],
        [f"/data/{SINKS_MAX - 1}"],
        [f"sink-{SINKS_MAX}"],
        [f"/data/{SINKS_MAX}"],
    ]


@pytest.mark.parametrize(
    ("given", "dataset"),
    [
        ("/data/../lake/", "file /lake"),
        (Path("/lake/100%25"), "file /lake/100%25"),
        ("file:/lake", "file /lake"),
        ("file:///a%20lake", "file /a lake"),
        ("s3n://bucket/a/b", "s3://bucket a/b"),
        ("gs://bucket", "gs://bucket /"),
        ("abfss://files@account.dfs.core.windows.net/a", "abfss://files@account.dfs.core.windows.net a"),
        ("hdfs://host:8020/lake/", "hdfs://host:8020 /lake"),
        (("bigquery", "a.b.c"), "bigquery a.b.c"),
    ],
)
def test_a_dataset_has_the_name_that_spark_gives_it(
    trail: Trail,
    f: TrackedFile,
    given: Any,  # noqa: ANN401 - several types
    dataset: str,
) -> None:
    f.egress("lake", dataset=given)
    assert list(datasets_in(trail)[-1]) == [dataset]


@pytest.mark.parametrize("given", ["", ("", "a"), ("a", ""), ("a",), "s3:///"])
def test_a_dataset_without_a_name_is_refused(f: TrackedFile, given: Any) -> None:  # noqa: ANN401 - what must not be
    with pytest.raises(AdmissionError, match="dataset: is"):
        f.egress("lake", dataset=given)


def test_a_schema_is_a_dict_or_arrow_s_or_spark_s(trail: Trail) -> None:
    arrow = pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.string())])
    types = pytest.importorskip("pyspark.sql.types")
    spark = types.StructType(
        [
            types.StructField("a", types.LongType()),
            types.StructField("b", types.ArrayType(types.LongType())),
        ]
    )
    for schema in ({"a": "INT", "b": "TEXT"}, arrow, spark):
        trail.tracker.file("a", data_source="in").egress("lake", schema=schema)
    found = [event["outputs"][0]["facets"]["schema"]["fields"] for event in trail.events()[1::2]]
    kinds = [[field["type"] for field in fields] for fields in found]
    assert kinds == [["INT", "TEXT"], ["int64", "string"], ["long", "array<bigint>"]]
    assert [field["name"] for fields in found for field in fields] == ["a", "b"] * 3


def test_a_schema_is_bounded(trail: Trail, f: TrackedFile) -> None:
    many = {f"c{number}": "INT" for number in range(FIELDS_MAX + 1)}
    for schema, wrong in ((many, "has 1,001 columns"), ({"a": "x" * SCHEMA_MAX_BYTES}, "has 16,39. bytes")):
        with pytest.raises(AdmissionError, match=f"schema: {wrong}"):
            f.egress("lake", schema=schema)
    assert trail.ends() == []
    f.egress("lake", schema=dict(list(many.items())[:-1]))
    assert trail.ends() == [("COMPLETE", (), "lake")]


@pytest.mark.parametrize(
    ("sinks", "wrong"), [("lake", "give a dict"), (["lake"], "give a dict"), ({"": "/data/lake"}, "is empty")]
)
def test_sinks_are_declared_with_their_datasets(trail: Trail, sinks: Any, wrong: str) -> None:  # noqa: ANN401 - what must not be
    with pytest.raises(AdmissionError, match=f"data_sinks.*{wrong}"):
        trail.tracker.file("a.csv", data_source="in", data_sinks=sinks)
    assert trail.events() == []


def test_an_error_in_words_has_its_first_line_as_cause(trail: Trail, f: TrackedFile) -> None:
    with f:
        f.error("checksum differs\nexpected 1f\ngot 2e")
    assert trail.ends() == [("ERROR", (), None)]
    assert trail.record().annotations == {"errorCause": "checksum differs"}
    end = trail.events()[-1]
    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"] == "checksum differs\nexpected 1f\ngot 2e"


# -- several paths -------------------------------------------------------------------------------------------


def test_ends_keep_their_order_when_the_clock_goes_back(
    trail: Trail, f: TrackedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.time_ns()
    with f:
        f.egress("first")
        monkeypatch.setattr(time, "time_ns", lambda: now_ns - 3_600_000_000_000)
        f.egress("second")
    monkeypatch.undo()
    first, second = trail.records()
    assert (first.data_sink, second.data_sink) == ("first", "second")
    assert second.completed == first.completed + 1


# -- splitting -----------------------------------------------------------------------------------------------


def test_children_are_known_before_their_parent_is_split(trail: Trail, f: TrackedFile) -> None:
    a, b = f.split(["a.csv", "b.csv"])
    told = [(event["run"]["runId"], event["eventType"]) for event in trail.events()]
    assert told == [(f.did, "START"), (a.did, "START"), (b.did, "START"), (f.did, "COMPLETE")]
    for child in (a, b):
        child.egress("warehouse")
    (split, *children) = trail.records()
    assert {child.created for child in children} == {split.completed}


def test_every_event_of_a_child_names_its_parent_the_standard_way(trail: Trail, f: TrackedFile) -> None:
    (child,) = f.split(["a.csv"], data_source="unpacked")
    child.egress("warehouse")
    for event in trail.events():
        if event["run"]["runId"] == child.did:
            parent = event["run"]["facets"]["parent"]
            assert parent["run"]["runId"] == f.did
            assert parent["job"] == {"namespace": "tests", "name": "sftp-in", "facets": {}}
            assert event["job"]["name"] == "unpacked"


def test_children_inherit_source_and_annotations_unless_told_otherwise(trail: Trail) -> None:
    with trail.tracker.file("year.csv", data_source="sftp-in", annotations={"year": "2013"}) as f:
        (heir,) = f.split(["jan.csv"])
        heir.egress("lake")
    with trail.tracker.file("year.csv", data_source="sftp-in", annotations={"year": "2013"}) as f:
        (other,) = f.split(["jan.csv"], data_source="months", annotations={"month": 1})
        other.egress("lake")
    children = [record for record in trail.records() if record.parent_did]
    assert [(r.data_source, r.annotations) for r in children] == [
        ("sftp-in", {"year": "2013"}),
        ("months", {"month": "1"}),
    ]


# -- exceptions ----------------------------------------------------------------------------------------------


def test_an_exception_goes_on_and_is_an_error_of_the_transform_it_left(trail: Trail, f: TrackedFile) -> None:
    with pytest.raises(json.JSONDecodeError), f:
        with f.transform("decompress"):
            pass
        with f.transform("parse"):
            json.loads("{")
    assert trail.ends() == [("ERROR", ("decompress", "parse"), None)]
    place = "line 1 column 2 (char 1)"
    cause = f"json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: {place}"
    assert trail.record().annotations == {"errorCause": cause}
    failure = trail.events()[-1]["run"]["facets"]["errorMessage"]
    assert (failure["message"], failure["programmingLanguage"]) == (cause, "PYTHON")
    assert 'json.loads("{")' in failure["stackTrace"]


def test_a_transform_that_failed_and_was_caught_stays_on_the_path(trail: Trail, f: TrackedFile) -> None:
    with f:
        try:
            with f.transform("parse-json"):
                json.loads("{")
        except json.JSONDecodeError:
            with f.transform("parse-csv"):
                pass
        f.egress("lake")
    assert trail.ends() == [("COMPLETE", ("parse-json", "parse-csv"), "lake")]


def test_what_caused_an_exception_is_recorded_too(trail: Trail, f: TrackedFile) -> None:
    with pytest.raises(LookupError), f:
        try:
            int("x")
        except ValueError as error:
            raise LookupError("no such day") from error
    assert trail.record().annotations == {
        "errorCause": "LookupError: no such day; caused by: ValueError: "
        "invalid literal for int() with base 10: 'x'"
    }


def test_an_exception_that_a_branch_was_given_is_not_recorded_again_for_its_blocks(
    trail: Trail, f: TrackedFile
) -> None:
    with pytest.raises(ValueError, match="bad"), f:
        with f.transform("validate"):
            pass
        with f.branch() as inner, inner.transform("convert"):
            failure = ValueError("bad")
            inner.error(failure)
            raise failure
    assert trail.ends() == [("ERROR", ("validate", "convert"), None)]


def test_a_generator_that_is_closed_half_way_cancels_its_file(trail: Trail) -> None:
    def rows() -> Generator[int, None, None]:
        with trail.tracker.file("orders.csv", data_source="sftp-in") as f:
            yield from range(10)
            f.egress("lake")

    generator = rows()
    next(generator)
    generator.close()
    assert trail.ends() == [("CANCELLED", (), None)]


# -- after the end -------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[TrackedFile], object]] = {
    "filter()": lambda f: f.filter("no rows"),
    "error()": lambda f: f.error("bad"),
    "cancel()": lambda f: f.cancel(),
    "split()": lambda f: f.split(["a.csv"]),
    "the end of its block": lambda f: f.__exit__(None, None, None),
}
CALLS: dict[str, Callable[[TrackedFile], object]] = {
    "annotate()": lambda f: f.annotate(rows=1),
    "transform()": lambda f: f.transform("late").__enter__(),
    "branch()": lambda f: f.branch(),
    "egress()": lambda f: f.egress("late"),
    "filter()": lambda f: f.filter("late"),
    "error()": lambda f: f.error("late"),
    "cancel()": lambda f: f.cancel(),
    "split()": lambda f: f.split(["late.csv"]),
    "a block": lambda f: f.__enter__(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_follows_an_end(trail: Trail, f: TrackedFile, end: str, call: str) -> None:
    ENDS[end](f)
    before = trail.events()
    with pytest.raises(TrackerStateError) as caught:
        CALLS[call](f)
    assert (caught.value.call, caught.value.state) == (call, end)
    assert str(caught.value).startswith(
        f"<file 'orders.csv.gz' {f.did}>: {call} is not allowed after {end}; "
    )
    assert trail.events() == before


def test_the_state_error_survives_pickling(f: TrackedFile) -> None:
    f.cancel()
    with pytest.raises(TrackerStateError) as caught:
        f.egress("lake")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.way_out) == (
        TrackerStateError,
        str(caught.value),
        caught.value.way_out,
    )


def test_what_belongs_to_its_process_says_so_when_it_is_sent_to_another(trail: Trail, f: TrackedFile) -> None:
    for one in (trail.tracker, f):
        with pytest.raises(TypeError, match="cannot be sent to another process; make a Tracker there"):
            pickle.dumps(one)


# -- what goes in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("say", "where"),
    [
        (lambda f: f.egress(""), "data_sink"),
        (lambda f: f.transform("").__enter__(), "transform"),
        (lambda f: f.annotate(rows=None), "annotations.rows"),
        (lambda f: f.split([]), "filenames"),
        (lambda f: f.split("a.csv"), "filenames"),
        (lambda f: f.split(["a.csv"], data_source=""), "data_source"),
    ],
    ids=["no sink", "no transform", "no value", "no children", "one text", "no source"],
)
def test_what_no_record_can_hold_is_refused_and_the_file_goes_on(
    trail: Trail, f: TrackedFile, say: Callable[[TrackedFile], object], where: str
) -> None:
    with pytest.raises(AdmissionError) as caught:
        say(f)
    assert caught.value.where == where
    f.egress("lake")
    assert trail.ends() == [("COMPLETE", (), "lake")]


def test_a_file_needs_a_source_and_a_system(trail: Trail, settings: Settings) -> None:
    with pytest.raises(AdmissionError, match=r"data_source: is empty; .+"):
        trail.tracker.file("orders.csv", data_source="")
    with pytest.raises(AdmissionError, match=r"system_name: is empty; .+"):
        Tracker(settings=settings, system_name="")
    assert trail.events() == []


def test_names_and_messages_that_are_no_proper_text_are_kept_as_escapes(trail: Trail) -> None:
    with (
        pytest.raises(ValueError, match="NUL"),
        trail.tracker.file("caf\udce9.csv", data_source="sftp-in") as f,
    ):
        f.annotate({"path": "/in/caf\udce9.csv"})
        raise ValueError("NUL \0 at 3")
    record = trail.record()
    assert record.filename == "caf\\udce9.csv"
    assert record.annotations == {"path": "/in/caf\\udce9.csv", "errorCause": "ValueError: NUL \\x00 at 3"}


def test_an_exception_that_cannot_be_printed_is_an_error_all_the_same(trail: Trail, f: TrackedFile) -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    with pytest.raises(UnprintableError), f:
        raise UnprintableError
    annotations = trail.record().annotations
    assert annotations is not None
    assert annotations["errorCause"].endswith("UnprintableError")


# -- where it goes -------------------------------------------------------------------------------------------


def test_a_tracker_takes_settings_by_their_names(home: Path) -> None:
    with Tracker(home=home, durability="process", system_name="edge-7") as tracker:
        tracker.file("a.txt", data_source="in")
    (entry,) = Journal(home).read(0)
    assert json.loads(entry.body)["job"]["namespace"] == "edge-7"
    with pytest.raises(SettingsError, match=r"setting hoem = 'x' \(from Tracker\): is not a setting"):
        Tracker(hoem="x")


def test_a_setting_that_would_do_nothing_is_refused(settings: Settings, tmp_path: Path) -> None:
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(tmp_path / "events"))))
    for beside in ({"client": client}, {"settings": settings}):
        with pytest.raises(SettingsError, match=r"marquez_api_key = '\*+' .* would have no effect here"):
            Tracker(**beside, marquez_api_key="k3y")


def test_a_file_may_be_named_by_its_path(trail: Trail, tmp_path: Path) -> None:
    with trail.tracker.file(tmp_path / "a.csv", data_source="in") as f:
        (child,) = f.split([Path("b.csv")])
    assert (f.filename, child.filename) == (str(tmp_path / "a.csv"), "b.csv")
    with pytest.raises(AdmissionError, match=r"is the single name 'b\.csv'; give a list of names"):
        trail.tracker.file("c.csv", data_source="in").split(Path("b.csv"))  # type: ignore[arg-type]


def test_a_transform_whose_block_is_not_entered_is_recorded_and_warned_of(
    trail: Trail, f: TrackedFile
) -> None:
    with f:
        with pytest.warns(RuntimeWarning, match=r"write `with f.transform\('clean'\):`") as warned:
            f.transform("clean")
        with warnings.catch_warnings(action="error"), f.transform("load"):
            pass
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    assert trail.record().transforms == ("clean", "load")


def test_its_own_system_name_beats_the_setting(settings: Settings) -> None:
    with Tracker(settings=settings, system_name="edge-7") as tracker:
        tracker.file("orders.csv", data_source="sftp-in").egress("lake")
    (entry, _) = Journal(settings.home).read(0)
    assert json.loads(entry.body)["job"]["namespace"] == "edge-7"


def test_any_client_of_openlineage_will_do(tmp_path: Path) -> None:
    client = OpenLineageClient(
        transport=FileTransport(FileConfig(str(tmp_path / "events.jsonl"), append=True))
    )
    with Tracker(client, system_name="edge-7") as tracker, tracker.file("a.csv", data_source="in") as f:
        f.egress("lake")
    events = [decode_event(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    (record,) = fold([event for event in events if isinstance(event, RunEvent)], system_name="other")
    assert (record.system_name, record.data_sink) == ("edge-7", "lake")


def test_an_end_that_could_not_be_kept_may_be_said_again(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(folder / "events.jsonl"), append=True)))
    f = Tracker(client, system_name="edge-7").file("a.csv", data_source="in")
    folder.rename(tmp_path / "away")
    with pytest.raises(RuntimeError, match="Failed to write"):
        f.filter("empty")
    (tmp_path / "away").rename(folder)
    f.filter("empty")
    lines = (folder / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_the_callers_exception_is_raised_also_when_its_error_cannot_be_kept(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(folder / "events.jsonl"), append=True)))
    tracker = Tracker(client, system_name="edge-7")
    with pytest.raises(ValueError, match="bad") as caught, tracker.file("a.csv", data_source="in") as f:
        folder.rename(tmp_path / "away")
        raise ValueError("bad")
    (note,) = caught.value.__notes__
    assert note.startswith(f"Waybill could not record the end of <file 'a.csv' {f.did}>: Failed to write")


def test_threads_share_a_tracker(trail: Trail) -> None:
    def work(name: str) -> None:
        for number in range(10):
            with trail.tracker.file(f"{name}-{number}", data_source=name) as f:
                with f.transform(f"clean-{name}"):
                    f.annotate(number=number)
                f.egress("lake")

    at_once(partial(work, f"feed-{number}") for number in range(6))
    told = {(r.data_source, r.filename, r.transforms, str(r.annotations)) for r in trail.records()}
    assert told == {
        (f"feed-{feed}", f"feed-{feed}-{n}", (f"clean-feed-{feed}",), str({"number": str(n)}))
        for feed in range(6)
        for n in range(10)
    }


def test_branches_of_one_file_may_end_in_threads_of_their_own(trail: Trail, f: TrackedFile) -> None:
    branches = [f.branch() for _ in range(16)]
    with f:
        at_once(partial(b.egress, "lake") for b in branches)
    assert len(trail.records()) == 16


# -- joins ---------------------------------------------------------------------------------------------------


def test_a_joined_file_names_all_its_parents_on_each_event(trail: Trail) -> None:
    parents = [trail.tracker.file(name, data_source=f"from-{name}") for name in "abc"]
    with (
        parents[0].transform("clean"),
        trail.tracker.join(parents, "daily.csv", data_source="daily") as daily,
    ):
        daily.egress("lake")
    dids = tuple(parent.did for parent in parents)
    assert (daily.parent_did, daily.parent_dids) == (dids[0], dids)
    of_daily = [event for event in trail.events() if event["run"]["runId"] == daily.did]
    assert [event["eventType"] for event in of_daily] == ["START", "COMPLETE"]
    for event in of_daily:
        facets = event["run"]["facets"]
        assert facets["parent"]["run"]["runId"] == dids[0]
        upstream = facets["jobDependencies"]["upstream"]
        assert [(one["job"]["name"], one["run"]["runId"]) for one in upstream] == [
            (parent.data_source, parent.did) for parent in parents
        ]
    assert trail.ends() == [
        ("COMPLETE", ("clean",), None),
        ("COMPLETE", (), None),
        ("COMPLETE", (), None),
        ("COMPLETE", (), "lake"),
    ]


def test_a_join_takes_the_dids_of_files_that_other_processes_handle(trail: Trail, f: TrackedFile) -> None:
    other = "01890000-0000-7000-8000-000000000001"
    with trail.tracker.join([other.upper(), f], "day.csv", data_source="day") as day:
        day.egress("lake")
    assert (day.parent_did, day.parent_dids) == (other, (other, f.did))
    ends = {record.filename: record for record in trail.records()}
    assert {name: record.final_state for name, record in ends.items()} == {
        "orders.csv.gz": "COMPLETE",
        "day.csv": "COMPLETE",
    }
    assert ends["day.csv"].parent_did == other
    for event in trail.events():
        told = decode_event(json.dumps(event).encode())
        assert isinstance(told, RunEvent)
        assert parents_of(told) == ((other, f.did) if told.run.runId == day.did else ())
    before = len(trail.events())
    with pytest.raises(AdmissionError, match="UUID"):
        trail.tracker.join(["orders.csv"], "day.csv", data_source="day")
    with pytest.raises(AdmissionError, match="twice"):
        trail.tracker.join([f, f.did], "day.csv", data_source="day")
    assert len(trail.events()) == before


def test_an_adopted_file_ends_as_the_file_that_another_process_began(
    trail: Trail, settings: Settings, f: TrackedFile
) -> None:
    begin = textwrap.dedent("""
        import sys
        from waybill.transport import Tracker
        tracker = Tracker(home=sys.argv[1], system_name="tests", runner="none")
        file = tracker.file("part.csv", data_source="sftp-in", annotations={"batch": 7})
        print(tracker.join([sys.argv[2], file], "day.csv", data_source="day").did)
        tracker.close()
    """)
    command = [sys.executable, "-c", begin, str(settings.home), f.did]
    did = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with trail.tracker.adopt(did, transforms=["clean"]) as day, day.transform("load"):
        day.egress("lake")
    assert day.parent_dids[0] == f.did
    assert len(day.parent_dids) == 2
    said = [event for event in trail.events() if event["run"]["runId"] == did]
    assert [event["eventType"] for event in said] == ["START", "RUNNING", "COMPLETE"]
    (record,) = [record for record in trail.records() if record.did == did]
    assert (record.filename, record.data_source, record.system_name) == ("day.csv", "day", "tests")
    assert (record.transforms, record.data_sink, record.parent_did) == (("clean", "load"), "lake", f.did)
    assert record.created == parse_instant_us(said[0]["eventTime"]) // 1_000
    parents = {
        parents_of(one)
        for event in said
        if isinstance(one := decode_event(json.dumps(event).encode()), RunEvent)
    }
    assert parents == {day.parent_dids}


def test_a_file_is_adopted_whose_events_spell_its_did_in_capitals(trail: Trail, settings: Settings) -> None:
    did = "01890000-0000-7000-8000-0000000000ab"
    facet = {"_producer": "p", "_schemaURL": "s", "did": did, "filename": "a.csv", "dataSource": "in"}
    facets = {"waybill_deltaFile": facet | {"did": did.upper()}}
    begun = event_of(did.upper(), "START", job="tests/in", facets=facets)
    Journal(settings.home).append_many([(Kind.OPENLINEAGE, begun, "")])
    with trail.tracker.adopt(did) as file:
        pass
    assert (file.did, file.filename) == (did, "a.csv")
    assert [record.did for record in trail.records()] == [did]


@pytest.mark.parametrize(
    ("allowed", "told"), [("", ["source", "late", "part"]), ("late,part", ["source"]), ("*", [])]
)
def test_a_key_that_is_not_allowed_is_warned_of_once_in_a_process(
    settings: Settings, caplog: pytest.LogCaptureFixture, allowed: str, told: list[str]
) -> None:
    _warn_of_dropped.cache_clear()
    agreed = settings.with_values({"provenance_annotations_allowed": allowed}, "test")
    with Tracker(settings=agreed) as tracker:
        for _ in range(2):
            with tracker.file("a.csv", data_source="in", annotations={"source": "s"}) as f:
                f.annotate(late=1, errorCause="mine")
                (part,) = f.split(["b.csv"], annotations={"part": 1})
                part.filter("empty")
    warned = [record for record in caplog.records if "provenance_annotations_allowed" in record.message]
    assert [record.args for record in warned] == [(key,) for key in told]


def test_a_file_that_was_begun_elsewhere_is_adopted_with_what_the_caller_knows(trail: Trail) -> None:
    did = "01890000-0000-7000-8000-000000000001"
    for filename, missing in ((None, "filename"), ("a.csv", "data_source")):
        with pytest.raises(AdmissionError, match=missing):
            trail.tracker.adopt(did, filename)
    with pytest.raises(AdmissionError, match="UUID"):
        trail.tracker.adopt("a.csv", "a.csv", data_source="in")
    assert trail.events() == []
    parent = "01890000-0000-7000-8000-00000000000f"
    with trail.tracker.adopt(did, "a.csv", data_source="in", parents=[parent], annotations={"k": 1}):
        pass
    record = trail.record()
    assert (record.did, record.filename, record.parent_did) == (did, "a.csv", parent)
    assert record.annotations == {"k": "1"}


def test_a_join_of_no_files_too_many_or_one_twice_records_nothing(trail: Trail, f: TrackedFile) -> None:
    before = len(trail.events())
    for files, what in (([], "empty"), ([f, f.branch()], "twice"), ([f] * (JOINED_MAX + 1), "1,001 files")):
        with pytest.raises(AdmissionError, match=what):
            trail.tracker.join(files, "day.csv", data_source="day")
    assert len(trail.events()) == before


def test_the_largest_join_is_kept(settings: Settings) -> None:
    trail = Trail(settings.with_values({"durability": "process"}, "tests"))
    parents = [trail.tracker.file(f"{n}.csv", data_source="in") for n in range(JOINED_MAX)]
    trail.tracker.join(parents, "day.csv", data_source="day").egress("lake")
    assert len(trail.records()) == JOINED_MAX + 1
    day = trail.events()[-1]
    assert len(day["run"]["facets"]["jobDependencies"]["upstream"]) == JOINED_MAX
    assert len(json.dumps(day)) < 200 * JOINED_MAX
    trail.tracker.close()
