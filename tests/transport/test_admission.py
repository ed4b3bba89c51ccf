"""Admission: which events and records are kept, which are refused, and the errors."""

from __future__ import annotations

import contextlib
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from waybill.facets import (
    UNREADABLE,
    DatasetEvent,
    Event,
    JobEvent,
    RunEvent,
    decode_event,
    decode_records,
    fold,
    observe,
)
from waybill.facets.event import DATA_SINK, DeltaFile, ErrorMessage, Job, Parent, ParentRun, RunTag
from waybill.transport.admission import DEPTH_MAX, MAX_BODY_BYTES, Redaction, admit_event, check_records
from waybill.transport.admission.repeated_keys import repeated_in_records
from waybill.transport.errors import AdmissionError, Reason

EVENT: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00Z",
    "eventType": "COMPLETE",
    "run": {"runId": "0197c1f0-7c4e-7a3b-9d52-3f2b8f0c6a11", "facets": {}},
    "job": {"namespace": "ns", "name": "job", "facets": {}},
    "inputs": [{"namespace": "in", "name": "a"}],
    "outputs": [{"namespace": "out", "name": "b"}],
    "producer": "https://example.com/tests",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}
RECORD: dict[str, Any] = {
    "did": "d",
    "systemName": "east",
    "dataSource": "in",
    "filename": "f",
    "transforms": ["t"],
    "finalState": "COMPLETE",
    "created": 1_769_860_800_000,
    "completed": 1_769_860_801_000,
}
SINK = {"namespace": "s", "name": "n", "type": DATA_SINK}
ABSENT = object()
SIDES = ("inputs", "outputs")


