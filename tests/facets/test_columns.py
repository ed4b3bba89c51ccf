"""Records as columns: whatever `decode_records` makes of a body, `decode_table` makes of it too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.facets import FinalState, ProvenanceRecord, decode_records, keep_annotations
from waybill.facets.arrow import SCHEMA, to_table
from waybill.facets.columns import decode_table

if TYPE_CHECKING:
    import pyarrow as pa

ALLOWED = frozenset({"customer", "b", "é"})
GOOD = {"did": "d", "finalState": "COMPLETE", "created": 1, "completed": 2}

text = st.one_of(st.sampled_from(["", "a", "\0", "é😀", '"\\\n', "null"]), st.text(max_size=5))
absent = st.none()
instant = st.integers(1, 253_402_300_799_999)
annotation_keys = st.one_of(st.sampled_from(sorted(ALLOWED)), text)
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
    "unknown": st.recursive(text | st.integers() | st.booleans(), lambda inner: st.lists(inner, max_size=2)),
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


bodies = st.lists(sent_records(), max_size=4).map(lambda records: f"[{','.join(records)}]".encode())


def one_by_one(sent: Sequence[bytes], allowed: frozenset[str] = ALLOWED) -> pa.Table:
    records = [record for body in sent for record in decode_records(body, system_name="stamped")]
    return to_table([keep_annotations(record, allowed) for record in records])


def in_columns(sent: Sequence[bytes], allowed: frozenset[str] = ALLOWED) -> tuple[pa.Table, list[int]]:
    failed: list[int] = []
    table = decode_table(
        sent, system_name="stamped", allowed=allowed, on_error=lambda at, _error: failed.append(at)
    )
    return table, failed


@given(st.lists(bodies, min_size=1, max_size=4), st.sampled_from([ALLOWED, frozenset[str]()]))
def test_columns_hold_what_the_records_do(sent: list[bytes], allowed: frozenset[str]) -> None:
    table, failed = in_columns(sent, allowed)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert failed == []
    assert table.equals(one_by_one(sent, allowed))


@pytest.mark.parametrize(
    "wrong",
    [
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
    ],
    ids=str,
)
def test_what_is_no_record_is_left_out_alone(wrong: dict[str, Any]) -> None:
    good, bad = json.dumps([GOOD]).encode(), json.dumps([GOOD | wrong]).encode()
    with pytest.raises(msgspec.ValidationError):
        decode_records(bad, system_name="")
    table, failed = in_columns([good, bad, good])
    assert failed == [1]
    assert table.equals(one_by_one([good, good]))


@pytest.mark.parametrize("body", [b"", b"[", b"{}", b"[1]", b'[{"did":"\xff"}]', b"[" * 5_000], ids=repr)
def test_what_is_no_array_of_records_is_left_out_alone(body: bytes) -> None:
    good = json.dumps([GOOD]).encode()
    table, failed = in_columns([body, good])
    assert failed == [0]
    assert table.equals(one_by_one([good]))


def test_a_body_larger_than_a_block_of_the_reader_is_read() -> None:
    long = GOOD | {"filename": "n" * 2**20, "annotations": {"b": "v" * 2**20}}
    sent = [json.dumps([GOOD, long, GOOD]).encode()]
    assert in_columns(sent)[0].equals(one_by_one(sent))


def test_no_bodies_are_an_empty_table() -> None:
    assert in_columns([])[0].equals(to_table(list[ProvenanceRecord]()))
