"""The Tracker through its public interface: its events are kept in a journal and folded into records."""

from __future__ import annotations

import json
import pickle
import time
import warnings
from functools import partial
from itertools import cycle
from multiprocessing import pool
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
    from collections.abc import Callable, Iterator


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


def test_a_file_is_a_run_of_the_job_named_after_its_source_and_its_did_is_the_id_of_that(
    trail: Trail, f: TrackedFile
) -> None:
    f.egress("warehouse")
    start, end = trail.events()
    assert UUID(f.did).version == 7
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (start["outputs"], end["outputs"][0]["name"]) == ([], "warehouse")
    assert "finalState" not in start["run"]["facets"]["waybill_deltaFile"]
    for event in (start, end):
        assert event["run"]["runId"] == f.did
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


def test_a_sink_is_named_as_its_dataset_with_a_symlink_and_a_size_and_in_the_record_by_its_own_name(
    trail: Trail,
) -> None:
    told = {"lake": "s3a://bucket/lake/"}
    a = trail.tracker.file("a", data_source="in", data_sinks=told)
    a.egress("lake")
    a.egress("lake", size_bytes=7)
    trail.tracker.file("b", data_source="in").egress("report", dataset=("postgres://db:5432", "s.report"))
    sink = f"{trail.tracker.system_name} {{}} DATA_SINK"
    lake = {"s3://bucket lake": [sink.format("lake")]}
    report = {"postgres://db:5432 s.report": [sink.format("report")]}
    assert datasets_in(trail) == [{}, lake, lake, {}, report]
    sizes = [
        (output.get("outputFacets") or {}).get("outputStatistics", {}).get("size")
        for event in trail.events()
        for output in event["outputs"]
    ]
    assert sizes == [None, 7, None], "a size stands with the sink that it went to"
    assert [record.data_sink for record in trail.records()] == ["lake", "lake", "report"]


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


SPARK_NAMES: list[tuple[Any, str]] = [
    ("/data/../lake/", "file /lake"),
    (Path("/lake/100%25"), "file /lake/100%25"),
    ("file:/lake", "file /lake"),
    ("file:///a%20lake", "file /a lake"),
    ("s3n://bucket/a/b", "s3://bucket a/b"),
    ("gs://bucket", "gs://bucket /"),
    ("abfss://files@account.dfs.core.windows.net/a", "abfss://files@account.dfs.core.windows.net a"),
    ("hdfs://host:8020/lake/", "hdfs://host:8020 /lake"),
    (("bigquery", "a.b.c"), "bigquery a.b.c"),
]


def test_a_dataset_has_the_name_that_spark_gives_it(trail: Trail, f: TrackedFile) -> None:
    for given, _ in SPARK_NAMES:
        f.egress("lake", dataset=given)
    assert [list(named) for named in datasets_in(trail)[1:]] == [[name] for _, name in SPARK_NAMES]


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


def test_an_error_in_words_is_told_whole_and_recorded_by_its_first_line(trail: Trail, f: TrackedFile) -> None:
    with f:
        f.error("checksum differs\nexpected 1f\ngot 2e")
    assert trail.record().annotations == {"errorCause": "checksum differs"}
    message = trail.events()[-1]["run"]["facets"]["errorMessage"]["message"]
    assert message == "checksum differs\nexpected 1f\ngot 2e"


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


def test_children_are_known_before_their_parent_is_split_and_name_it_the_standard_way(trail: Trail) -> None:
    f = trail.tracker.file("year.csv", data_source="sftp-in", annotations={"year": "2013"})
    a, b = f.split(["a.csv", "b.csv"], data_source="months", annotations={"month": 1})
    told = [(event["run"]["runId"], event["eventType"]) for event in trail.events()]
    assert told == [(f.did, "START"), (a.did, "START"), (b.did, "START"), (f.did, "COMPLETE")]
    for child in (a, b):
        child.egress("warehouse")
    (split, *children) = trail.records()
    assert [(r.data_source, r.annotations) for r in children] == [("months", {"month": "1"})] * 2
    assert {child.created for child in children} == {split.completed}
    for event in trail.events():
        if event["run"]["runId"] != f.did:
            parent = event["run"]["facets"]["parent"]
            assert parent["run"]["runId"] == f.did
            assert parent["job"] == {"namespace": "tests", "name": "sftp-in", "facets": {}}
            assert event["job"]["name"] == "months"


