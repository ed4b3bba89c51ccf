"""The classes of the facets that say on what an end rests, and their schemas, say the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import jsonschema
import pytest
import referencing
from openlineage.client.serde import Serde

from waybill.facets import EVIDENCE_FACET, INFERRED_FACET, PRODUCER
from waybill.facets.inferred import WaybillEvidenceRunFacet, WaybillInferredRunFacet
from waybill.facets.schema_files import read_facet_schemas

if TYPE_CHECKING:
    from openlineage.client.generated.base import RunFacet

# What OpenLineage's own schema asks of every run facet.
OPENLINEAGE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {"RunFacet": {"type": "object", "required": ["_producer", "_schemaURL"]}},
}
FACETS = [
    (INFERRED_FACET, WaybillInferredRunFacet(reason="stale", producer=PRODUCER)),
    (EVIDENCE_FACET, WaybillEvidenceRunFacet(source="event log", producer=PRODUCER)),
]


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_class_and_schema_say_the_same(key: str, facet: RunFacet) -> None:
    name = type(facet).__name__
    schema = json.loads(read_facet_schemas()[f"{name}-1-0-0"])
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"] == {key: {"$ref": f"#/$defs/{name}"}}
    definition = schema["$defs"][name]["allOf"][1]
    written = {field.name for field in attrs.fields(type(facet))} - {"_producer", "_schemaURL"}
    assert written == set(definition["properties"])


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_the_facet_is_valid_against_its_schema_as_the_client_writes_it(key: str, facet: RunFacet) -> None:
    schema = json.loads(read_facet_schemas()[f"{type(facet).__name__}-1-0-0"])
    resources: referencing.Registry[Any] = referencing.Registry().with_resources(
        (str(one["$id"]), referencing.Resource.from_contents(one)) for one in (OPENLINEAGE, schema)
    )
    as_sent = json.loads(Serde.to_json(facet))
    validator = jsonschema.Draft202012Validator({"$ref": schema["$id"]}, registry=resources)
    validator.validate({key: as_sent})
    jsonschema.Draft202012Validator({"$ref": as_sent["_schemaURL"]}, registry=resources).validate(as_sent)
