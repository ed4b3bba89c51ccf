"""SQL texts against what a reader draws of them, which was written down first: `sql_texts.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from waybill.lineage.analyzers import SqlAnalyzer

TEXTS = yaml.safe_load(Path(__file__).with_name("sql_texts.yaml").read_text(encoding="utf-8"))
STORE = "db://store"
DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


def told(fields: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for field in fields:
        assert field["namespace"] == STORE
        for how in field["transformations"]:
            assert how["type"] == ("DIRECT" if how["subtype"] in DIRECT else "INDIRECT")
            masked = " MASKED" if how["masking"] else ""
            lines.append(f"{field['name']}.{field['field']} {how['subtype']}{masked}")
    return sorted(lines)


def read(text: dict[str, Any]) -> dict[str, Any]:
    """What the analyzer draws of a text, in the form of the file."""
    catalog = {(STORE, name): columns for name, columns in text.get("catalog", {}).items()}
    facet = {"query": text["sql"], "dialect": text["dialect"]}
    job = {"namespace": STORE, "name": "job", "facets": {"sql": facet}}
    found = SqlAnalyzer().analyze({"job": job}, catalog) or {}
    outputs: dict[str, Any] = {}
    for one in found["outputs"]:
        lineage = one["facets"]["columnLineage"]
        columns = {
            name: told(field["inputFields"])
            + [how for how in [field.get("transformationDescription")] if how]
            for name, field in lineage["fields"].items()
        }
        outputs[one["name"]] = {"columns": columns, "rows": told(lineage.get("dataset", []))}
    return {"inputs": [one["name"] for one in found["inputs"]], "outputs": outputs}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text["name"])
def test_a_text_is_read_as_a_reader_draws_it(text: dict[str, Any]) -> None:
    drawn = {
        name: {
            "columns": {column: sorted(origins) for column, origins in one.get("columns", {}).items()},
            "rows": sorted(one["rows"]),
        }
        for name, one in text["outputs"].items()
    }
    assert read(text) == {"inputs": text["inputs"], "outputs": drawn}
