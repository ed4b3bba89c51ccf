"""Every error of a refused body is reported, and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from waybill.transport import AdmissionError
from waybill.transport.admission import admit_event, check_records, event_errors, record_errors
from waybill.transport.admission.admission import without_indices
from waybill.transport.admission.validation_errors import ERRORS_MAX

EVENT: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00Z",
    "eventType": "COMPLETE",
    "producer": "https://example.org",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "job": {"namespace": "n", "name": "j"},
    "run": {
        "runId": "r",
        "facets": {
            "parent": {"run": {"runId": "p"}, "job": {"namespace": "n", "name": "p"}},
            "errorMessage": {"message": "m"},
            "tags": {"tags": [{"key": "a", "value": "b"}, {"key": "c", "value": "d"}]},
            "waybill_deltaFile": {
                "did": "d",
                "transforms": ["a", "b"],
                "finalState": "ERROR",
                "created": "2026-01-31T11:00:00Z",
                "completed": "2026-01-31T12:00:00Z",
                "annotations": {"k": "v", "l": "w"},
            },
            "waybill_mine": {"deep": [{"text": "t"}]},
        },
    },
    "inputs": [{"namespace": "n", "name": "a"}, {"namespace": "n", "name": "b"}],
    "outputs": [{"namespace": "n", "name": "c"}],
}
RECORD: dict[str, Any] = {
    "did": "d",
    "finalState": "COMPLETE",
    "created": 1,
    "completed": 2,
    "transforms": ["a", "b"],
    "annotations": {"k": "v"},
    "filename": "f",
}
GONE = object()
DELTA = "run.facets.waybill_deltaFile"
IN_EVENTS: list[tuple[str, object]] = [
    ("eventTime", "yesterday"),
    ("producer", GONE),
    ("job.namespace", 7),
    ("job.name", GONE),
    ("run.runId", ""),
    (f"{DELTA}.did", ""),
    (f"{DELTA}.transforms.1", 3),
    (f"{DELTA}.finalState", "BANANA"),
    (f"{DELTA}.created", "1969-12-31T23:59:59Z"),
    (f"{DELTA}.completed", 5),
    (f"{DELTA}.annotations.l", {}),
    ("run.facets.waybill_mine.deep.0.text", "a\0b"),
    ("inputs.0.namespace", GONE),
    ("inputs.1", 7),
    ("outputs", "text"),
]
IN_RECORDS: list[tuple[str, object]] = [
    ("0.did", ""),
    ("0.finalState", "BANANA"),
    ("0.created", 0),
    ("0.completed", GONE),
    ("0.transforms.1", None),
    ("0.annotations.k", 4),
    ("0.filename", "a\0"),
    ("1", []),
]


def mutated(value: Any, path: str, change: object) -> None:  # noqa: ANN401 - any JSON value
    *to, last = path.split(".")
    for key in to:
        value = value[int(key)] if isinstance(value, list) else value[key]
    place = int(last) if isinstance(value, list) else last
    if change is GONE:
        del value[place]
    else:
        value[place] = change


def path_of(path: str) -> str:
    """The path in the format of errors."""
    dotted = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
    return "$" + dotted.replace("annotations.l", "annotations[l]").replace("annotations.k", "annotations[k]")


def refusal_of(body: bytes) -> AdmissionError | None:
    try:
        admit_event(body)
    except AdmissionError as error:
        return error
    return None


def refused_event(body: bytes) -> list[AdmissionError] | None:
    """All errors of an event; None if it may be kept."""
    first = refusal_of(body)
    if first is None:
        return None
    told = event_errors(body, first)
    # However the decoder names a place in a dict, admission's own error is among them.
    assert without_indices(first.where) in {without_indices(fault.where) for fault in told}
    return told


@given(st.lists(st.sampled_from(IN_EVENTS), min_size=1, unique_by=lambda one: one[0]))
def test_independent_errors_of_an_event_are_all_reported(faults: list[tuple[str, object]]) -> None:
    event = copy.deepcopy(EVENT)
    for path, change in faults:
        mutated(event, path, change)
    told = refused_event(json.dumps(event).encode())
    assert told is not None
    assert {fault.where for fault in told} == {path_of(path) for path, _ in faults}
    assert len(told) == len(faults)
    assert all(fault.what and fault.way_out for fault in told)


@given(st.lists(st.sampled_from(IN_RECORDS), min_size=1, unique_by=lambda one: one[0]))
def test_independent_errors_of_records_are_all_reported(faults: list[tuple[str, object]]) -> None:
    records = [copy.deepcopy(RECORD), copy.deepcopy(RECORD)]
    for path, change in faults:
        mutated(records, path, change)
    body = json.dumps(records).encode()
    with pytest.raises(AdmissionError) as refused:
        check_records(body)
    told = record_errors(body, refused.value)
    assert {fault.where for fault in told} == {path_of(path) for path, _ in faults}
    assert len(told) == len(faults)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 3)
    | st.floats()
    | st.sampled_from(["", "a", "\0", "2026-01-31T12:00:00Z"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["run", "job", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.lists(
        st.tuples(st.sampled_from([path for path, _ in IN_EVENTS] + ["run", "job", "schemaURL"]), JSON),
        max_size=3,
    )
)
def test_whatever_is_refused_has_an_error_and_whatever_is_kept_has_none(
    changes: list[tuple[str, object]],
) -> None:
    event = copy.deepcopy(EVENT)
    for path, change in changes:
        try:
            mutated(event, path, change)
        except (TypeError, ValueError, KeyError, IndexError):
            continue  # an earlier change took away what this one is about
    body = json.dumps(event).encode()
    nowhere = AdmissionError("$.nowhere", "is only asked about", "no way out")
    told = refused_event(body)
    if told is None:
        assert event_errors(body, nowhere) == [nowhere]
    else:
        assert told
        assert len(told) == len({str(fault) for fault in told})


def test_an_error_that_no_walk_finds_is_reported_as_admission_says_it() -> None:
    body = json.dumps(EVENT).encode().replace(b'"producer"', b'"producer": 7, "producer"')
    (fault,) = refused_event(body) or []
    assert (fault.where, fault.what) == ("$", "an object has the key 'producer' twice")


def test_errors_are_reported_up_to_a_number() -> None:
    body = json.dumps(EVENT | {"inputs": [7] * 1_000}).encode()
    assert len(refused_event(body) or ()) == ERRORS_MAX
