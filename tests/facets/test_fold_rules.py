"""What the fold makes of one run, rule by rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from events import members

from waybill.facets import (
    PRODUCER,
    AnnotationRule,
    FinalState,
    ProvenanceRecord,
    RunEvent,
    decode_event,
    fold,
    keep_annotations,
    merge_states,
    observe,
    records_of,
)

MINUTE_MS = 60_000
NOON_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
INPUT = {"namespace": "s3://lake", "name": "in/orders.csv"}


def event(kind: str, minute: int = 0, **changes: Any) -> RunEvent:  # noqa: ANN401 - any JSON
    """An event of one run at so many minutes past noon; `facets` are run facets."""
    at = f"2026-01-31T12:{minute:02}:00Z"
    told = members("run", kind, at, facets=changes.pop("facets", None), job="ns/job")
    decoded = decode_event(msgspec.json.encode(told | changes))
    assert isinstance(decoded, RunEvent)
    return decoded


def records(*events: RunEvent) -> list[ProvenanceRecord]:
    return fold(events, system_name="host")


def record(*events: RunEvent) -> ProvenanceRecord:
    (only,) = records(*events)
    return only


def delta_file(**changes: object) -> dict[str, Any]:
    return {"waybill_deltaFile": {"did": "d", **changes}}


def tags(**said: str) -> dict[str, Any]:
    return {"tags": {"tags": [{"key": key, "value": value, "source": "USER"} for key, value in said.items()]}}


def properties(**said: str) -> dict[str, Any]:
    return {
        "spark_properties": {"properties": {f"spark.waybill.{key}": value for key, value in said.items()}}
    }


def parent(run_id: str) -> dict[str, Any]:
    return {"parent": {"run": {"runId": run_id}, "job": {"namespace": "n", "name": "j"}}}


# Runs without the facet


def test_a_plain_run_gives_a_derived_record() -> None:
    derived = record(
        event("START", 0, inputs=[INPUT], facets=parent("outer")),
        event("COMPLETE", 2, outputs=[{"namespace": "s3://lake", "name": "out/orders"}]),
    )
    assert derived == ProvenanceRecord(
        did="run",
        parent_did="outer",
        system_name="ns",
        data_source="s3://lake/in/orders.csv",
        filename="orders.csv",
        transforms=("job",),
        data_sink="s3://lake/out/orders",
        final_state=FinalState.COMPLETE,
        created=NOON_MS,
        completed=NOON_MS + 2 * MINUTE_MS,
    )


def test_each_output_has_its_own_record() -> None:
    outputs = [{"namespace": "o", "name": name} for name in ("b", "a")]
    made = records(event("START", outputs=outputs[:1]), event("COMPLETE", 1, outputs=outputs))
    assert [one.data_sink for one in made] == ["o/a", "o/b"]


def test_without_an_input_the_job_is_the_source() -> None:
    made = record(event("COMPLETE", job={"namespace": "ns", "name": "etl/load"}))
    assert (made.data_source, made.filename, made.data_sink) == ("etl/load", "load", None)


@pytest.mark.parametrize(
    ("name", "filename"), [("/data/in/", "in"), ("table", "table"), ("a/b.c", "b.c"), ("", "s3:")]
)
def test_the_filename_is_the_last_part_of_the_first_input(name: str, filename: str) -> None:
    made = record(event("COMPLETE", inputs=[{"namespace": "s3:", "name": name}]))
    assert (made.data_source, made.filename) == (f"s3:/{name}", filename)


def test_the_first_input_is_the_one_seen_earliest_then_listed_first() -> None:
    early = event("START", 0, inputs=[{"namespace": "n", "name": "z"}, {"namespace": "n", "name": "a"}])
    late = event("COMPLETE", 1, inputs=[{"namespace": "n", "name": "b"}])
    assert record(late, early).data_source == "n/z"


def test_a_job_without_a_namespace_belongs_to_the_stamped_system() -> None:
    assert record(event("COMPLETE", job={"namespace": "", "name": "job"})).system_name == "host"


# The deciding event


def test_the_deciding_event_names_the_job() -> None:
    renamed = {"namespace": "ns", "name": "renamed"}
    made = record(event("START"), event("FAIL", 1, job=renamed), event("COMPLETE", 2))
    assert (made.system_name, made.transforms) == ("ns", ("renamed",))


# A run id that comes again


def test_a_run_that_is_begun_again_ends_as_its_last_attempt_did() -> None:
    """As a scheduler's cleared task sends it."""
    failed = event("FAIL", 5, facets={"errorMessage": {"message": "no space", "programmingLanguage": "JAVA"}})
    begun = [event("START", 0), failed, event("START", 10, inputs=[INPUT])]
    made = record(*begun, event("COMPLETE", 19))
    assert (made.final_state, made.created, made.completed, made.annotations) == (
        FinalState.COMPLETE,
        NOON_MS,
        NOON_MS + 19 * MINUTE_MS,
        None,
    )
    # Until then, it is as its first attempt left it; the second one's failure has its own cause, or none.
    assert record(*begun).annotations == {"errorCause": "no space"}
    assert record(*begun, event("FAIL", 19)).annotations is None