def changed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of `base` with one value replaced, added or (ABSENT) removed; `path` has slashes."""
    copy: dict[str, Any] = json.loads(json.dumps(base))
    *outer, last = path.split("/")
    place: Any = copy
    for step in outer:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return copy


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def admitted(event: dict[str, Any]) -> RunEvent:
    decoded = admit_event(as_json(event))
    assert isinstance(decoded, RunEvent)
    return decoded


def refusal(body: bytes) -> AdmissionError:
    with pytest.raises(AdmissionError) as caught:
        admit_event(body)
    return caught.value


# Bodies that contain no event at all


MALFORMED, INVALID, TOO_DEEP = Reason.MALFORMED, Reason.INVALID, Reason.TOO_DEEP


@pytest.mark.parametrize(
    ("body", "what", "reason", "status"),
    [
        (b"", "the body is not valid JSON", MALFORMED, 400),
        (b"hello", "the body is not valid JSON", MALFORMED, 400),
        (as_json(EVENT)[:-1], "the body is not valid JSON", MALFORMED, 400),
        (as_json(EVENT) + b"{}", "the body is not valid JSON", MALFORMED, 400),
        (b"\xef\xbb\xbf" + as_json(EVENT), "the body is not valid JSON", MALFORMED, 400),
        (as_json(EVENT).replace(b'"job"', b'"j\x00b"', 1), "the body is not valid JSON", MALFORMED, 400),
        (as_json(EVENT).replace(b'"ns"', b'"\\ud800"'), "the body is not valid JSON", MALFORMED, 400),
        (as_json(EVENT).replace(b'"ns"', b'"\xff"'), "the body is not valid UTF-8", MALFORMED, 400),
        (as_json({"x": "?"}).replace(b"?", b"\xff"), "the body is not valid UTF-8", MALFORMED, 400),
        (as_json(EVENT).decode().encode("utf-16"), "the body is not valid UTF-8", MALFORMED, 400),
        (b"{" * 9_000, "the body is not valid JSON", MALFORMED, 400),
        (b'{"unknown":' * 200_000 + b"1" + b"}" * 200_000, "it is nested too deeply", TOO_DEEP, 422),
        (b"[" * 9_000, "expected `object`, got `array`", INVALID, 422),
        (b"[" + as_json(EVENT) + b"]", "expected `object`, got `array`", INVALID, 422),
        (b"null", "expected `object`, got `null`", INVALID, 422),
        (b'"event"', "expected `object`, got `str`", INVALID, 422),
        (b"17", "expected `object`, got `int`", INVALID, 422),
        (b" " * (MAX_BODY_BYTES + 1), "the body has 67,108,865 bytes", Reason.TOO_LARGE, 413),
    ],
)
def test_a_body_that_is_no_event_is_refused_as_a_whole_with_a_reason_that_programs_can_read(
    body: bytes, what: str, reason: Reason, status: int
) -> None:
    error = refusal(body)
    assert error.where == "$"
    assert error.what.startswith(what)
    assert error.way_out
    assert (error.reason, error.reason.http_status) == (reason, status)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.reason, copy.way_out) == (
        AdmissionError,
        str(error),
        reason,
        error.way_out,
    )


def nested(depth: int, text: str = "") -> bytes:
    """An event of this depth, alternating objects and arrays."""
    levels = range(depth - 1)  # the event itself is the first
    begin = b"".join(b'{"a":' if level % 2 else b"[" for level in levels)
    end = b"".join(b"}" if level % 2 else b"]" for level in reversed(levels))
    return as_json(EVENT)[:-1] + b',"unknown":' + begin + as_json(text) + end + b"}"


@pytest.mark.parametrize("text", ["", "[" * 500, '"[', '\\"[[', "\\"])
def test_an_event_is_nested_in_at_most_200_levels(text: str) -> None:
    assert admit_event(nested(DEPTH_MAX, text))
    assert refusal(nested(DEPTH_MAX + 1, text)).reason is Reason.TOO_DEEP
    assert refusal(nested(970, text)).reason is Reason.TOO_DEEP


def test_what_is_wide_is_not_deep() -> None:
    wide = [[{"a": [{}, "]", []]}] * 100] * 100
    assert admit_event(as_json(EVENT | {"unknown": wide}))


def test_records_are_nested_as_deep_as_events() -> None:
    def records(depth: int) -> bytes:
        return b'[{"unknown":' + b"[" * (depth - 2) + b"]" * (depth - 2) + b"," + as_json(RECORD)[1:] + b"]"

    assert check_records(records(DEPTH_MAX)) == (records(DEPTH_MAX), 1)
    with pytest.raises(AdmissionError) as caught:
        check_records(records(DEPTH_MAX + 1))
    assert caught.value.reason is Reason.TOO_DEEP


def test_whatever_is_admitted_can_be_read_with_most_of_the_stack_in_use() -> None:
    def read(left: int) -> object:
        return read(left - 1) if left else decode_event(nested(DEPTH_MAX))

    assert read(700)


def test_a_body_is_at_most_64_mib() -> None:
    padding = MAX_BODY_BYTES - len(as_json(EVENT | {"unknown": ""}))
    assert admit_event(as_json(EVENT | {"unknown": "x" * padding}))


# Events


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        *((path, ABSENT, "is missing") for path in ("eventTime", "eventType", "producer", "run", "job")),
        *((path, ABSENT, "is missing") for path in ("run.runId", "job.namespace", "job.name")),
        *((f"{side}.0.{key}", ABSENT, "is missing") for side in SIDES for key in ("namespace", "name")),
        ("eventTime", 1_769_860_800_000, "expected `str`, got `int`"),
        ("eventTime", None, "expected `str`, got `null`"),
        ("eventType", None, "expected `str`, got `null`"),
        ("eventType", 3, "expected `str`, got `int`"),
        ("producer", None, "expected `str`, got `null`"),
        ("schemaURL", [], "expected `str | null`, got `array`"),
        ("run", "r", "expected `object`, got `str`"),
        ("run.runId", "", "expected `str` of length >= 1"),
        ("run.runId", 17, "expected `str`, got `int`"),
        ("run.facets", [], "expected `object | null`, got `array`"),
        ("job.name", None, "expected `str`, got `null`"),
        ("job.namespace", {}, "expected `str`, got `object`"),
        ("inputs", {}, "expected `array | null`, got `object`"),
        ("outputs", "b", "expected `array | null`, got `str`"),
        ("run.facets.waybill_deltaFile", {}, "is missing"),
        ("run.facets.waybill_deltaFile", {"did": ""}, "expected `str` of length >= 1"),
        ("run.facets.waybill_deltaFile", {"did": "d", "finalState": "BANANA"}, "invalid enum value 'BANANA'"),
        (
            "run.facets.waybill_deltaFile",
            {"did": "d", "transforms": "t"},
            "expected `array | null`, got `str`",
        ),
        ("run.facets.waybill_deltaFile", {"did": "d", "annotations": {"k": 1}}, "expected `str`, got `int`"),
        ("run.facets.waybill_deltaFile", {"did": "d", "created": 5}, "expected `str | null`, got `int`"),
    ],
)
def test_what_is_missing_or_of_the_wrong_kind_is_refused_at_its_place(
    path: str, value: object, what: str
) -> None:
    error = refusal(as_json(changed(EVENT, path.replace(".", "/"), value)))
    assert error.where.startswith(f"$.{path}".replace(".0", "[0]"))
    assert error.what == what
    assert error.way_out.startswith("give ")


@pytest.mark.parametrize(
    ("facet", "value"),
    [
        ("parent", "p"),
        ("parent", {"job": {"namespace": "n", "name": "j"}}),
        ("parent", {"run": {"runId": "p"}}),
        ("errorMessage", {"message": 5}),
        ("errorMessage", []),
        ("tags", 7),
        ("tags", {"tags": [{"key": "k"}, {"key": "k", "value": 1}, None]}),
        ("waybill_inferred", {"reason": 1}),
        ("waybill_evidence", "none"),
        ("waybill_presented", {"jobName": "j"}),
        ("waybill_summary", 3),
    ],
)
def test_a_facet_that_cannot_be_read_is_left_out_and_hides_no_other(facet: str, value: object) -> None:
    others = {
        "parent": {"run": {"runId": "p"}, "job": {"namespace": "n", "name": "j"}},
        "errorMessage": {"message": "why"},
        "tags": {"tags": [{"key": "team", "value": "night"}, {"key": "rows", "value": 12}]},
        "waybill_deltaFile": {"did": "d"},
    }
    body = as_json(changed(EVENT, "run/facets", others | {facet: value}))
    assert Redaction().admit(body) == body
    facets = admitted(changed(EVENT, "run/facets", others | {facet: value})).run.facets
    assert facets is not None
    found = (facets.parent, facets.error_message, facets.tags and facets.tags.tags, facets.delta_file)
    known = (
        Parent(ParentRun("p"), Job("n", "j")),
        ErrorMessage("why"),
        (RunTag("team", "night"),),
        DeltaFile(did="d"),
    )
    lost = {"parent": 0, "errorMessage": 1, "tags": 2}.get(facet)
    assert [one for at, one in enumerate(found) if at != lost] == [
        one for at, one in enumerate(known) if at != lost
    ]
    assert lost is None or not found[lost]


@pytest.mark.parametrize(
    ("source", "is_told"), [("USER", True), (None, True), (7, True), ("OPENLINEAGE_CLIENT", False)]
)
def test_a_tag_of_the_client_about_itself_is_no_annotation(source: object, is_told: bool) -> None:  # noqa: FBT001
    tags = [{"key": "openlineage_client_version", "value": "1", "source": source}]
    (record,) = fold([admitted(changed(EVENT, "run/facets/tags", {"tags": tags}))], system_name="host")
    assert (record.annotations is not None) is is_told


def test_a_failure_without_a_message_has_its_stack_trace_as_the_cause() -> None:
    trace = "java.lang.NullPointerException\n\tat org.example.Sink.write(Sink.java:7)"
    facet = {"message": None, "programmingLanguage": "JAVA", "stackTrace": trace}
    event = changed(EVENT | {"eventType": "FAIL"}, "run/facets/errorMessage", facet)
    (record,) = fold([admitted(event)], system_name="host")
    assert record.annotations == {"errorCause": "java.lang.NullPointerException"}


@pytest.mark.parametrize("field", ["eventTime", "created", "completed"])
@pytest.mark.parametrize("instant", ["yesterday", "1969-12-31T23:59:59Z", "2026" * 100_000])
def test_an_instant_that_is_none_or_out_of_range_is_refused_in_a_short_sentence(
    field: str, instant: str
) -> None:
    path = field if field == "eventTime" else f"run/facets/waybill_deltaFile/{field}"
    event = changed(EVENT, "run/facets/waybill_deltaFile", {"did": "d"})
    error = refusal(as_json(changed(event, path, instant)))
    assert error.where == "$." + path.replace("/", ".")
    assert "ISO 8601" in error.way_out
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("run/runId", "a\0b", "run.runId"),
        ("producer", "a\0b", "producer"),
        ("unknown", "a\0b", "unknown"),
        ("inputs/0/name", "a\0b", "inputs[0].name"),
        ("job/facets/waybill_a", "a\0b", "job.facets.waybill_a"),
        ("run/facets/waybill_a", {"k": [{"a\0b": 1}]}, "run.facets.waybill_a.k[0]"),
    ],
)
def test_a_nul_character_is_refused_at_its_place(path: str, value: object, where: str) -> None:
    error = refusal(as_json(changed(EVENT, path, value)))
    assert error.where == f"$.{where}"
    assert "NUL" in error.what


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("run/facets/spark_properties", {"properties": {"csv.delimiter": "\0", "spark.waybill.a": "\0"}}),
        ("run/facets/tags", {"tags": [{"key": "a", "value": "\0"}, {"key": "\0", "value": "a"}]}),
        ("job/facets/acme", {"\0": "a"}),
        ("job/facets", {"\0": "a"}),
        (
            "inputs/0/facets",
            {"symlinks": {"identifiers": [SINK | {"name": "\0"}, SINK | {"namespace": "\0"}]}},
        ),
        ("outputs/0/outputFacets", {"acme": ["\0"]}),
        ("inputs/0/inputFacets", "\0"),
    ],
)
def test_a_nul_character_in_a_facet_of_others_is_kept_and_reaches_no_record(
    where: str, value: object
) -> None:
    (plain,) = fold([admitted(EVENT)], system_name="host")
    assert fold([admitted(changed(EVENT, where, value))], system_name="host") == [plain]


def test_a_nul_character_in_an_error_is_replaced() -> None:
    event = changed(EVENT | {"eventType": "FAIL"}, "run/facets/errorMessage", {"message": "a\0b"})
    (record,) = fold([admitted(event)], system_name="host")
    assert record.annotations == {"errorCause": "a\ufffdb"}


@pytest.mark.parametrize(
    ("escape", "is_nul"),
    [
        (rb"\u0000", True),
        (rb"\\u0000", False),
        (rb"\\\u0000", True),
        (rb"\\\\u0000", False),
        (rb"\n\u0000", True),
    ],
)
def test_only_an_escaped_nul_is_one_and_not_its_spelling(escape: bytes, is_nul: bool) -> None:  # noqa: FBT001
    body = as_json(changed(EVENT, "unknown", "?")).replace(b"?", escape)
    if is_nul:
        assert refusal(body).where == "$.unknown"
    else:
        assert admit_event(body)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("unknown", {"any": ["thing"]}),
        ("run/facets/acme_custom", {"no": "schema"}),
        ("run/facets/acme_custom", 7),
        ("run/facets/spark.exception", "not an object"),
        ("run/facets/spark_properties", []),
        ("run/facets/parent", None),
        ("run/facets/nominalTime", {"nominalStartTime": "x"}),
        ("job/facets", None),
        ("inputs", None),
        ("inputs", []),
        ("schemaURL", None),
        ("schemaURL", "urn:anything"),
    ],
)
def test_what_waybill_does_not_read_is_kept(path: str, value: object) -> None:
    assert admitted(changed(EVENT, path, value)).job.name == "job"


@pytest.mark.parametrize("run_id", ["17", "scheduled__2026-01-31", "../../x", "☃", " "])
def test_a_run_id_that_is_no_uuid_is_kept_as_it_is(run_id: str) -> None:
    event = admitted(changed(EVENT, "run/runId", run_id))
    assert [record.did for record in fold([event], system_name="host")] == [run_id]


SYSTEM_NAMES = ["x" * 300, "../../x", "a/b", "a'b", "..", "C:\\x", "ünïcode ☃", "a\nb", "%2e%2e"]


@pytest.mark.parametrize("name", [*SYSTEM_NAMES, ""])
def test_any_system_name_is_kept_whole_in_the_record_and_an_empty_one_is_the_stamped_one(name: str) -> None:
    derived = admitted(changed(EVENT, "job/namespace", name))
    faceted = admitted(changed(EVENT, "run/facets/waybill_deltaFile", {"did": "d", "systemName": name}))
    records = fold([derived], system_name="host") + fold([faceted], system_name="host")
    body, _ = check_records(as_json([RECORD | {"systemName": name}]))
    records += decode_records(body, system_name="host")
    assert [record.system_name for record in records] == [name or "host"] * 3


def test_static_events_are_admitted_by_their_own_rules() -> None:
    spec = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
    common = {"eventTime": EVENT["eventTime"], "producer": EVENT["producer"]}
    job = common | {"job": {"namespace": "n", "name": "j"}, "schemaURL": spec + "JobEvent"}
    dataset = common | {"dataset": {"namespace": "n", "name": "d"}, "schemaURL": spec + "DatasetEvent"}
    assert isinstance(admit_event(as_json(job)), JobEvent)
    assert isinstance(admit_event(as_json(dataset)), DatasetEvent)
    assert refusal(as_json(changed(job, "job", ABSENT))).where == "$.job"
    assert refusal(as_json(changed(dataset, "dataset/name", ABSENT))).where == "$.dataset.name"
    assert refusal(as_json(job | {"eventTime": "now"})).where == "$.eventTime"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["spark.waybill.did", "FAIL"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
PATHS = [
    "eventTime",
    "eventType",
    "run/runId",
    "job/name",
    "inputs",
    "outputs/0/name",
    "schemaURL",
    "run/facets/parent",
    "run/facets/errorMessage",
    "run/facets/errorMessage/message",
    "run/facets/tags/tags",
    "run/facets/spark.exception",
    "run/facets/spark.exception/message",
    "run/facets/spark_properties",
    "run/facets/spark_properties/properties",
    "run/facets/waybill_deltaFile",
    "run/facets/waybill_deltaFile/did",
    "run/facets/waybill_deltaFile/created",
    "run/facets/waybill_deltaFile/annotations",
]


@given(st.lists(st.tuples(st.sampled_from(PATHS), JSON), max_size=3, unique_by=lambda change: change[0]))
def test_whatever_is_admitted_folds_and_the_rest_is_refused_with_a_reason(
    changes: list[tuple[str, object]],
) -> None:
    event = EVENT
    for path, value in sorted(changes, reverse=True, key=lambda change: change[0]):
        event = changed(event, path, value)
    outcome = outcome_of(as_json(event))
    if isinstance(outcome, AdmissionError):
        assert outcome.where.startswith("$")
        assert outcome.what
        assert outcome.way_out
    else:
        assert isinstance(outcome, RunEvent)
        assert observe(outcome, system_name="host").run_id == outcome.run.runId


def outcome_of(body: bytes) -> Event | AdmissionError:
    try:
        return admit_event(body)
    except AdmissionError as error:
        return error


# Records


@given(st.lists(st.tuples(st.sampled_from([*RECORD, "annotations"]), JSON), max_size=2), st.integers(0, 2))
def test_what_is_kept_is_what_its_readers_can_decode(
    changes: list[tuple[str, object]], neighbours: int
) -> None:
    record = RECORD | dict(changes)
    body = as_json([*[RECORD] * neighbours, record] if neighbours else record)
    try:
        readable: int | None = len(decode_records(body, system_name=""))
    except UNREADABLE:
        readable = None
    if readable is None or b"\\u0000" in body:
        with pytest.raises(AdmissionError):
            check_records(body)
    else:
        assert check_records(body) == (body, readable)


@pytest.mark.parametrize("case", [str.upper, str.lower, str.capitalize])
def test_keys_of_records_are_taken_in_any_case_as_deltafi_takes_them(case: Callable[[str], str]) -> None:
    record = RECORD | {"annotations": {"Did": "a", "did": "b"}, "Unknown": [1.50]}
    odd = {case(key): value for key, value in record.items()}
    body, count = check_records(as_json([record, odd, record]))
    assert count == 3
    first, second, third = decode_records(body, system_name="")
    assert first == second == third
    assert first.annotations == {"Did": "a", "did": "b"}


def test_records_with_keys_in_their_own_case_are_kept_byte_for_byte() -> None:
    for record in (RECORD, RECORD | {"unknown": 1.50}):
        body = json.dumps([record] * 2, indent=3).encode()
        assert check_records(body) == (body, 2)
    assert check_records(b"[]") == (b"[]", 0), "no records are no fault"


def test_of_a_key_in_two_cases_the_last_one_counts_and_a_bad_value_is_named_in_its_own() -> None:
    body, _ = check_records(b"[" + as_json(RECORD)[:-1] + b',"DID":"last"}]')
    assert [record.did for record in decode_records(body, system_name="")] == ["last"]
    with pytest.raises(AdmissionError) as caught:
        check_records(as_json([{"DID": 7, "FinalState": "BANANA", "created": 1}]))
    assert caught.value.where == "$[0].did"


@pytest.mark.parametrize(
    ("path", "value", "where", "what"),
    [
        ("did", ABSENT, "$[1].did", "is missing"),
        ("did", "", "$[1].did", "expected `str` of length >= 1"),
        ("finalState", "BANANA", "$[1].finalState", "invalid enum value 'BANANA'"),
        ("created", 10**18, "$[1].created", "expected `int` <= 253402300799999"),
        ("completed", None, "$[1].completed", "expected `int`, got `null`"),
        ("completed", 0, "$[1].completed", "expected `int` >= 1"),
        ("completed", 253_402_300_800_000, "$[1].completed", "expected `int` <= 253402300799999"),
        ("completed", "2026-01-31T12:00:00Z", "$[1].completed", "expected `int`, got `str`"),
        ("transforms", "t", "$[1].transforms", "expected `array | null`, got `str`"),
        ("transforms", [None], "$[1].transforms[0]", "expected `str`, got `null`"),
        ("annotations", {"k": 1}, "$[1].annotations[...]", "expected `str | null`, got `int`"),
        (
            "filename",
            "a\0b",
            "$[1].filename",
            "a string contains a NUL character, which backends cannot store",
        ),
        ("systemName", 5, "$[1].systemName", "expected `str | null`, got `int`"),
    ],
)
def test_a_bad_record_is_named_among_its_neighbours(path: str, value: object, where: str, what: str) -> None:
    with pytest.raises(AdmissionError) as caught:
        check_records(as_json([RECORD, changed(RECORD, path, value), RECORD]))
    assert (caught.value.where, caught.value.what) == (where, what)
    assert caught.value.way_out


@pytest.mark.parametrize("body", [b"", b"{}", b"nothing", as_json(RECORD), as_json([[RECORD]]), b"[null]"])
def test_a_body_that_is_no_array_of_records_is_refused(body: bytes) -> None:
    with pytest.raises(AdmissionError) as caught:
        check_records(body)
    assert caught.value.where in {"$", "$[0]"}


# Errors


def test_a_refusal_is_one_sentence_with_place_fault_and_way_out_and_repeats_no_huge_value() -> None:
    error = refusal(as_json(changed(EVENT, "run/runId", ABSENT)))
    assert str(error) == "$.run.runId: is missing; give the run's id, preferably a UUID"
    facet = {"did": "d", "finalState": "B" * 1_000_000}
    assert len(str(refusal(as_json(changed(EVENT, "run/facets/waybill_deltaFile", facet))))) < 500


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["waybill_x", "x"])
def test_a_long_key_above_many_values_makes_no_refusal_slow(name: str) -> None:
    values = {"own": [1] * 100_000, "nul": ["a\0"] * 1_000}

    def refuse_s(key: str) -> float:
        event = changed(EVENT, f"run/facets/{name}", {key: values})
        body = as_json(changed(event, "job/name", "a\0"))
        began_s = time.process_time()
        with pytest.raises(AdmissionError, match="NUL"):
            admit_event(body, bounds=None)
        return time.process_time() - began_s

    assert min(refuse_s("k" * 400_000) for _ in range(3)) < 4 * min(refuse_s("k") for _ in range(3))


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: (
            st.lists(inner, max_size=3) | st.lists(st.tuples(st.text(max_size=2), inner), max_size=4)
        ),
        max_leaves=12,
    )
)
def test_a_repeated_key_is_found_exactly_where_one_is(value: object) -> None:
    """Lists of pairs stand for objects."""
    repeated: list[str] = []

    def text_of(one: object) -> str:
        if not isinstance(one, list):
            return json.dumps(one)
        if not one or not all(isinstance(pair, tuple) for pair in one):
            return f"[{', '.join(map(text_of, one))}]"
        keys = [key for key, _ in one]
        repeated.extend({key for key in keys if keys.count(key) > 1})
        return f"{{{', '.join(f'{json.dumps(key)}: {text_of(inner)}' for key, inner in one)}}}"

    text = text_of(value)
    found = repeated_in_records(text.encode(), None)
    assert found in repeated if repeated else found is None


@pytest.mark.parametrize(
    ("once", "twice", "is_refused"),
    [
        (b'"did"', b'"did": "other", "did"', True),
        (b'"did"', b'"d\\u0069d": "other", "did"', True),
        (b'"dataSource": "in", ', b'"finalState": "ERROR", ', True),  # as many strings as the other way round
        (b'"did"', b'"annotations": {"a": "1", "a": "2"}, "did"', True),
        (b'"did"', b'"annotations": {"a": "\\"", "b": "2"}, "did"', False),
        (b'"did"', b'"parentDid": null, "did"', False),
        (b'"did"', b'"unknown": {"did": 1}, "did"', False),
    ],
)
def test_a_key_that_a_record_has_twice_is_refused(once: bytes, twice: bytes, is_refused: bool) -> None:  # noqa: FBT001
    body = as_json([RECORD, RECORD]).replace(once, twice, 1)
    with pytest.raises(AdmissionError, match="twice") if is_refused else contextlib.nullcontext():
        check_records(body)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize(
    ("path", "added", "is_refused"),
    [
        ("", '"eventType": "START"', True),
        ("", '"job": {"namespace": "ns", "name": "other"}', True),
        ("", '"more": [123456789012345678901, {"a": "\\"", "a": 2}]', True),
        ("job", '"facets": {"waybill_a": 1, "waybill_a": 2}', True),
        ("run", '"runId": "other"', True),
        ("job", '"facets": {"a": {"b": 1}}, "facets": {}', True),
        ("inputs/0", '"n\\u0061me": "other"', True),
        ("outputs/0", '"name": "a\\"b"', True),
        ("outputs/0", '"more": {"a": 1, "a": 2}', True),
        ("job", '"facets": {"waybill_a": {"b": 1, "b": 2}}', True),
        ("job", '"facets": {"w\\u0061ybill_a": {"b": 1, "b": 2}}', True),
        ("outputs/0", '"facets": [{"a": 1, "a": 2}]', True),
        ("job", '"facets": {"a": {"b": 1, "b": 2}, "a": 1}', False),
        ("outputs/0", '"outputFacets": {"a": 1, "a": 1}', False),
        ("inputs/0", '"more": {"a": 1, "b": 2}', False),
        ("", '"schemaURL": null', False),
    ],
)
def test_a_key_that_an_event_has_twice_outside_of_the_facets_of_others_is_refused(
    path: str,
    added: str,
    is_refused: bool,  # noqa: FBT001 - of a table
    separators: tuple[str, str],
) -> None:
    base = changed(changed(EVENT, "job/facets", ABSENT), "schemaURL", ABSENT)
    text = json.dumps(changed(base, f"{path}/mark".strip("/"), "mark"), separators=separators)
    body = text.replace(f'"mark"{separators[1]}"mark"', added).encode()
    assert body != text.encode()
    with pytest.raises(AdmissionError, match="twice") if is_refused else contextlib.nullcontext():
        admit_event(body)
