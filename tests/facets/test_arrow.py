"""The Arrow schema, column by column, and the way there and back."""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import SCHEMA, from_table, to_table


def test_the_schema_has_exactly_these_columns() -> None:
    assert [(field.name, str(field.type), field.nullable) for field in SCHEMA] == [
        ("did", "string", False),
        ("parent_did", "string", True),
        ("system_name", "string", False),
        ("data_source", "string", False),
        ("filename", "string", False),
        ("transforms", "list<element: string>", False),
        ("data_sink", "string", True),
        ("final_state", "string", False),
        ("created", "timestamp[ms, tz=UTC]", False),
        ("completed", "timestamp[ms, tz=UTC]", False),
        ("annotations", "map<string, string>", True),
    ]


def test_the_columns_are_the_fields_of_the_record() -> None:
    assert tuple(SCHEMA.names) == ProvenanceRecord.__struct_fields__


@given(st.lists(st.from_type(ProvenanceRecord), max_size=5))
def test_records_and_schema_come_back_from_a_table_and_from_parquet(records: list[ProvenanceRecord]) -> None:
    table, file = to_table(records), io.BytesIO()
    table.validate(full=True)
    assert from_table(table) == records
    pq.write_table(table, file)
    read = pq.read_table(file)
    assert read.schema.equals(SCHEMA)
    assert from_table(read) == records


@pytest.mark.parametrize("instant", [1, 253_402_300_799_999])
def test_the_earliest_and_the_latest_instant_come_back(instant: int) -> None:
    record = ProvenanceRecord(
        did="d",
        system_name="",
        data_source="é'\"",
        filename="☃" * 300,
        transforms=(),
        final_state=FinalState.SPLIT,
        created=instant,
        completed=instant,
        annotations={"k": "v, w\n"},
    )
    assert from_table(to_table([record])) == [record]
    assert to_table([record])["completed"].cast(pa.int64()).to_pylist() == [instant]


def test_a_table_with_its_columns_in_another_order_is_read_by_name() -> None:
    record = ProvenanceRecord(
        did="d",
        system_name="s",
        data_source="in",
        filename="f",
        transforms=("t",),
        final_state=FinalState.ERROR,
        created=1,
        completed=2,
    )
    table = to_table([record, msgspec.structs.replace(record, did="e")])
    assert [one.did for one in from_table(table.select(SCHEMA.names[::-1]))] == ["d", "e"]