def test_a_start_in_the_instant_of_an_end_begins_no_new_attempt() -> None:
    made = record(event("START", 5), event("FAIL", 5), event("COMPLETE", 9))
    assert (made.final_state, made.completed) == (FinalState.ERROR, NOON_MS + 5 * MINUTE_MS)


def test_one_run_id_in_two_job_namespaces_is_two_runs() -> None:
    other = {"namespace": "other", "name": "job"}
    first, second = records(
        event("START"),
        event("START", 1, job=other, outputs=[INPUT]),
        event("COMPLETE", 2),
        event("FAIL", 3, job=other),
    )
    assert (first.system_name, first.final_state, first.data_sink) == ("ns", FinalState.COMPLETE, None)
    assert (second.system_name, second.final_state, second.created) == (
        "other",
        FinalState.ERROR,
        NOON_MS + MINUTE_MS,
    )
    assert first.did == second.did


@pytest.mark.parametrize(
    ("facets", "cause"),
    [
        ({"errorMessage": {"message": "no space\n  at x", "programmingLanguage": "JAVA"}}, "no space"),
        ({"spark.exception": {"message": "\nboom\n  at x", "stackTrace": "…"}}, "boom"),
        ({"spark.exception": {"message": "thrown in x:", "stackTrace": "in x:\nCaused by: boom"}}, "boom"),
        ({"spark.exception": {"message": "boom"}, "errorMessage": {"message": "the truth"}}, "the truth"),
        ({"spark.exception": {"message": ["odd"]}}, None),
        ({"spark.exception": "odd"}, None),
        ({}, None),
    ],
)
def test_an_error_says_why_in_one_line(facets: dict[str, Any], cause: str | None) -> None:
    made = record(event("FAIL", 1, facets=facets), event("COMPLETE", 2))
    assert made.annotations == (None if cause is None else {"errorCause": cause})


def test_a_cause_that_the_pipeline_names_itself_counts_more() -> None:
    said = tags(waybill_errorCause="disk full") | {"errorMessage": {"message": "exit code 3"}}
    assert record(event("FAIL", facets=said)).annotations == {"errorCause": "disk full"}


def test_a_run_that_was_declared_an_error_says_why_too() -> None:
    said = tags(waybill_final_state="ERROR") | {"errorMessage": {"message": "half written"}}
    made = record(event("COMPLETE", facets=said))
    assert (made.final_state, made.annotations) == (FinalState.ERROR, {"errorCause": "half written"})


def written(rule: AnnotationRule, *events: RunEvent) -> dict[str, str] | None:
    """The annotations that a rule leaves of the only record of a run."""
    (only,) = records_of(merge_states(*(observe(one, system_name="host") for one in events)))
    return keep_annotations(only, rule).annotations


