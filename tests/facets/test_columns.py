"""Records as columns: whatever `decode_records` makes of a body, `decode_table` makes of it too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, strategies as st

from waybill.facets import (
    PRODUCER,
    UNREADABLE,
    AnnotationRule,
    FinalState,
    ProvenanceRecord,
    RunEvent,
    decode_event,
    decode_records,
    facet_records,
    has_record,
    keep_annotations,
)
from waybill.facets.arrow import SCHEMA, to_table
from waybill.facets.columns import decode_table, facet_table

if TYPE_CHECKING:
    import pyarrow as pa

RULE = AnnotationRule(frozenset({"customer", "b", "é", "errorCause"}))
ANY_KEY = AnnotationRule(frozenset({"*"}))
rules = st.sampled_from([RULE, ANY_KEY, AnnotationRule(), AnnotationRule(reasons=False)])
GOOD = {"did": "d", "finalState": "COMPLETE", "created": 1, "completed": 2}

text = st.one_of(st.sampled_from(["", "a", "},{", "}, {", "\0", "é😀", '"\\\n', "null"]), st.text(max_size=5))
absent = st.none()
instant = st.integers(1, 253_402_300_799_999)
annotation_keys = st.one_of(
    st.sampled_from([*sorted(RULE.allowed), "filteredCause", "waybill.errorCause", "waybill.evidence"]), text
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "did": text.filter(bool),
    "finalState": st.sampled_from([state.value for state in FinalState]),
    "created": instant,
    "completed": instant,
}
optional: dict[str, st.SearchStrategy[Any]] = {
    "parentDid": text | absent,
    "systemName": text | absent,
    "dataSource": text | absent,
    "filename": text | absent,
    "transforms": st.lists(text, max_size=3) | absent,
    "dataSink": text | absent,
    "annotations": st.dictionaries(annotation_keys, text | absent, max_size=4) | absent,
    "unknown": st.recursive(
        text | st.integers() | st.booleans() | st.just([{}, {}]), lambda inner: st.lists(inner, max_size=2)
    ),
}


@st.composite
def sent_records(draw: st.DrawFn) -> str:
    """A record as JSON: keys in any order, some twice, and space where space may be."""
    sent = draw(st.fixed_dictionaries(fields, optional=optional))
    pairs = draw(st.permutations(list(sent.items())))
    if draw(st.integers(0, 9)) == 0:
        pairs = [*pairs, draw(st.sampled_from(pairs))]
    space = draw(st.sampled_from(["", " ", "\n", "\r\n", "\t"]))
    ascii_only = draw(st.booleans())
    members = (
        f"{json.dumps(key)}:{space}{json.dumps(value, ensure_ascii=ascii_only)}" for key, value in pairs
    )
    return "{" + f",{space}".join(members) + space + "}"


bodies = st.builds(
    lambda records, comma: f"[{comma.join(records)}]".encode(),
    st.lists(sent_records(), max_size=4),
    st.sampled_from([",", ", ", " , ", ",\n"]),
)


def one_by_one(sent: Sequence[bytes], rule: AnnotationRule = RULE) -> pa.Table:
    records = [record for body in sent for record in decode_records(body, system_name="stamped")]
    return to_table([keep_annotations(record, rule) for record in records])


def in_columns(sent: Sequence[bytes], rule: AnnotationRule = RULE) -> tuple[pa.Table, list[int]]:
    failed: list[int] = []
    table = decode_table(
        sent, system_name="stamped", rule=rule, on_error=lambda at, _error: failed.append(at)
    )
    return table, failed


WRONG: list[dict[str, Any]] = [
    {"did": ""},
    {"did": None},
    {"did": 1},
    {"finalState": "DONE"},
    {"finalState": None},
    {"created": 0},
    {"completed": 253_402_300_800_000},
    {"completed": 10**30},
    {"completed": 2.0},
    {"completed": None},
    {"transforms": [None]},
    {"transforms": "t"},
    {"annotations": []},
    {"annotations": {"customer": 1}},
]
NO_RECORDS = [json.dumps([GOOD | wrong]).encode() for wrong in WRONG]
NO_RECORDS += [b"", b"[", b"{}", b"[1]", b'[{"did":"\xff"}]', b"[" * 5_000]


@given(st.lists(bodies | st.sampled_from(NO_RECORDS), min_size=1, max_size=4), rules)
@example([json.dumps([GOOD]).encode(), *NO_RECORDS, json.dumps([GOOD]).encode()], RULE)
def test_columns_hold_what_the_records_do_and_what_is_no_record_is_left_out_alone(
    sent: list[bytes], rule: AnnotationRule
) -> None:
    table, failed = in_columns(sent, rule)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert failed == [at for at, body in enumerate(sent) if body in NO_RECORDS]
    assert table.equals(one_by_one([body for body in sent if body not in NO_RECORDS], rule))


def test_what_is_no_record_is_none_alone_either() -> None:
    for body in NO_RECORDS:
        with pytest.raises(UNREADABLE):
            decode_records(body, system_name="")


@pytest.mark.parametrize("keys_each", [1, 70])
def test_keys_that_are_too_many_for_columns_are_kept_where_any_is(keys_each: int) -> None:
    sent = [GOOD | {"annotations": {f"k{at}-{key}": "v" for key in range(keys_each)}} for at in range(200)]
    bodies = [json.dumps([one]).encode() for one in sent]
    table, failed = in_columns(bodies, ANY_KEY)
    assert failed == []
    assert table.equals(one_by_one(bodies, ANY_KEY))
    assert table["annotations"].null_count == 0


def test_a_name_that_is_escaped_is_read_where_any_key_is_kept() -> None:
    body = json.dumps([GOOD | {"annotations": {"k": "v"}}]).encode().replace(b'"anno', rb'"\u0061nno')
    table, failed = in_columns([body], ANY_KEY)
    assert (failed, table["annotations"].to_pylist()) == ([], [[("k", "v")]])


def test_a_body_larger_than_a_block_of_the_reader_is_read() -> None:
    long = GOOD | {"filename": "n" * 2**20, "annotations": {"b": "v" * 2**20}}
    sent = [json.dumps([GOOD, long, GOOD]).encode()]
    assert in_columns(sent)[0].equals(one_by_one(sent))


instants = st.one_of(
    st.sampled_from(
        ["2026-01-31T12:00:00.123Z", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789+01:00"]
    ),
    st.sampled_from(["1970-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999Z", "2026-01-31T24:00:00Z", ""]),
    st.sampled_from(
        ["2026-01-31", "2026-01-31T12:00", "20260131T120000Z", "2026-02-30T00:00:00Z", "2026-W05"]
    ),
    st.from_regex(
        r"20[0-9]{2}-[0-3][0-9]-[0-3][0-9][Tt ][0-2][0-9](:[0-6][0-9](:[0-6][0-9])?)?", fullmatch=True
    ),
    st.from_regex(
        r"2026-01-3[01][T ]2[0-4]:00:[0-6]0([.,][0-9]{1,9})?(Z|z|[+-][0-2][0-9]:?([0-9]{2})?)?",
        fullmatch=True,
    ),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
)
faceted_events = st.fixed_dictionaries(
    {
        "eventTime": instants,
        "eventType": st.sampled_from(["COMPLETE", "FAIL", "ABORT", "complete"]),
        "producer": st.sampled_from(["p", PRODUCER]),
        "job": st.fixed_dictionaries({"namespace": text, "name": text}),
        "run": st.fixed_dictionaries(
            {
                "runId": text.filter(bool),
                "facets": st.fixed_dictionaries(
                    {
                        "waybill_deltaFile": st.fixed_dictionaries(
                            {"did": text.filter(bool)},
                            optional={
                                **{name: optional[name] for name in optional if name != "annotations"},
                                "finalState": fields["finalState"] | absent,
                                "created": instants | absent,
                                "completed": instants | absent,
                                "annotations": st.dictionaries(annotation_keys, text, max_size=4) | absent,
                            },
                        )
                    }
                ),
            }
        ),
    }
)


@given(st.lists(faceted_events, max_size=4), rules)
def test_columns_hold_what_events_with_the_facet_record(
    sent: list[dict[str, Any]], rule: AnnotationRule
) -> None:
    events = [decode_event(json.dumps(event).encode()) for event in sent]
    named = [(event, f"stamp-{at}") for at, event in enumerate(events) if isinstance(event, RunEvent)]
    assert all(has_record(event) for event, _ in named)
    records: list[ProvenanceRecord] = []
    unreadable: list[int] = []
    for at, (event, name) in enumerate(named):
        try:
            records += facet_records(event, system_name=name)
        except UNREADABLE:
            unreadable.append(at)
    failed: list[int] = []
    table = facet_table(named, rule=rule, on_error=lambda at, _error: failed.append(at))
    table.validate(full=True)
    assert table.equals(to_table([keep_annotations(record, rule) for record in records]))
    assert failed == unreadable
