"""Every schema of ours is in the package, under the identifier that its facets name."""

from __future__ import annotations

import json
import re

import pytest

from waybill.facets import PRODUCER
from waybill.facets.event import facet_schema_url
from waybill.facets.schema_files import find_facet_schema, read_facet_schemas

URN = re.compile(r"urn:waybill:[A-Za-z0-9:-]+[A-Za-z0-9]", re.ASCII)
"""What RFC 8141 allows, as far as we use it."""


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