# -- exceptions ----------------------------------------------------------------------------------------------


def test_an_exception_goes_on_and_is_recorded_with_its_causes_and_the_transform_that_it_left(
    trail: Trail, f: TrackedFile
) -> None:
    with pytest.raises(LookupError), f, f.transform("parse"):
        try:
            json.loads("{")
        except json.JSONDecodeError as error:
            raise LookupError("no such day") from error
    assert trail.ends() == [("ERROR", ("parse",), None)]
    place = "line 1 column 2 (char 1)"
    cause = f"json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: {place}"
    assert trail.record().annotations == {"errorCause": f"LookupError: no such day; caused by: {cause}"}
    failure = trail.events()[-1]["run"]["facets"]["errorMessage"]
    assert (failure["message"].endswith(cause), failure["programmingLanguage"]) == (True, "PYTHON")
    assert 'json.loads("{")' in failure["stackTrace"]


def test_the_reason_has_the_programs_own_words_before_those_of_a_process_that_failed_for_it(
    trail: Trail, f: TrackedFile
) -> None:
    class DayError(Exception):
        __module__, __qualname__ = "__main__", "DayError"

    trace = 'Traceback (most recent call last):\n  File "day.py", line 3, in read\nValueError: row 7\n'
    with pytest.raises(DayError), f:
        raise DayError("no report of Monday") from pool.RemoteTraceback(trace)  # type: ignore[attr-defined]
    reason = "DayError: no report of Monday; caused by: ValueError: row 7"
    assert trail.record().annotations == {"errorCause": reason}


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


def test_what_is_refused_after_an_end_names_both(trail: Trail) -> None:
    for (end, finish), (call, go_on) in zip(cycle(ENDS.items()), CALLS.items(), strict=False):
        f = trail.tracker.file("orders.csv.gz", data_source="sftp-in")
        finish(f)
        before = trail.events()
        with pytest.raises(TrackerStateError) as caught:
            go_on(f)
        assert (caught.value.call, caught.value.state) == (call, end)
        says = f"<file 'orders.csv.gz' {f.did}>: {call} is not allowed after {end}; "
        assert str(caught.value).startswith(says)
        assert trail.events() == before


def test_what_belongs_to_its_process_says_so_when_it_is_sent_to_another(trail: Trail, f: TrackedFile) -> None:
    for one in (trail.tracker, f):
        with pytest.raises(TypeError, match="cannot be sent to another process; make a Tracker there"):
            pickle.dumps(one)


# -- what goes in --------------------------------------------------------------------------------------------


