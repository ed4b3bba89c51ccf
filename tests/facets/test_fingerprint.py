"""The facet of a content: its class and its schema say the same, and it is read leniently."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
import referencing
from openlineage.client.serde import Serde

from waybill.facets import (
    FINGERPRINT_FACET,
    PRODUCER,
    RunEvent,
    WaybillFingerprintInputDatasetFacet,
    decode_event,
    fingerprints_of,
)
from waybill.facets.schema_files import read_facet_schemas

NAME = "WaybillFingerprintInputDatasetFacet"
SCHEMA = json.loads(read_facet_schemas()[f"{NAME}-1-0-0"])
# What OpenLineage's own schema asks of every facet.
OPENLINEAGE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {"InputDatasetFacet": {"type": "object", "required": ["_producer", "_schemaURL"]}},
}
PRINT = "xxh3-128:99aa06d3014798d86001c324468d497f"


def as_sent(**changed: object) -> dict[str, object]:
    given: Any = {"fingerprint": PRINT, "algorithm": "xxh3-128", "inputBytes": 20, "contentBytes": 0}
    facet = WaybillFingerprintInputDatasetFacet(**(given | changed), producer=PRODUCER)
    sent: dict[str, object] = json.loads(Serde.to_json(facet))
    return sent


def event(*inputs: object) -> RunEvent:
    body = {
        "eventTime": "2026-01-31T12:00:00.000Z",
        "eventType": "START",
        "run": {"runId": "0193"},
        "job": {"namespace": "edge", "name": "sftp-in"},
        "producer": PRODUCER,
        "inputs": [{"namespace": "edge", "name": "sftp-in", "inputFacets": one} for one in inputs],
    }
    decoded = decode_event(json.dumps(body).encode())
    assert isinstance(decoded, RunEvent)
    return decoded


def test_class_and_schema_say_the_same() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"] == {FINGERPRINT_FACET: {"$ref": f"#/$defs/{NAME}"}}
    written = {one.name for one in attrs.fields(WaybillFingerprintInputDatasetFacet)}
    assert written - {"_producer", "_schemaURL"} == set(SCHEMA["$defs"][NAME]["allOf"][1]["properties"])


@pytest.mark.parametrize("forced", [True, None])
def test_the_facet_is_valid_against_its_schema_as_the_client_writes_it(*, forced: bool | None) -> None:
    resources: referencing.Registry[Any] = referencing.Registry().with_resources(
        (str(one["$id"]), referencing.Resource.from_contents(one)) for one in (OPENLINEAGE, SCHEMA)
    )
    facet = as_sent(forced=forced)
    assert ("forced" in facet) == bool(forced)
    jsonschema.Draft202012Validator({"$ref": facet["_schemaURL"]}, registry=resources).validate(facet)


@pytest.mark.parametrize(
    ("field", "value"), [("fingerprint", "99aa"), ("fingerprint", "xxh3-128:99AA"), ("inputBytes", -1)]
)
def test_class_and_schema_refuse_what_is_no_fingerprint(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        as_sent(**{field: value})
    rules = SCHEMA["$defs"][NAME]["allOf"][1]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(rules).validate(as_sent() | {field: value})


def test_an_event_tells_the_fingerprint_of_each_input() -> None:
    seen = fingerprints_of(
        event({FINGERPRINT_FACET: as_sent(forced=True)}, {}, {FINGERPRINT_FACET: as_sent()})
    )
    assert [(one.fingerprint, one.inputBytes, one.contentBytes, one.forced) for one in seen] == [
        (PRINT, 20, 0, True),
        (PRINT, 20, 0, False),
    ]


@pytest.mark.parametrize(
    "facet",
    [
        "text",
        {},
        {"fingerprint": ""},
        {"fingerprint": PRINT, "inputBytes": 2**63},
        {"fingerprint": "x" * 1000},
        {"fingerprint": f"{PRINT}\n"},
    ],
)
def test_a_facet_that_is_none_of_ours_says_nothing_and_is_not_refused(facet: object) -> None:
    assert fingerprints_of(event({FINGERPRINT_FACET: facet})) == ()
