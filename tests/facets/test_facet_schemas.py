"""The class of each facet of ours and its JSON Schema say the same."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
import referencing
from openlineage.client.serde import Serde

from waybill.facets import (
    DELTA_FILE_FACET,
    EVIDENCE_FACET,
    FINGERPRINT_FACET,
    INFERRED_FACET,
    PRODUCER,
    SUMMARY_FACET,
    FinalState,
    WaybillFingerprintInputDatasetFacet,
)
from waybill.facets.delta_file import WaybillDeltaFileRunFacet
from waybill.facets.inferred import WaybillEvidenceRunFacet, WaybillInferredJobFacet, WaybillInferredRunFacet
from waybill.facets.schema_files import read_facet_schemas
from waybill.facets.summary import WaybillSummaryRunFacet

BASE = {"_producer", "_schemaURL", "_deleted"}  # the last is in every job facet
RULES = {"type": "object", "required": ["_producer", "_schemaURL"]}
# What OpenLineage's own schema asks of every facet.
OPENLINEAGE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {"JobFacet": RULES, "RunFacet": RULES, "InputDatasetFacet": RULES},
}
SUMMARY = WaybillSummaryRunFacet(
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
FINGERPRINT = WaybillFingerprintInputDatasetFacet(
    fingerprint="xxh3-128:99aa06d3014798d86001c324468d497f",
    algorithm="xxh3-128",
    inputBytes=20,
    contentBytes=0,
    forced=True,
    producer=PRODUCER,
)
FACETS: list[tuple[str, attrs.AttrsInstance]] = [
    (DELTA_FILE_FACET, WaybillDeltaFileRunFacet(did="d", finalState=FinalState.ERROR)),
    (SUMMARY_FACET, SUMMARY),
    (INFERRED_FACET, WaybillInferredRunFacet(reason="stale", producer=PRODUCER)),
    (INFERRED_FACET, WaybillInferredJobFacet(reason="its SQL text", confidence=0.9, producer=PRODUCER)),
    (EVIDENCE_FACET, WaybillEvidenceRunFacet(source="event log", producer=PRODUCER)),
    (FINGERPRINT_FACET, FINGERPRINT),
    (FINGERPRINT_FACET, attrs.evolve(FINGERPRINT, forced=None)),
]


def schema_of(facet: object) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(read_facet_schemas()[f"{type(facet).__name__}-1-0-0"])
    return schema


def check(facet: dict[str, Any], schema: dict[str, Any], reference: str) -> None:
    """Raise an error if a facet is not valid against a schema, or a part of it."""
    resources: referencing.Registry[Any] = referencing.Registry().with_resources(
        (str(one["$id"]), referencing.Resource.from_contents(one)) for one in (OPENLINEAGE, schema)
    )
    jsonschema.Draft202012Validator({"$ref": reference}, registry=resources).validate(facet)


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_class_and_schema_say_the_same(key: str, facet: attrs.AttrsInstance) -> None:
    name, schema = type(facet).__name__, schema_of(facet)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"] == {key: {"$ref": f"#/$defs/{name}"}}
    fields = schema["$defs"][name]["allOf"][1]["properties"]
    assert {field.name for field in attrs.fields(type(facet))} - BASE == set(fields)
    states = [fields["finalState"]["enum"]] if "finalState" in fields else []
    states += [fields["byFinalState"]["propertyNames"]["enum"]] if "byFinalState" in fields else []
    assert all(enum == list(FinalState) for enum in states)


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_a_facet_is_valid_against_its_schema_as_the_client_writes_it(
    key: str, facet: attrs.AttrsInstance
) -> None:
    sent, schema = json.loads(Serde.to_json(facet)), schema_of(facet)
    assert sent["_schemaURL"] == f"{schema['$id']}#/$defs/{type(facet).__name__}"
    check(sent, schema, sent["_schemaURL"])
    check({key: sent}, schema, schema["$id"])
    assert ("forced" in sent) == bool(getattr(facet, "forced", None))


@pytest.mark.parametrize(
    ("facet", "field", "value"),
    [
        (SUMMARY, "events", -1),
        (SUMMARY, "byFinalState", {"BANANA": 1}),
        (SUMMARY, "records", -1),
        (SUMMARY, "dataSinks", None),
        (FINGERPRINT, "fingerprint", "99aa"),
        (FINGERPRINT, "fingerprint", "xxh3-128:99AA"),
        (FINGERPRINT, "inputBytes", -1),
    ],
)
def test_a_schema_refuses_what_is_no_facet_of_its(facet: object, field: str, value: object) -> None:
    sent = json.loads(Serde.to_json(facet))
    with pytest.raises(jsonschema.ValidationError):
        check(sent | {field: value}, schema_of(facet), sent["_schemaURL"])


def test_the_class_of_a_fingerprint_refuses_what_its_schema_refuses() -> None:
    with pytest.raises(ValueError, match="fingerprint"):
        attrs.evolve(FINGERPRINT, fingerprint="xxh3-128:99AA")
    with pytest.raises(ValueError, match="inputBytes"):
        attrs.evolve(FINGERPRINT, inputBytes=-1)