FAILED = event("FAIL", facets={"errorMessage": {"message": "disk full"}})
TOLD = event("FAIL", facets=delta_file(filename="f") | {"errorMessage": {"message": "disk full"}})
TRACKED = event(
    "FAIL",
    producer=PRODUCER,
    facets=delta_file(annotations={"k": "v"}) | {"errorMessage": {"message": "bad\u00e9" * 500}},
)
SKIPPED = event(
    "COMPLETE",
    producer=PRODUCER,
    facets=delta_file(finalState="FILTERED", annotations={"filteredCause": "old"}),
)
CORRECTED = event(
    "COMPLETE", producer=PRODUCER, facets=tags(waybill_final_state="FILTERED", waybill_filteredCause="exists")
)
CLOSED = event(
    "FAIL",
    producer=PRODUCER,
    facets=delta_file(annotations={"filteredCause": "noted at the begin"})
    | {"waybill_inferred": {"reason": "stale"}, "errorMessage": {"message": "nobody ended it"}},
)
SHORT = ("bad\u00e9" * 500).encode()[: 1_024 - 3].decode(errors="ignore") + "…"
STALE = {"waybill.evidence": "inferred: stale"}


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (FAILED, {"errorCause": "disk full"}),
        (TOLD, {"errorCause": "disk full"}),
        (TRACKED, {"errorCause": SHORT}),
        (SKIPPED, {"filteredCause": "old"}),
        (CORRECTED, {"filteredCause": "exists"}),
        (CLOSED, {"errorCause": "nobody ended it"}),
    ],
)
def test_a_reason_that_waybill_derived_is_kept_whatever_is_allowed(
    ended: RunEvent, reason: dict[str, str]
) -> None:
    rest = STALE if ended is CLOSED else {}
    assert written(AnnotationRule(), ended) == reason | rest
    assert written(AnnotationRule(frozenset(reason), reasons=False), ended) == reason | rest
    assert written(AnnotationRule(reasons=False), ended) == (rest or None)


@pytest.mark.parametrize(
    "ended",
    [
        event("FAIL", facets=delta_file(annotations={"errorCause": "mine", "waybill.errorCause": "forged"})),
        event("COMPLETE", producer=PRODUCER, facets=delta_file(annotations={"errorCause": "mine"})),
        event("FAIL", producer=PRODUCER, facets=delta_file(annotations={"errorCause": "mine"})),
        event("FAIL", facets=tags(errorCause="mine") | tags(waybill_errorCause="mine")),
        event("FAIL", facets=properties(errorCause="mine", **{"waybill.errorCause": "forged"})),
    ],
)
def test_a_senders_own_error_cause_is_filtered_as_ever(ended: RunEvent) -> None:
    assert written(AnnotationRule(), ended) is None
    forged = frozenset({"errorCause", "waybill.errorCause"})
    assert written(AnnotationRule(forged, reasons=False), ended) == {"errorCause": "mine"}


def test_a_cause_that_the_pipeline_names_itself_counts_where_it_is_allowed() -> None:
    said = tags(waybill_errorCause="disk full") | {"errorMessage": {"message": "exit code 3"}}
    failed = event("FAIL", facets=said)
    assert written(AnnotationRule(), failed) == {"errorCause": "exit code 3"}
    assert written(AnnotationRule(frozenset({"errorCause"})), failed) == {"errorCause": "disk full"}


def test_what_went_wrong_on_the_way_to_success_is_no_cause() -> None:
    retried = event("RUNNING", 1, facets={"errorMessage": {"message": "lost a task"}})
    assert record(retried, event("COMPLETE", 2)).annotations is None


# Overrides and annotations


def test_every_derived_field_can_be_replaced_by_a_tag() -> None:
    said = tags(
        waybill_did="D",
        waybill_parent_did="P",
        waybill_system_name="S",
        waybill_data_source="source",
        waybill_filename="f",
        waybill_transforms="one, two,",
        waybill_data_sink="sink",
        waybill_final_state="FILTERED",
    )
    outputs = [{"namespace": "o", "name": name} for name in ("a", "b")]
    assert record(event("COMPLETE", inputs=[INPUT], outputs=outputs, facets=said)) == ProvenanceRecord(
        did="D",
        parent_did="P",
        system_name="S",
        data_source="source",
        filename="f",
        transforms=("one", "two"),
        data_sink="sink",
        final_state=FinalState.FILTERED,
        created=NOON_MS,
        completed=NOON_MS,
    )


