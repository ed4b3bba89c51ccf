"""The facet against its own JSON Schema, through the client's own serialiser, and back into a record."""

from __future__ import annotations

import json
import pickle
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
from waybill.facets import DELTA_FILE_FACET, PRODUCER, FinalState, decode_event, fold
from waybill.facets.delta_file import SCHEMA_URL, WaybillDeltaFileRunFacet
from waybill.facets.event import DeltaFile
from waybill.facets.schema_files import read_facet_schemas

SCHEMA = json.loads(read_facet_schemas()["WaybillDeltaFileRunFacet-1-0-0"])
DEFINITION = SCHEMA["$defs"]["WaybillDeltaFileRunFacet"]["allOf"][1]

# What OpenLineage's own schema asks of every run facet.
OPENLINEAGE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
    "$defs": {
        "RunFacet": {
            "type": "object",
            "properties": {"_producer": {"type": "string"}, "_schemaURL": {"type": "string"}},
            "required": ["_producer", "_schemaURL"],
        }
    },
}

RESOURCES: referencing.Registry[Any] = referencing.Registry().with_resources(
    (schema["$id"], referencing.Resource.from_contents(schema)) for schema in (OPENLINEAGE, SCHEMA)
)
VALIDATOR = jsonschema.Draft202012Validator({"$ref": SCHEMA_URL}, registry=RESOURCES)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
INSTANTS = st.datetimes(timezones=st.timezones()).filter(lambda at: 1971 <= at.year < 9999)


def written(at: Any) -> str:  # noqa: ANN401
    return str(at.astimezone(None).isoformat(timespec="milliseconds"))


FACETS = st.builds(
    WaybillDeltaFileRunFacet,
    did=TEXTS.filter(bool),
    parentDid=st.none() | TEXTS,
    systemName=st.none() | TEXTS,
    dataSource=st.none() | TEXTS,
    filename=st.none() | TEXTS,
    transforms=st.lists(TEXTS, max_size=3),
    dataSink=st.none() | TEXTS,
    finalState=st.none() | st.sampled_from(FinalState) | st.sampled_from(FinalState).map(str),
    created=st.none() | INSTANTS.map(written),
    completed=st.none() | INSTANTS.map(written),
    annotations=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3),
)


def test_class_schema_and_reader_have_the_same_fields() -> None:
    written_fields = {field.name for field in attrs.fields(WaybillDeltaFileRunFacet)} - {
        "_producer",
        "_schemaURL",
    }
    assert written_fields == set(DEFINITION["properties"]) == set(DeltaFile.__struct_encode_fields__)
    assert DEFINITION["properties"]["finalState"]["enum"] == list(FinalState)


@given(FACETS)
def test_every_facet_is_valid_against_its_schema_as_the_client_writes_it(
    facet: WaybillDeltaFileRunFacet,
) -> None:
    as_sent = json.loads(Serde.to_json(facet))
    VALIDATOR.validate(as_sent)
    assert as_sent["_schemaURL"] == SCHEMA_URL


@given(FACETS)
def test_every_facet_folds_to_the_record_it_describes(facet: WaybillDeltaFileRunFacet) -> None:
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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("did", ""),
        ("did", None),
        ("finalState", "BANANA"),
        ("finalState", "complete"),
        ("transforms", "decompress"),
        ("transforms", [1]),
        ("annotations", {"k": 1}),
        ("annotations", []),
        ("created", 1_769_860_800_000),
        ("completed", "2026-01-31"),
        ("completed", "2026-01-31T12:00:00"),
        ("_producer", None),
    ],
)
def test_the_schema_refuses_what_is_no_delta_file(field: str, value: object) -> None:
    facet = {"_producer": PRODUCER, "_schemaURL": SCHEMA_URL, "did": "d", field: value}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({key: item for key, item in facet.items() if item is not None})


@pytest.mark.parametrize(
    ("field", "value", "way_out"),
    [
        ("did", "", "give the file's identity"),
        ("finalState", "BANANA", "use one of COMPLETE, ERROR, FILTERED, CANCELLED, SPLIT"),
        ("created", "2026-01-31T12:00:00", "write an instant"),
        ("completed", "1969-12-31T23:59:59Z", "write an instant"),
        ("completed", "2026-02-30T12:00:00Z", "write an instant"),
    ],
)
def test_the_class_refuses_what_its_schema_refuses(field: str, value: Any, way_out: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=f"^{field} .*{way_out}"):
        WaybillDeltaFileRunFacet(**{"did": "d", field: value})


def test_a_facet_is_copied_by_pickle_whole() -> None:
    facet = WaybillDeltaFileRunFacet(did="d", annotations={"k": "v"}, transforms=["t"])
    assert pickle.loads(pickle.dumps(facet)) == facet


def test_what_is_read_is_no_stricter_than_what_is_written() -> None:
    facet = WaybillDeltaFileRunFacet(
        did="d", parentDid="", annotations={}, created="2026-01-31T12:00:00.5+05:45"
    )
    assert msgspec.json.decode(Serde.to_json(facet), type=DeltaFile).created == "2026-01-31T12:00:00.5+05:45"
