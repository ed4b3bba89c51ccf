"""Our encoding of client events, compared with the client's own."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import Any

import attr
import pytest
from hypothesis import given, strategies as st
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import error_message_run, schema_dataset
from openlineage.client.serde import Serde

from waybill.transport.serial import event_to_json


@attr.define
class AnythingRunFacet(error_message_run.ErrorMessageRunFacet):
    anything: Any = None


def event(anything: object = None) -> RunEvent:
    fields = [schema_dataset.SchemaDatasetFacetFields(name=f"c{number}", type="int") for number in range(3)]
    schema = schema_dataset.SchemaDatasetFacet(fields=fields)
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime="2026-11-21T10:00:00.000Z",
        run=Run(str(uuid.UUID(int=1)), {"any": AnythingRunFacet("m", "p", anything=anything)}),
        job=Job("ns", "job"),
        inputs=[InputDataset("ns", "in", facets={"schema": schema})],
        outputs=[OutputDataset("ns", "out")],
        producer="https://example.com/p",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_an_event_is_encoded_as_the_client_encodes_it(anything: object) -> None:
    ours, theirs = event_to_json(event(anything)), Serde.to_json(event(anything))
    assert json.loads(ours) == json.loads(theirs)


@pytest.mark.parametrize(
    "anything",
    [
        RunState.FAIL,
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 1),
        uuid.UUID(int=7),
        {1, 2},
        b"bytes",
        object(),
        datetime.timedelta(1),
        [None, {}, {"a": None}, (), [{}]],
        {"a": RunState.START, "b": [uuid.UUID(int=1)]},
        {7: "int key"},
        {None: 1},
        {True: 1},
        [error_message_run.ErrorMessageRunFacet("m", "p")],
        "null,",
    ],
)
def test_python_values_become_what_the_client_makes_of_them(anything: object) -> None:
    assert json.loads(event_to_json(event(anything))) == json.loads(Serde.to_json(event(anything)))


@pytest.mark.parametrize(
    ("anything", "written"),
    [
        ([float("nan"), float("inf")], [None, None]),
        ({"file\udce9": "caf\udce9"}, {"file\\udce9": "caf\\udce9"}),
        (
            {(1, 2): "tuple", None: "none", False: "bool", "text": {3: 4, None: "caf\udce9"}},
            {
                "(1, 2)": "tuple",
                "null": "none",
                "false": "bool",
                "text": {"3": 4, "null": "caf\\udce9"},
            },
        ),
    ],
)
def test_what_the_client_cannot_write_becomes_null_or_text(anything: object, written: object) -> None:
    body = json.loads(event_to_json(event(anything)))
    assert body["run"]["facets"]["any"]["anything"] == written
