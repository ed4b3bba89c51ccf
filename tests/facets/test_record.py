"""The provenance record and the laws of its merge."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, strategies as st

from waybill.facets import (
    AnnotationRule,
    FinalState,
    ProvenanceRecord,
    decode_records,
    is_collision,
    keep_annotations,
    merge_all,
    merge_records,
    record_key,
)

RECORD = ProvenanceRecord(
    did="d",
    system_name="s",
    data_source="in",
    filename="f.csv",
    transforms=("t",),
    data_sink="out",
    final_state=FinalState.COMPLETE,
    created=1,
    completed=2,
)


def but(**changes: object) -> ProvenanceRecord:
    return msgspec.structs.replace(RECORD, **changes)


@st.composite
def of_one_key(draw: st.DrawFn, count: int) -> tuple[ProvenanceRecord, ...]:
    records = [draw(st.from_type(ProvenanceRecord)) for _ in range(count)]
    names = ("system_name", "did", "data_sink", "transforms", "final_state", "completed")
    key = dict(zip(names, record_key(records[0]), strict=True))
    return tuple(msgspec.structs.replace(record, **key) for record in records)


@given(of_one_key(3))
def test_merging_is_commutative_associative_and_idempotent_and_keeps_the_key(
    records: tuple[ProvenanceRecord, ...],
) -> None:
    a, b, c = records
    merged = merge_records(a, b)
    assert merged == merge_records(b, a)
    assert merge_records(merged, c) == merge_records(a, merge_records(b, c))
    assert merge_records(a, a) == a
    assert merge_records(merged, a) == merge_records(merged, b) == merged
    assert record_key(merged) == record_key(a)


def test_a_merge_keeps_the_earliest_start_the_fuller_texts_and_all_annotations() -> None:
    a = but(created=5, filename="", parent_did="p", annotations={"a": "1", "b": "2"})
    b = but(created=3, data_source="", annotations={"b": "3", "c": ""})
    assert merge_records(a, b) == but(created=3, parent_did="p", annotations={"a": "1", "b": "3", "c": ""})


@pytest.mark.parametrize(
    "other",
    [
        but(did="e"),
        but(system_name="t"),
        but(data_sink=None),
        but(transforms=()),
        but(final_state=FinalState.ERROR),
        but(completed=3),
    ],
)
def test_records_of_two_keys_stay_two(other: ProvenanceRecord) -> None:
    assert len(merge_all([RECORD, other, RECORD])) == 2
    assert not is_collision(RECORD, other)
    with pytest.raises(ValueError, match="merge records of one key only"):
        merge_records(RECORD, other)


@given(st.lists(st.from_type(ProvenanceRecord)), st.randoms(use_true_random=False))
def test_neither_order_nor_repeats_change_what_a_set_merges_to_sorted_by_completion_then_did(
    records: list[ProvenanceRecord], chance: random.Random
) -> None:
    again = records + chance.choices(records, k=len(records)) if records else []
    chance.shuffle(again)
    merged = merge_all(records)
    assert merge_all(again) == merged
    assert merge_all(merged) == merged
    assert len({record_key(record) for record in merged}) == len(merged)
    places = [(record.completed, record.did) for record in merged]
    assert places == sorted(places)


@pytest.mark.parametrize("field", ["filename", "data_source", "parent_did"])
def test_one_key_with_two_names_is_a_collision(field: str) -> None:
    assert is_collision(but(**{field: "one"}), but(**{field: "other"}))
    assert not is_collision(but(**{field: "one"}), but(**{field: "one"}))
    assert not is_collision(but(**{field: "one"}), but(**{field: ""}))


def test_only_allowed_annotations_are_kept_and_none_rather_than_empty() -> None:
    noted = but(annotations={"a": "1", "b": "2"})
    assert keep_annotations(noted, AnnotationRule(frozenset({"b", "c"}))) == but(annotations={"b": "2"})
    assert keep_annotations(noted, AnnotationRule()) == RECORD
    assert keep_annotations(RECORD, AnnotationRule(frozenset({"a"}))) == RECORD


def test_records_as_deltafi_sends_them_are_read_whole() -> None:
    body = b"""[{"did": "d", "parentDid": "p", "systemName": "east", "dataSource": "in", "filename": "f",
      "transforms": ["t", "u"], "dataSink": "out", "finalState": "FILTERED", "created": 1, "completed": 2,
      "annotations": {"b": "2", "a": "1,1"}, "unknown": {}}]"""
    (record,) = decode_records(body, system_name="stamped")
    assert record == ProvenanceRecord(
        did="d",
        parent_did="p",
        system_name="east",
        data_source="in",
        filename="f",
        transforms=("t", "u"),
        data_sink="out",
        final_state=FinalState.FILTERED,
        created=1,
        completed=2,
        annotations={"a": "1,1", "b": "2"},
    )
    assert list(record.annotations or ()) == ["a", "b"]


@pytest.mark.parametrize("nothing", ["", None])
def test_what_is_empty_in_a_record_counts_as_absent(nothing: str | None) -> None:
    sparse = {"did": "d", "finalState": "SPLIT", "created": 1, "completed": 2}
    names = ("parentDid", "systemName", "dataSource", "filename", "dataSink")
    full = sparse | dict.fromkeys(names, nothing) | {"transforms": None, "annotations": {"a": None}}
    assert decode_records(msgspec.json.encode([full]), system_name="stamped") == decode_records(
        msgspec.json.encode([sparse]), system_name="stamped"
    )
    (record,) = decode_records(msgspec.json.encode([sparse]), system_name="stamped")
    assert (record.system_name, record.parent_did, record.data_sink) == ("stamped", None, None)


def test_a_final_state_is_one_of_the_five() -> None:
    assert but(final_state="ERROR").final_state is FinalState.ERROR
    with pytest.raises(ValueError, match="BAD"):
        but(final_state="BAD")
