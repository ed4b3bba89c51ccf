"""The facet of a content is read leniently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from events import members, named
from openlineage.client.serde import Serde

from waybill.facets import (
    FINGERPRINT_FACET,
    PRODUCER,
    RunEvent,
    WaybillFingerprintInputDatasetFacet,
    decode_event,
    fingerprints_of,
)

PRINT = "xxh3-128:99aa06d3014798d86001c324468d497f"


def as_sent(**changed: object) -> dict[str, object]:
    given: Any = {"fingerprint": PRINT, "algorithm": "xxh3-128", "inputBytes": 20, "contentBytes": 0}
    facet = WaybillFingerprintInputDatasetFacet(**(given | changed), producer=PRODUCER)
    sent: dict[str, object] = json.loads(Serde.to_json(facet))
    return sent


def event(*inputs: object) -> RunEvent:
    read = [named("edge/sftp-in") | {"inputFacets": one} for one in inputs]
    decoded = decode_event(json.dumps(members("0193", "START") | {"inputs": read}).encode())
    assert isinstance(decoded, RunEvent)
    return decoded


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