def test_the_tags_of_a_spark_job_are_as_run_tags() -> None:
    connect = "SparkConnect_SessionTag_User_me_Session_1_Tag_"
    listed = (
        f"spark-session-1,{connect}waybill:app=orders=2,waybill:waybill_did=D,waybill:did=plain,waybill:x"
    )
    made = record(
        event("START", facets={"spark_properties": {"properties": {"spark.job.tags": listed}}}),
        event("COMPLETE", 1),
    )
    assert (made.did, made.annotations) == ("D", {"app": "orders=2", "did": "plain"})


START, RUNNING, COMPLETE = ("START", 0), ("RUNNING", 1), ("COMPLETE", 2)
SESSION, ACTION, LATE = (properties(did=one, note=one) for one in ("session", "action", "late"))
OF_ACTION = {"spark_jobDetails": {"jobId": 3}}
TAG = tags(note="tag", waybill_did="tag")


@pytest.mark.parametrize(
    ("told", "which"),
    [
        # A property counts before a later tag, also one of a Spark job.
        ([(START, SESSION), (COMPLETE, TAG)], "session"),
        ([(START, SESSION), (COMPLETE, TAG | OF_ACTION)], "session"),
        # What was set for the action counts before what was set for the session.
        ([(START, SESSION), (RUNNING, ACTION | OF_ACTION), (COMPLETE, SESSION)], "action"),
        # What a start or a job could have said, and has not, an end cannot say; a tag can.
        ([(START, properties()), (RUNNING, LATE), (COMPLETE, LATE)], None),
        ([(RUNNING, properties() | OF_ACTION), (COMPLETE, LATE)], None),
        ([(START, properties()), (RUNNING, TAG), (COMPLETE, LATE)], "tag"),
        # An end says what was set if nothing before it could.
        ([(START, {}), (COMPLETE, LATE)], "late"),
        ([(RUNNING, properties()), (COMPLETE, LATE)], "late"),
        ([(START, SESSION), (COMPLETE, LATE)], "session"),
        # Of equal rank, the later value counts, then the greater.
        ([(START, TAG), (COMPLETE, tags(note="late", waybill_did="late"))], "late"),
        ([(COMPLETE, TAG), (COMPLETE, tags(note="a", waybill_did="a"))], "tag"),
    ],
)
def test_which_of_several_values_counts(
    told: list[tuple[tuple[str, int], dict[str, Any]]], which: str | None
) -> None:
    made = record(*(event(*when, facets=facets) for when, facets in told))
    assert (made.did, made.annotations) == (which or "run", which and {"note": which})


@pytest.mark.parametrize(
    "field", ["did", "parent_did", "system_name", "filename", "transforms", "final_state"]
)
@pytest.mark.parametrize("value", ["", ",", "BANANA"])
def test_a_value_that_its_field_cannot_hold_is_ignored(field: str, value: str) -> None:
    plain = record(event("COMPLETE"))
    said = record(event("COMPLETE", facets=properties(**{field: value})))
    possible = value and field != "final_state" and not (field == "transforms" and value == ",")
    assert (said == plain) is not bool(possible)
    assert said.annotations is None


def test_other_keys_of_ours_and_plain_tags_become_annotations() -> None:
    said = tags(waybill_owner="data", env="prod", did="not a field here", waybill_="nameless") | properties(
        blob='{"a": [1, 2]}'
    )
    assert record(event("COMPLETE", facets=said)).annotations == {
        "blob": '{"a": [1, 2]}',
        "did": "not a field here",
        "env": "prod",
        "owner": "data",
    }


