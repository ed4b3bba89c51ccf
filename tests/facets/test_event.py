"""Reading OpenLineage events and their instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from events import members
from hypothesis import given, strategies as st

from waybill.facets import DatasetEvent, EventType, JobEvent, RunEvent, decode_event, parse_instant_us

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(*parts: int) -> int:
    return (datetime(*parts, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:01Z", us(2026, 1, 31, 12, 0, 1)),
        ("2026-01-31t12:00:01z", us(2026, 1, 31, 12, 0, 1)),
        ("2026-01-31 12:00:01+00:00", us(2026, 1, 31, 12, 0, 1)),
        ("2026-01-31T12:00:01", us(2026, 1, 31, 12, 0, 1)),
        ("2026-01-31T12:00Z", us(2026, 1, 31, 12)),
        ("2026-01-31T12:00:01.5Z", us(2026, 1, 31, 12, 0, 1, 500_000)),
        ("2026-01-31T12:00:01.69+02:00", us(2026, 1, 31, 10, 0, 1, 690_000)),
        ("2026-01-31T12:00:01.123456-0530", us(2026, 1, 31, 17, 30, 1, 123_456)),
        ("2026-01-31T12:00:01.123456999Z", us(2026, 1, 31, 12, 0, 1, 123_456)),
        ("2026-01-31T13:00:01+01:00[Europe/Paris]", us(2026, 1, 31, 12, 0, 1)),
        ("2026-01-31T24:00:00Z", us(2026, 2, 1)),
        ("2026-12-31T24:00+01:00", us(2026, 12, 31, 23)),
        ("1970-01-01T00:00:00.001Z", 1_000),
        ("9999-12-31T23:59:59.999999Z", us(9999, 12, 31, 23, 59, 59, 999_999)),
    ],
)
def test_an_instant_is_read_as_iso_8601_has_it(text: str, expected: int) -> None:
    assert parse_instant_us(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1795248000000",
        "2026-01-31",
        "20260131T120000Z",
        "12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31T24:00:01Z",
        "9999-12-31T24:00:00Z",
        "2026-01-31T12:00:00+99:00",
        "+12026-01-31T12:00:00Z",
        "2026-01-31T12:00:00Z\n",
        "x" * 10_000,
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00.000999Z",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_what_is_no_instant_from_1970_to_9999_is_refused_in_a_short_sentence(text: str) -> None:
    says = r"is no ISO|is not after 1970-01-01T00:00:00Z and before the year 10000"
    with pytest.raises(ValueError, match=says) as caught:
        parse_instant_us(text)
    assert len(str(caught.value)) < 200


@given(
    st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001 - the offset is drawn beside it
    st.integers(-1439, 1439),
)
def test_any_instant_that_python_prints_is_read_to_the_microsecond(naive: datetime, offset_min: int) -> None:
    instant = naive.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    assert parse_instant_us(instant.isoformat()) == (instant - EPOCH) // timedelta(microseconds=1)


def event(**changes: object) -> bytes:
    return msgspec.json.encode(members("r", "START") | changes)


@pytest.mark.parametrize(
    ("schema_url", "kind"),
    [
        (None, RunEvent),
        ("https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent", RunEvent),
        ("https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent", JobEvent),
        ("https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent", DatasetEvent),
        ("anything", RunEvent),
    ],
)
def test_the_end_of_the_schema_url_tells_the_kind(schema_url: str | None, kind: type) -> None:
    body = event(schemaURL=schema_url, dataset={"namespace": "n", "name": "d"})
    assert type(decode_event(body)) is kind


def test_a_static_event_needs_no_run() -> None:
    body = b"""{"eventTime": "2026-01-31T12:00:00Z", "producer": "p", "job": {"namespace": "n", "name": "j"},
      "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"}"""
    assert isinstance(decode_event(body), JobEvent)


@pytest.mark.parametrize(
    ("word", "read"), [("FAIL", EventType.FAIL), ("Fail", EventType.FAIL), ("PAUSED", EventType.OTHER)]
)
def test_an_event_type_is_read_without_regard_to_case_and_an_unknown_one_as_other(
    word: str, read: EventType
) -> None:
    decoded = decode_event(event(eventType=word))
    assert isinstance(decoded, RunEvent)
    assert decoded.eventType is read


def test_facets_that_a_backend_gives_back_as_null_are_absent() -> None:
    nulls = dict.fromkeys(["parent", "errorMessage", "tags", "waybill_deltaFile"])
    with_nulls = decode_event(event(run={"runId": "r", "facets": nulls}, inputs=None, outputs=None))
    assert with_nulls == decode_event(event(run={"runId": "r", "facets": {}}))


def test_unknown_keys_and_facets_are_skipped() -> None:
    odd = event(extra=[1], run={"runId": "r", "facets": {"acme": {"x": {}}, "nominalTime": 7}, "y": 1})
    assert decode_event(odd) == decode_event(event(run={"runId": "r", "facets": {}}))
