"""The summary facet's class and its schema say the same."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
import referencing
from openlineage.client.serde import Serde

from waybill.facets import PRODUCER, SUMMARY_FACET, FinalState
from waybill.facets.schema_files import read_facet_schemas
from waybill.facets.summary import SCHEMA_URL, WaybillSummaryRunFacet

SCHEMA = json.loads(read_facet_schemas()["WaybillSummaryRunFacet-1-0-0"])
DEFINITION = SCHEMA["$defs"]["WaybillSummaryRunFacet"]["allOf"][1]
# What OpenLineage's own schema asks of every run facet.
OPENLINEAGE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {"RunFacet": {"type": "object", "required": ["_producer", "_schemaURL"]}},
}
RESOURCES: referencing.Registry[Any] = referencing.Registry().with_resources(
    (str(schema["$id"]), referencing.Resource.from_contents(schema)) for schema in (OPENLINEAGE, SCHEMA)
)
VALIDATOR = jsonschema.Draft202012Validator({"$ref": SCHEMA_URL}, registry=RESOURCES)


def facet_as_sent() -> dict[str, object]:
    facet = WaybillSummaryRunFacet(
        systemName="east",
        dataSource="orders",
        windowStart="2026-01-31T12:00:00.000Z",
        windowEnd="2026-01-31T12:00:59.998Z",
        events=3,
        records=2,
        byFinalState={"COMPLETE": 1, "ERROR": 1},
        bytes=10,
        dataSinks=["lake"],
        provenanceQuery="http://127.0.0.1:8090/s/k2f",
        producer=PRODUCER,
    )
    as_sent: dict[str, object] = json.loads(Serde.to_json(facet))
    return as_sent


def test_the_schema_is_a_valid_schema_under_its_own_url() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] + "#/$defs/" + WaybillSummaryRunFacet.__name__ == SCHEMA_URL
    assert SCHEMA["properties"] == {SUMMARY_FACET: {"$ref": "#/$defs/WaybillSummaryRunFacet"}}


def test_class_and_schema_have_the_same_fields() -> None:
    written = {field.name for field in attrs.fields(WaybillSummaryRunFacet)} - {"_producer", "_schemaURL"}
    assert written == set(DEFINITION["properties"])
    assert DEFINITION["properties"]["byFinalState"]["propertyNames"]["enum"] == list(FinalState)


def test_a_summary_is_valid_against_its_schema() -> None:
    VALIDATOR.validate(facet_as_sent())


@pytest.mark.parametrize(
    ("field", "value"),
    [("events", -1), ("byFinalState", {"BANANA": 1}), ("records", -1), ("dataSinks", None)],
)
def test_the_schema_refuses_what_is_no_summary(field: str, value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(facet_as_sent() | {field: value})