def test_properties_that_are_not_ours_or_no_text_say_nothing() -> None:
    odd = {"properties": {"spark.app.name": "waybill", "spark.waybill.did": 7, "xspark.waybill.note": "x"}}
    assert record(event("COMPLETE", facets={"spark_properties": odd})) == record(event("COMPLETE"))


# Runs with the facet


@pytest.mark.parametrize(
    ("kind", "state"),
    [("COMPLETE", FinalState.COMPLETE), ("FAIL", FinalState.ERROR), ("ABORT", FinalState.CANCELLED)],
)
def test_what_the_facet_leaves_out_comes_from_the_event(kind: str, state: FinalState) -> None:
    assert record(event(kind, 1, facets=delta_file())) == ProvenanceRecord(
        did="d",
        system_name="host",
        data_source="job",
        filename="",
        transforms=(),
        final_state=state,
        created=NOON_MS + MINUTE_MS,
        completed=NOON_MS + MINUTE_MS,
    )


def test_a_fan_out_has_one_record_for_each_path() -> None:
    paths = [event("COMPLETE", 1, facets=delta_file(dataSink=sink, transforms=[sink])) for sink in ("a", "b")]
    made = records(event("START", facets=delta_file()), *paths, *paths)
    assert [(one.data_sink, one.transforms) for one in made] == [("a", ("a",)), ("b", ("b",))]


def test_a_run_that_carries_the_facet_once_derives_nothing() -> None:
    facets = delta_file() | tags(env="prod", waybill_did="other")
    made = record(event("COMPLETE", 1, facets=facets, inputs=[INPUT]), event("FAIL", 2, outputs=[INPUT]))
    assert (made.did, made.data_source, made.data_sink, made.annotations) == ("d", "job", None, None)


def test_a_state_tells_its_run_its_parent_and_whether_it_ended() -> None:
    begun = observe(event("START", facets=parent("outer")), system_name="host")
    assert (begun.run_id, begun.parent_run_id, begun.ended, begun.faceted) == ("run", "outer", False, False)
    ended = merge_states(begun, observe(event("FAIL", 1), system_name="host"))
    assert (ended.parent_run_id, ended.ended, ended.faceted) == ("outer", True, False)
    carried = merge_states(ended, observe(event("COMPLETE", 1, facets=delta_file()), system_name="host"))
    assert carried.faceted


def test_the_order_in_which_an_event_lists_its_outputs_says_nothing() -> None:
    outputs = [{"namespace": "o", "name": str(number)} for number in range(20)]
    states = {
        observe(event("COMPLETE", outputs=listed), system_name="host").outputs
        for listed in (outputs, outputs[::-1])
    }
    assert len(states) == 1


def test_states_of_two_runs_do_not_merge() -> None:
    a = observe(event("START"), system_name="host")
    b = observe(event("START", run={"runId": "other"}), system_name="host")
    with pytest.raises(ValueError, match="merge states of one run only"):
        merge_states(a, b)


# Ends that Waybill inferred


def inferred(reason: str = "the program that ran it is gone") -> dict[str, Any]:
    return {"waybill_inferred": {"reason": reason}}


def test_of_two_inferred_ends_the_present_rule_decides() -> None:
    stale = record(event("ABORT", 5, facets=inferred("stale")), event("ABORT", 4, facets=inferred("first")))
    assert stale.annotations == {"waybill.evidence": "inferred: first"}


def test_an_inferred_event_that_is_no_end_ends_nothing() -> None:
    assert records(event("START", 0), event("OTHER", 1, facets=inferred())) == []


def test_a_file_whose_end_was_inferred_is_recorded_with_what_is_known_of_it() -> None:
    facet = delta_file(filename="a.csv", dataSource="in", annotations={"customer": "acme"})
    (gone,) = records(
        event("START", 0, facets=facet, outputs=[{"namespace": "ns", "name": "lake"}]),
        event("ABORT", 5, facets={**facet, **inferred("stale")}),
    )
    assert (gone.did, gone.filename, gone.data_source, gone.data_sink) == ("d", "a.csv", "in", None)
    assert gone.annotations == {"customer": "acme", "waybill.evidence": "inferred: stale"}


