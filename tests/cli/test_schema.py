from __future__ import annotations

import json
from typing import TYPE_CHECKING

from waybill.facets.event import facet_schema_url

if TYPE_CHECKING:
    from conftest import Run


def test_the_schemas_are_listed_one_a_line(called: Run) -> None:
    done = called("schema")
    assert (done.returncode, done.stderr) == (0, "")
    names = done.stdout.splitlines()
    assert "WaybillDeltaFileRunFacet-1-0-0" in names
    listed = called("schema", "--json").stdout.splitlines()
    assert [json.loads(line) for line in listed] == [{"name": name} for name in names]


def test_a_schema_is_printed_by_its_name_and_by_the_url_in_an_event(called: Run) -> None:
    printed = called("schema", "WaybillDeltaFileRunFacet-1-0-0").stdout
    assert list(json.loads(printed)["$defs"]) == ["WaybillDeltaFileRunFacet"]
    assert called("schema", facet_schema_url("WaybillDeltaFileRunFacet")).stdout == printed
    (line,) = called("schema", "WaybillDeltaFileRunFacet-1-0-0", "--json").stdout.splitlines()
    assert json.loads(line) == json.loads(printed)