DID = "01890000-0000-7000-8000-000000000001"
COLUMNS = {f"c{number}": "INT" for number in range(FIELDS_MAX + 1)}
MISTAKES: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda _, f: f.egress(""), "data_sink: is empty"),
    (lambda _, f: f.egress("lake", size_bytes=-1), "size_bytes: is -1"),
    (lambda _, f: f.egress("lake", schema=COLUMNS), "schema: has 1,001 columns"),
    (lambda _, f: f.egress("lake", schema={"a": "x" * SCHEMA_MAX_BYTES}), r"schema: has 16,39. bytes"),
    (lambda _, f: f.transform("").__enter__(), "transform: is empty"),
    (lambda _, f: f.annotate(rows=None), r"annotations\.rows: is None"),
    (lambda _, f: f.split([]), "filenames: is empty"),
    (lambda _, f: f.split("a.csv"), "filenames: is the single name 'a.csv'; give a list of names"),
    (lambda _, f: f.split(Path("b.csv")), "filenames: is the single name 'b.csv'; give a list of names"),
    (lambda _, f: f.split(["a.csv"], data_source=""), "data_source: is empty"),
    (lambda tracker, _: tracker.file("a.csv", data_source=""), "data_source: is empty"),
    (lambda tracker, _: tracker.file("a", data_source="in", data_sinks="lake"), "data_sinks.*give a dict"),
    (lambda tracker, _: tracker.file("a", data_source="in", data_sinks=["lake"]), "data_sinks.*give a dict"),
    (lambda tracker, _: tracker.file("a", data_source="in", data_sinks={"": "/x"}), "data_sinks: is empty"),
    (lambda tracker, _: tracker.adopt(DID), "filename"),
    (lambda tracker, _: tracker.adopt(DID, "a.csv"), "data_source"),
    (lambda tracker, _: tracker.adopt("a.csv", "a.csv", data_source="in"), "UUID"),
    (lambda tracker, _: tracker.join([], "day.csv", data_source="day"), "empty"),
    (lambda tracker, f: tracker.join([f, f.branch()], "day.csv", data_source="day"), "twice"),
    (lambda tracker, f: tracker.join([f, f.did], "day.csv", data_source="day"), "twice"),
    (lambda tracker, _: tracker.join(["orders.csv"], "day.csv", data_source="day"), "UUID"),
    (lambda tracker, f: tracker.join([f] * (JOINED_MAX + 1), "day.csv", data_source="day"), "1,001 files"),
]


def test_what_no_event_can_hold_is_refused_and_leaves_no_trace(trail: Trail, f: TrackedFile) -> None:
    before = trail.events()
    for say, what in MISTAKES:
        with pytest.raises(AdmissionError, match=what):
            say(trail.tracker, f)
    for dataset in ("", ("", "a"), ("a", ""), ("a",), "s3:///"):
        with pytest.raises(AdmissionError, match="dataset: is"):
            f.egress("lake", dataset=dataset)  # type: ignore[arg-type]
    assert trail.events() == before
    f.egress("lake", schema=dict(list(COLUMNS.items())[:-1]))
    assert trail.ends() == [("COMPLETE", (), "lake")]


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
    with pytest.raises(AdmissionError, match=r"system_name: is empty; .+"):
        Tracker(home=home, system_name="")


def test_a_setting_that_would_do_nothing_is_refused(settings: Settings, client: OpenLineageClient) -> None:
    for beside in ({"client": client}, {"settings": settings}):
        with pytest.raises(SettingsError, match=r"marquez_api_key = '\*+' .* would have no effect here"):
            Tracker(**beside, marquez_api_key="k3y")


def test_a_file_may_be_named_by_its_path(trail: Trail, tmp_path: Path) -> None:
    with trail.tracker.file(tmp_path / "a.csv", data_source="in") as f:
        (child,) = f.split([Path("b.csv")])
    assert (f.filename, child.filename) == (str(tmp_path / "a.csv"), "b.csv")


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


@pytest.fixture
def client(folder: Path) -> OpenLineageClient:
    """A client without a home, which writes into a file of that folder."""
    return OpenLineageClient(transport=FileTransport(FileConfig(str(folder / "events.jsonl"), append=True)))


