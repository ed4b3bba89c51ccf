"""The class of each facet of ours, its JSON Schema and what is read of it say the same."""

from __future__ import annotations

import functools
import json
import pickle
import re
from typing import Any

import attrs
import jsonschema
import msgspec
import pytest
import referencing
from hypothesis import given, strategies as st
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from waybill import facets
from waybill.facets import (
    DELTA_FILE_FACET,
    EVIDENCE_FACET,
    FINGERPRINT_FACET,
    INFERRED_FACET,
    PRODUCER,
    SUMMARY_FACET,
    FinalState,
    WaybillFingerprintInputDatasetFacet,
    decode_event,
    fold,
    parse_instant_us,
)
from waybill.facets.delta_file import WaybillDeltaFileRunFacet
from waybill.facets.event import DeltaFile, facet_schema_url
from waybill.facets.inferred import WaybillEvidenceRunFacet, WaybillInferredJobFacet, WaybillInferredRunFacet
from waybill.facets.schema_files import find_facet_schema, read_facet_schemas
from waybill.facets.summary import WaybillSummaryRunFacet

URN = re.compile(r"urn:waybill:[A-Za-z0-9:-]+[A-Za-z0-9]", re.ASCII)
"""What RFC 8141 allows, as far as we use it."""
BASE = {"_producer", "_schemaURL", "_deleted"}  # the last is in every job facet
RULES = {
    "type": "object",
    "properties": {"_producer": {"type": "string"}, "_schemaURL": {"type": "string"}},
    "required": ["_producer", "_schemaURL"],
}
# What OpenLineage's own schema asks of every facet.
OPENLINEAGE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {"JobFacet": RULES, "RunFacet": RULES, "InputDatasetFacet": RULES},
}
DELTA_FILE = WaybillDeltaFileRunFacet(did="d", finalState=FinalState.ERROR)
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
    provenanceQuery="http://127.0.0.1:8090/s/3f2b",
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
    (DELTA_FILE_FACET, DELTA_FILE),
    (SUMMARY_FACET, SUMMARY),
    (INFERRED_FACET, WaybillInferredRunFacet(reason="stale", producer=PRODUCER)),
    (INFERRED_FACET, WaybillInferredJobFacet(reason="its SQL text", confidence=0.9, producer=PRODUCER)),
    (EVIDENCE_FACET, WaybillEvidenceRunFacet(source="event log", producer=PRODUCER)),
    (FINGERPRINT_FACET, FINGERPRINT),
    (FINGERPRINT_FACET, attrs.evolve(FINGERPRINT, forced=None)),
]

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
INSTANTS = st.datetimes(timezones=st.timezones()).filter(lambda at: 1971 <= at.year < 9999)
WRITTEN = INSTANTS.map(lambda at: at.astimezone(None).isoformat(timespec="milliseconds"))
DELTA_FILES = st.builds(
    WaybillDeltaFileRunFacet,
    did=TEXTS.filter(bool),
    parentDid=st.none() | TEXTS,
    systemName=st.none() | TEXTS,
    dataSource=st.none() | TEXTS,
    filename=st.none() | TEXTS,
    transforms=st.lists(TEXTS, max_size=3),
    dataSink=st.none() | TEXTS,
    finalState=st.none() | st.sampled_from(FinalState) | st.sampled_from(FinalState).map(str),
    created=st.none() | WRITTEN,
    completed=st.none() | WRITTEN,
    annotations=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@functools.cache
def schema_of(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(read_facet_schemas()[f"{name}-1-0-0"])
    return schema


@functools.cache
def validator(name: str, reference: str) -> jsonschema.Draft202012Validator:
    schema = schema_of(name)
    resources: referencing.Registry[Any] = referencing.Registry().with_resources(
        (str(one["$id"]), referencing.Resource.from_contents(one)) for one in (OPENLINEAGE, schema)
    )
    return jsonschema.Draft202012Validator({"$ref": reference}, registry=resources)


def check(facet: object, sent: dict[str, Any]) -> None:
    """Raise an error if what is sent of a facet is not valid against its schema."""
    name = type(facet).__name__
    validator(name, f"{schema_of(name)['$id']}#/$defs/{name}").validate(sent)


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_class_and_schema_say_the_same(key: str, facet: attrs.AttrsInstance) -> None:
    name = type(facet).__name__
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"] == {key: {"$ref": f"#/$defs/{name}"}}
    fields = schema["$defs"][name]["allOf"][1]["properties"]
    assert {field.name for field in attrs.fields(type(facet))} - BASE == set(fields)
    states = [fields["finalState"]["enum"]] if "finalState" in fields else []
    states += [fields["byFinalState"]["propertyNames"]["enum"]] if "byFinalState" in fields else []
    assert all(enum == list(FinalState) for enum in states)
    if key == DELTA_FILE_FACET:
        assert set(fields) == set(DeltaFile.__struct_encode_fields__), "what is read of it"


@pytest.mark.parametrize(("key", "facet"), FACETS)
def test_a_facet_is_valid_against_its_schema_as_the_client_writes_it(
    key: str, facet: attrs.AttrsInstance
) -> None:
    name, sent = type(facet).__name__, json.loads(Serde.to_json(facet))
    schema = schema_of(name)
    assert sent["_schemaURL"] == f"{schema['$id']}#/$defs/{name}"
    check(facet, sent)
    validator(name, schema["$id"]).validate({key: sent})
    assert ("forced" in sent) == bool(getattr(facet, "forced", None))
    assert pickle.loads(pickle.dumps(facet)) == facet


@attrs.define(kw_only=True)
class UsersFacet(WaybillDeltaFileRunFacet):
    note: str = "a user's own"


@pytest.mark.parametrize("facet", [facet for _, facet in FACETS])
def test_the_client_may_mask_annotations_and_what_a_user_adds_to_a_facet(facet: Any) -> None:  # noqa: ANN401 - any facet
    kept = {field.name for field in attrs.fields(type(facet))} - {"annotations"}
    assert set(facet.skip_redact) == kept
    assert set(facet.with_additional_properties(note="a user's own").skip_redact) == kept
    assert set(UsersFacet(did="d").skip_redact) == set(DELTA_FILE.skip_redact)


@given(DELTA_FILES)
def test_every_facet_of_a_file_is_valid_and_folds_to_the_record_it_describes(
    facet: WaybillDeltaFileRunFacet,
) -> None:
    check(facet, json.loads(Serde.to_json(facet)))
    event = RunEvent(
        eventTime="2026-01-31T12:00:00Z",
        eventType=RunState.COMPLETE,
        run=Run("01941111-2222-7333-8444-555555555555", {DELTA_FILE_FACET: facet}),
        job=Job("ns", "job"),
        producer=PRODUCER,
    )
    decoded = decode_event(Serde.to_json(event).encode())
    assert isinstance(decoded, facets.RunEvent)
    (record,) = fold([decoded], system_name="host")
    assert (record.did, record.parent_did) == (facet.did, facet.parentDid or None)
    assert (record.system_name, record.data_source) == (facet.systemName or "host", facet.dataSource or "job")
    assert (record.filename, record.transforms) == (facet.filename or "", tuple(facet.transforms))
    assert (record.data_sink, record.final_state) == (facet.dataSink or None, facet.finalState or "COMPLETE")
    assert record.annotations == (facet.annotations or None)
    of_facet = [facet.created, facet.completed]
    instants_ms = [parse_instant_us(one or event.eventTime) // 1_000 for one in of_facet]
    assert [record.created, record.completed] == instants_ms


@pytest.mark.parametrize(
    ("facet", "field", "value"),
    [
        (DELTA_FILE, "did", ""),
        (DELTA_FILE, "did", None),
        (DELTA_FILE, "finalState", "BANANA"),
        (DELTA_FILE, "finalState", "complete"),
        (DELTA_FILE, "transforms", "decompress"),
        (DELTA_FILE, "transforms", [1]),
        (DELTA_FILE, "annotations", {"k": 1}),
        (DELTA_FILE, "annotations", []),
        (DELTA_FILE, "created", 1_769_860_800_000),
        (DELTA_FILE, "completed", "2026-01-31"),
        (DELTA_FILE, "completed", "2026-01-31T12:00:00"),
        (DELTA_FILE, "_producer", None),
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
        check(facet, sent | {field: value})


@pytest.mark.parametrize(
    ("facet", "field", "value", "way_out"),
    [
        (DELTA_FILE, "did", "", "give the file's identity"),
        (DELTA_FILE, "finalState", "BANANA", "use one of COMPLETE, ERROR, FILTERED, CANCELLED, SPLIT"),
        (DELTA_FILE, "created", "2026-01-31T12:00:00", "write an instant"),
        (DELTA_FILE, "completed", "1969-12-31T23:59:59Z", "write an instant"),
        (DELTA_FILE, "completed", "2026-02-30T12:00:00Z", "write an instant"),
        (FINGERPRINT, "fingerprint", "xxh3-128:99AA", ""),
        (FINGERPRINT, "inputBytes", -1, ""),
    ],
)
def test_a_class_refuses_what_its_schema_refuses(facet: Any, field: str, value: Any, way_out: str) -> None:  # noqa: ANN401 - any facet
    with pytest.raises(ValueError, match=f"{field}.*{way_out}"):
        attrs.evolve(facet, **{field: value})


def test_what_is_read_is_no_stricter_than_what_is_written() -> None:
    facet = WaybillDeltaFileRunFacet(
        did="d", parentDid="", annotations={}, created="2026-01-31T12:00:00.5+05:45"
    )
    assert msgspec.json.decode(Serde.to_json(facet), type=DeltaFile).created == "2026-01-31T12:00:00.5+05:45"


@pytest.mark.parametrize("name", read_facet_schemas())
def test_a_schema_is_found_by_its_name_and_by_the_url_in_its_facets(name: str) -> None:
    facet, _, version = name.partition("-")
    url = facet_schema_url(facet, version)
    body = find_facet_schema(url)
    assert body is not None
    assert body == find_facet_schema(name)
    schema = json.loads(body)
    assert url == f"{schema['$id']}#/$defs/{facet}"
    assert list(schema["$defs"]) == [facet]


def test_what_is_no_schema_of_ours_is_not_found() -> None:
    assert find_facet_schema("WaybillDeltaFileRunFacet-9-0-0") is None
    assert find_facet_schema("https://openlineage.io/spec/facets/1-0-0/ParentRunFacet.json") is None


def test_our_identifiers_are_uris() -> None:
    ids = [json.loads(body)["$id"] for body in read_facet_schemas().values()]
    assert [identifier for identifier in [PRODUCER, *ids] if not URN.fullmatch(identifier)] == []
