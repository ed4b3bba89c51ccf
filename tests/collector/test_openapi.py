"""The OpenAPI description: the real server does what it says, to whatever it allows and does not allow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from served import Collector, without_runner

from waybill.collector.openapi import description
from waybill.facets.event import FACET_URN
from waybill.facets.schema_files import read_facet_schemas

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    allow_header_conformance,
]


DESCRIBED = list(schemathesis.openapi.from_dict(description()).get_all_operations())
OPERATIONS = [one.ok() for one in DESCRIBED if isinstance(one, Ok)]
ALLOWED, NOT_ALLOWED = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CASES = [
    pytest.param(one, mode, id=f"{one.label} {mode.value}")
    for one in OPERATIONS
    for mode in (ALLOWED, NOT_ALLOWED)
    # What takes nothing can be given nothing that is wrong.
    if mode is ALLOWED or one.definition.raw.get("parameters") or one.definition.raw.get("requestBody")
]


def references(value: object) -> Iterator[str]:
    """Every ``$ref`` in a description."""
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == "$ref")
        yield from (found for inner in value.values() for found in references(inner))
    elif isinstance(value, list):
        yield from (found for inner in value for found in references(inner))


def test_every_reference_of_the_description_leads_somewhere() -> None:
    whole = description()
    named = {f"#/components/{kind}/{name}" for kind, of in whole["components"].items() for name in of}
    assert set(references(whole)) - named == set()
    assert len(OPERATIONS) == len(DESCRIBED)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector that can be asked."""
    home = tmp_path_factory.mktemp("described") / "home"
    with without_runner(home, "--provenance-enabled") as collector:
        yield collector


@pytest.mark.random
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_every_answer_is_as_described(
    shared: Collector,
    operation: schemathesis.APIOperation[Any, Any, Any, Any],
    mode: schemathesis.GenerationMode,
) -> None:
    @settings(max_examples=settings().max_examples // 10, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(base_url=shared.url, checks=CHECKS)

    ask()


def test_the_schemas_of_the_facets_are_served_to_anybody(shared: Collector) -> None:
    assert len(read_facet_schemas()) == 7
    for name, schema in read_facet_schemas().items():
        for asked in (name, f"{FACET_URN}{name}"):
            reply = shared.get(f"/schemas/{asked}")
            assert (reply.status, reply.headers["content-type"]) == (200, "application/schema+json")
            assert reply.json == json.loads(schema)


def test_a_schema_that_is_not_there_is_404_with_the_names_of_those_that_are(shared: Collector) -> None:
    reply = shared.get("/schemas/WaybillDeltaFileRunFacet-9-0-0")
    assert reply.status == 404
    assert "WaybillDeltaFileRunFacet-1-0-0" in reply.json["detail"]


def test_the_page_shows_every_path_and_asks_nobody_for_anything(shared: Collector) -> None:
    reply = shared.get("/docs")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = reply.body.decode()
    for path, methods in description()["paths"].items():
        assert all(f"{method.upper()} {path}</h2>" in text for method in methods)
    assert "<script" not in text
    links = set(re.findall(r'(?:href|src)="([^"]*)"', text))
    names = {f"#{name}" for name in re.findall(r'id="(\w+)"', text)}
    assert links - names == {"openapi.json"}