def test_a_long_reason_is_cut_and_an_absent_one_is_named() -> None:
    cut = record(event("ABORT", 5, facets=inferred("x" * 5_000))).annotations
    assert cut == {"waybill.evidence": "inferred: " + "x" * 200}
    absent = record(event("ABORT", 5, facets={"waybill_inferred": {}})).annotations
    assert absent == {"waybill.evidence": "inferred: no reason is given"}


def test_nobody_else_can_say_on_what_a_derived_record_rests() -> None:
    said = {"tags": {"tags": [{"key": "waybill.evidence", "value": "mine", "source": "USER"}]}}
    assert record(event("COMPLETE", 1, facets=said)).annotations is None


# What Spark's listener says, and who else has seen it

LISTENER = "https://github.com/OpenLineage/OpenLineage/tree/1.53.0/integration/spark"
OUT = {"namespace": "file", "name": "/out"}
INSERT = {"namespace": "ns", "name": "app.execute_insert_into_hadoop_fs_relation_command.out"}
WRITTEN = {**OUT, "outputFacets": {"outputStatistics": {"rowCount": 0}}}


def seen_by(source: str) -> dict[str, Any]:
    return {"waybill_evidence": {"source": source}}


def evidence(*events: RunEvent) -> str | None:
    return (record(*events).annotations or {}).get("waybill.evidence")


END = event("COMPLETE", 1, producer=LISTENER)
START_OF_INSERT, END_OF_INSERT = (
    event(kind, 1, producer=LISTENER, job=INSERT, outputs=[OUT]) for kind in ("START", "COMPLETE")
)


def running(**sign: Any) -> RunEvent:  # noqa: ANN401 - any JSON
    return event("RUNNING", 1, producer=LISTENER, job=INSERT, **sign)


@pytest.mark.parametrize(
    ("told", "rests_on"),
    [
        ([END], "listener only"),
        ([event("COMPLETE", 1, producer=LISTENER, facets=seen_by("listener"))], "listener only"),
        ([event("COMPLETE", 1)], None),
        ([event("FAIL", 1, producer=LISTENER)], None),
        ([event("ABORT", 1, producer=LISTENER)], None),
        # Who else has seen it takes the mark away, whenever that is said.
        ([event("COMPLETE", 5, facets=seen_by("session")), END], None),
        ([event("OTHER", 5, facets=seen_by("event log")), END], None),
        ([event("OTHER", 5, facets=seen_by("a friend")), END], "listener only"),
        ([END_OF_INSERT, START_OF_INSERT], "listener only, no sign of a write"),
        # The session has seen that it succeeded, as a write does that ignores what is there.
        ([END_OF_INSERT, event("OTHER", 2, facets=seen_by("session"))], "no sign of a write"),
        ([running(facets={"spark_jobDetails": {"jobId": 1}}), END_OF_INSERT], "listener only"),
        ([running(outputs=[WRITTEN]), END_OF_INSERT], "listener only"),
    ],
)
def test_on_what_a_record_of_sparks_rests(told: list[RunEvent], rests_on: str | None) -> None:
    assert evidence(*told) == rests_on


@pytest.mark.parametrize("kind", ["COMPLETE", "FAIL", "ABORT"])
def test_what_an_application_left_open_is_a_record_only_where_it_has_a_sink(kind: str) -> None:
    about: dict[str, Any] = {
        "producer": LISTENER,
        "job": {
            **INSERT,
            "facets": {"jobType": {"integration": "SPARK", "processingType": "BATCH", "jobType": "SQL_JOB"}},
        },
    }
    end = event(kind, 1, facets=inferred("its application has ended"), job=about["job"])
    assert records(event("START", 0, **about), end) == []
    assert evidence(event("START", 0, **about, outputs=[OUT]), end) == "inferred: its application has ended"


def test_an_inferred_end_is_marked_as_that_alone() -> None:
    gone = event("ABORT", 1, producer=LISTENER, facets=inferred("stale"))
    assert evidence(event("START", producer=LISTENER), gone) == "inferred: stale"