def test_any_client_of_openlineage_will_do(client: OpenLineageClient, folder: Path) -> None:
    with Tracker(client, system_name="edge-7") as tracker, tracker.file("a.csv", data_source="in") as f:
        f.egress("lake")
    events = [decode_event(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    (record,) = fold([event for event in events if isinstance(event, RunEvent)], system_name="other")
    assert (record.system_name, record.data_sink) == ("edge-7", "lake")


def test_an_end_that_could_not_be_kept_may_be_said_again(client: OpenLineageClient, folder: Path) -> None:
    f = Tracker(client, system_name="edge-7").file("a.csv", data_source="in")
    away = folder.rename(folder.with_name("away"))
    with pytest.raises(RuntimeError, match="Failed to write"):
        f.filter("empty")
    away.rename(folder)
    f.filter("empty")
    lines = (folder / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_the_callers_exception_is_raised_also_when_its_error_cannot_be_kept(
    client: OpenLineageClient, folder: Path
) -> None:
    tracker = Tracker(client, system_name="edge-7")
    with pytest.raises(ValueError, match="bad") as caught, tracker.file("a.csv", data_source="in") as f:
        folder.rename(folder.with_name("away"))
        raise ValueError("bad")
    (note,) = caught.value.__notes__
    assert note.startswith(f"Waybill could not record the end of <file 'a.csv' {f.did}>: Failed to write")


def test_threads_share_a_tracker_and_a_file(trail: Trail, f: TrackedFile) -> None:
    def work(number: int) -> None:
        with trail.tracker.file(f"{number}.csv", data_source="in") as own:
            with own.transform(f"clean-{number}"):
                f.branch().egress("lake")
            own.egress("lake")

    at_once(partial(work, number) for number in range(16))
    told = [(record.filename, record.transforms) for record in trail.records()]
    assert sorted(told) == sorted(
        [(f"{n}.csv", (f"clean-{n}",)) for n in range(16)] + [(f.filename, ())] * 16
    )


# -- joins ---------------------------------------------------------------------------------------------------


def test_a_joined_file_names_all_its_parents_on_each_event_also_those_of_other_processes(
    trail: Trail, f: TrackedFile
) -> None:
    other = "01890000-0000-7000-8000-000000000001"
    with f.transform("clean"), trail.tracker.join([f, other.upper()], "day.csv", data_source="day") as day:
        day.egress("lake")
    assert (day.parent_did, day.parent_dids) == (f.did, (f.did, other))
    of_day = [event for event in trail.events() if event["run"]["runId"] == day.did]
    assert [event["eventType"] for event in of_day] == ["START", "COMPLETE"]
    for event in of_day:
        facets = event["run"]["facets"]
        assert facets["parent"]["run"]["runId"] == f.did
        upstream = [
            (one["job"]["name"], one["run"]["runId"]) for one in facets["jobDependencies"]["upstream"]
        ]
        assert upstream == [("sftp-in", f.did), ("unknown", other)]
        told = decode_event(json.dumps(event).encode())
        assert isinstance(told, RunEvent)
        assert parents_of(told) == day.parent_dids
    assert trail.ends() == [("COMPLETE", ("clean",), None), ("COMPLETE", (), "lake")]


def test_an_adopted_file_ends_as_the_file_that_another_tracker_began(
    trail: Trail, settings: Settings, f: TrackedFile
) -> None:
    with Tracker(settings=settings) as other:
        part = other.file("part.csv", data_source="sftp-in", annotations={"batch": 7})
        did = other.join([f.did, part], "day.csv", data_source="day").did
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
    parent = "01890000-0000-7000-8000-00000000000f"
    with trail.tracker.adopt(did, "a.csv", data_source="in", parents=[parent], annotations={"k": 1}):
        pass
    record = trail.record()
    assert (record.did, record.filename, record.parent_did) == (did, "a.csv", parent)
    assert record.annotations == {"k": "1"}


def test_the_largest_join_is_kept(settings: Settings) -> None:
    trail = Trail(settings.with_values({"durability": "process"}, "tests"))
    parents = [trail.tracker.file(f"{n}.csv", data_source="in") for n in range(JOINED_MAX)]
    trail.tracker.join(parents, "day.csv", data_source="day").egress("lake")
    assert len(trail.records()) == JOINED_MAX + 1
    day = trail.events()[-1]
    assert len(day["run"]["facets"]["jobDependencies"]["upstream"]) == JOINED_MAX
    assert len(json.dumps(day)) < 200 * JOINED_MAX
    trail.tracker.close()
