"""The bounds of one event or record: nothing small expands to gigabytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from waybill.transport import AdmissionError, admit_event, check_records
from waybill.transport.admission import Bounds

LONG = "x" * 90_000
EVENT: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00Z",
    "eventType": "COMPLETE",
    "producer": "a:",
    "run": {"runId": "r"},
    "job": {"namespace": "n", "name": "j"},
}
RECORD: dict[str, Any] = {"did": "d", "finalState": "COMPLETE", "created": 1, "completed": 2}
BOUNDS = Bounds(name_chars=100, items=10, made_chars=2_000)


def event(**parts: object) -> bytes:
    return json.dumps(EVENT | parts).encode()


def named(name: str, namespace: str = "n") -> dict[str, str]:
    return {"namespace": namespace, "name": name}


def facet(**parts: object) -> dict[str, Any]:
    return {"runId": "r", "facets": {"waybill_deltaFile": {"did": "d"} | parts}}


def test_the_event_whose_names_would_be_repeated_for_each_of_its_outputs_is_refused_by_default() -> None:
    body = event(job=named(LONG), inputs=[named(LONG)], outputs=[named(f"o{n}") for n in range(1_000)])
    assert len(body) < 250_000
    with pytest.raises(
        AdmissionError, match=r"\$\.job\.name: has 90,000 characters; the limit is 65,536; .*raise"
    ):
        admit_event(body)
    with pytest.raises(
        AdmissionError, match=r"\$\.outputs: would produce records of 360,0.*the limit is 67,108,864"
    ):
        admit_event(body, Bounds(name_chars=100_000))
    assert admit_event(body, bounds=None)


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"job": named("j" * 101)}, "$.job.name"),
        ({"job": named("j", "n" * 101)}, "$.job.namespace"),
        ({"run": {"runId": "r" * 101}}, "$.run.runId"),
        ({"inputs": [named("i"), named("i" * 101)]}, "$.inputs[1].name"),
        ({"outputs": [named("i", "n" * 101)]}, "$.outputs[0].namespace"),
        ({"inputs": [named("i")] * 11}, "$.inputs"),
        ({"outputs": [named("o")] * 11}, "$.outputs"),
        ({"run": facet(did="d" * 101)}, "$.run.facets.waybill_deltaFile.did"),
        ({"run": facet(transforms=["t" * 101])}, "$.run.facets.waybill_deltaFile.transforms[0]"),
        ({"run": facet(transforms=["t"] * 11)}, "$.run.facets.waybill_deltaFile.transforms"),
        (
            {"run": facet(annotations={f"{n}": "" for n in range(11)})},
            "$.run.facets.waybill_deltaFile.annotations",
        ),
        (
            {"run": {"runId": "r", "facets": {"parent": {"run": {"runId": "p" * 101}, "job": named("j")}}}},
            "$.run.facets.parent.run.runId",
        ),
        (
            {"run": {"runId": "r", "facets": {"tags": {"tags": [{"key": "k", "value": "v"}] * 11}}}},
            "$.run.facets.tags.tags",
        ),
        (
            {
                "run": {"runId": "r", "facets": {"tags": {"tags": [{"key": "k", "value": "v" * 400}]}}},
                "outputs": [named(f"o{n}") for n in range(5)],
            },
            "$.outputs",
        ),
    ],
)
def test_each_bound_of_an_event_holds_and_the_error_says_where(parts: dict[str, Any], where: str) -> None:
    with pytest.raises(AdmissionError) as refused:
        admit_event(event(**parts), BOUNDS)
    assert refused.value.where == where
    assert "raise the setting `admit_" in refused.value.way_out
    assert admit_event(event(**parts))


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"did": "d" * 101}, "$[1].did"),
        ({"parentDid": "d" * 101}, "$[1].parentDid"),
        ({"systemName": "d" * 101}, "$[1].systemName"),
        ({"dataSource": "d" * 101}, "$[1].dataSource"),
        ({"filename": "d" * 101}, "$[1].filename"),
        ({"dataSink": "d" * 101}, "$[1].dataSink"),
        ({"transforms": ["t", "d" * 101]}, "$[1].transforms[1]"),
        ({"transforms": ["t"] * 11}, "$[1].transforms"),
        ({"annotations": {f"{n}": "" for n in range(11)}}, "$[1].annotations"),
    ],
)
def test_each_bound_of_a_record_holds_and_the_error_says_where(parts: dict[str, Any], where: str) -> None:
    body = json.dumps([RECORD, RECORD | parts]).encode()
    with pytest.raises(AdmissionError) as refused:
        check_records(body, BOUNDS)
    assert refused.value.where == where
    assert check_records(body) == (body, 2)


@given(
    st.lists(st.tuples(st.sampled_from(['"', "\\", "x", "ä"]), st.integers(0, 205)), max_size=4),
    st.integers(0, 400),
)
def test_a_name_is_found_too_long_wherever_it_stands_and_whatever_is_in_it(
    parts: list[tuple[str, int]], before: int
) -> None:
    name = "d" + "".join(text * times for text, times in parts)
    body = json.dumps([RECORD] * 2 + [RECORD | {"filename": name}], indent=1).encode()
    body = body.replace(b"[", b"[" + b" " * before, 1)
    if len(name) <= 100:
        assert check_records(body, BOUNDS) == (body, 3)
    else:
        with pytest.raises(AdmissionError) as refused:
            check_records(body, BOUNDS)
        assert refused.value.where == "$[2].filename"


def test_a_text_that_is_repeated_nowhere_may_be_as_long_as_the_body() -> None:
    run = {"runId": "r", "facets": {"errorMessage": {"message": LONG * 10, "programmingLanguage": "a"}}}
    assert admit_event(event(run=run, eventType="FAIL"))
    check_records(json.dumps([RECORD | {"annotations": {"why": LONG * 10}}]).encode())