@pytest.mark.parametrize(
    ("change", "sink"),
    [
        ({"lifecycleStateChange": "DROP"}, None),
        ({"lifecycleStateChange": "ALTER"}, None),
        ({"lifecycleStateChange": "RENAME"}, None),
        ({"lifecycleStateChange": "OVERWRITE"}, "file:/out"),
        ({"lifecycleStateChange": "TRUNCATE"}, "file:/out"),
        ({"lifecycleStateChange": 7}, "file:/out"),
        ("DROP", "file:/out"),
    ],
)
def test_a_table_that_is_dropped_altered_or_renamed_is_no_sink(change: object, sink: str | None) -> None:
    table = {**OUT, "facets": {"lifecycleStateChange": change}}
    assert record(event("START", outputs=[table]), event("COMPLETE", 1, outputs=[table])).data_sink == sink


@pytest.mark.parametrize("query", ["in_memory_table_scan", "adaptive_spark_plan"])
def test_a_query_has_no_sink_unless_data_is_counted_or_its_name_says_what_it_writes(query: str) -> None:
    job = {"namespace": "ns", "name": f"app.{query}"}
    end = event("COMPLETE", 1, producer=LISTENER, job=job, outputs=[OUT])
    assert record(end).data_sink is None
    assert (
        record(event("RUNNING", producer=LISTENER, job=job, outputs=[WRITTEN]), end).data_sink == "file:/out"
    )
    named = {"namespace": "ns", "name": f"app.{query}.lake_out"}
    assert record(event("COMPLETE", 1, producer=LISTENER, job=named, outputs=[OUT])).data_sink == "file:/out"


@pytest.mark.parametrize(
    ("namespace", "name", "text"),
    [
        ("file", "/data/lake", "file:/data/lake"),
        ("hdfs://name:9000", "/data/lake", "hdfs://name:9000/data/lake"),
        ("s3://lake", "in/a.csv", "s3://lake/in/a.csv"),
        ("postgres://host:5432", "db.public.orders", "postgres://host:5432/db.public.orders"),
        ("warehouse", "orders", "warehouse/orders"),
    ],
)
def test_a_dataset_has_the_name_that_a_person_types(namespace: str, name: str, text: str) -> None:
    dataset = {"namespace": namespace, "name": name}
    made = record(event("COMPLETE", inputs=[dataset], outputs=[dataset]))
    assert (made.data_source, made.data_sink) == (text, text)


SQL_JOB = {"jobType": {"processingType": "BATCH", "integration": "SPARK", "jobType": "SQL_JOB"}}
PROGRAM = {"parent": {"run": {"runId": "p"}, "job": {"namespace": "ns", "name": "orders"}}}


def spark_job(name: str) -> dict[str, Any]:
    return {"namespace": "ns", "name": f"orders.{name}", "facets": SQL_JOB}


def test_a_write_of_sparks_without_an_input_comes_from_its_program() -> None:
    end = event("COMPLETE", job=spark_job("append_data.db_t"), facets=PROGRAM, outputs=[OUT])
    made = record(end)
    assert (made.data_source, made.filename, made.transforms) == (
        "orders",
        "out",
        ("orders.append_data.db_t",),
    )


@pytest.mark.parametrize(
    ("counted", "sinks"), [({"fileCount": 2}, []), ({"fileCount": 0}, ["file:/out"]), ({}, ["file:/out"])]
)
def test_files_that_another_run_wrote_within_are_recorded_once(
    counted: dict[str, int], sinks: list[str]
) -> None:
    table = {**OUT, "outputFacets": {"outputStatistics": {"rowCount": 5, **counted}}}
    job = spark_job("execute_create_data_source_table_as_select_command.db_t")
    made = records(event("START", job=job, outputs=[OUT]), event("COMPLETE", 1, job=job, outputs=[table]))
    assert [one.data_sink for one in made] == sinks
    (failed,) = records(event("FAIL", 1, job=job, outputs=[table]))
    assert failed.data_sink == "file:/out"
