"""Analyzers: what they find in events, and how others add theirs."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pasting import blocks

from waybill.lineage.analyzers import (
    AirflowAnalyzer,
    DbtAnalyzer,
    GenericAnalyzer,
    SqlAnalyzer,
    analyze_event,
    load_analyzers,
)

EVENTS = yaml.safe_load(Path(__file__).with_name("sql_events.yaml").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "analyzers.md"
STORE = "postgres://db:5432"


def dataset(name: str, columns: dict[str, str] | None = None, **facets: object) -> dict[str, Any]:
    if columns is not None:
        facets["schema"] = {"fields": [{"name": name, "type": kind} for name, kind in columns.items()]}
    return {"namespace": STORE, "name": name, "facets": facets}


def event(sql: str | None = None, *, dialect: str | None = None, **given: object) -> dict[str, Any]:
    facets = {} if sql is None else {"sql": {"query": sql, "dialect": dialect}}
    return {
        "job": {"namespace": "etl", "name": "daily", "facets": facets},
        "inputs": [],
        "outputs": [],
        **given,
    }


def names(found: dict[str, Any] | None, key: str) -> list[str]:
    assert found is not None
    return [one["name"] for one in found[key]]


def columns_of(facets: dict[str, Any]) -> dict[str, list[str]]:
    """By column, those that it comes from."""
    fields = facets["columnLineage"]["fields"]
    return {
        name: [f"{used['name']}.{used['field']}" for used in one["inputFields"]]
        for name, one in fields.items()
    }


def columns(found: dict[str, Any] | None) -> dict[str, list[str]]:
    assert found is not None
    ((output),) = found["outputs"]
    return columns_of(output["facets"])


def sure(found: dict[str, Any] | None) -> float:
    assert found is not None
    return float(found["job"]["facets"]["waybill_inferred"]["confidence"])


def parted(text: str) -> tuple[str, str]:
    """The namespace and the name of a dataset of the table."""
    namespace, _, name = text.rpartition(" ")
    return namespace or STORE, name


def told_in(table: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The datasets of an event of the table."""
    return [
        {**dataset(name, dict.fromkeys(facets.pop("columns", ()), "int"), **facets), "namespace": namespace}
        for text, facets in copy.deepcopy(table.get(key, {})).items()
        for namespace, name in [parted(text)]
    ]


@pytest.mark.parametrize("row", EVENTS, ids=lambda row: row["name"])
def test_the_tables_of_a_text_are_datasets(row: dict[str, Any]) -> None:
    asked = event(row.get("sql"), dialect=row.get("dialect"))
    asked["job"]["namespace"] = row.get("job", "etl")
    asked["job"]["facets"]["jobType"] = {"integration": row.get("integration", "")}
    asked |= {key: told_in(row, key) for key in ("inputs", "outputs")}
    found = SqlAnalyzer().analyze(asked, {})
    assert (found is not None) == row.get("found", True)
    if found is None:
        return
    said = found["job"]["facets"]["waybill_inferred"]
    assert row.get("says", "") in said["reason"]
    assert said["confidence"] == row.get("confidence", said["confidence"])
    pairs = [(one["namespace"], one["name"]) for one in found["inputs"]]
    assert pairs == [*map(parted, row.get("reads", ()))] or "reads" not in row
    written = {(one["namespace"], one["name"]): one["facets"] for one in found["outputs"]}
    columns = {parted(text): fields for text, fields in row.get("writes", {}).items()}
    assert {pair: columns_of(facets) for pair, facets in written.items()} == columns or "writes" not in row
    lineage = {
        name: [one["name"] for one in facets["lineage"]["inputs"]]
        for (_, name), facets in written.items()
        if "lineage" in facets
    }
    assert lineage == row.get("lineage", lineage)


def test_the_order_of_tasks_is_what_airflow_says() -> None:
    # As the provider 2.20 sends them: a set is the text of a list.
    task: dict[str, object] = {
        "task_id": "load",
        "upstream_task_ids": "['orders']",
        "downstream_task_ids": "['broken', 'flaky']",
        "trigger_dag_id": "nightly",
    }
    airflow = {"airflow": {"dag": {"dag_id": "shop"}, "task": task}}
    found = AirflowAnalyzer().analyze({**event(), "run": {"runId": "r", "facets": airflow}}, {})
    assert found is not None
    entries = found["job"]["facets"]["lineage"]["entries"]
    assert entries == [
        {"type": "JOB", "inputs": [{"type": "JOB", "namespace": "etl", "name": "shop.orders"}]},
        *(
            {"type": "JOB", "namespace": "etl", "name": name, "inputs": [{"type": "JOB"}]}
            for name in ("shop.broken", "shop.flaky", "nightly")
        ),
    ]
    task |= {"upstream_task_ids": "[]", "downstream_task_ids": [], "trigger_dag_id": None}
    assert AirflowAnalyzer().analyze({**event(), "run": {"runId": "r", "facets": airflow}}, {}) is None


def test_an_exposure_of_dbt_is_downstream_of_its_models_and_sources() -> None:
    board = {"exposures": [{"unique_id": "exposure.shop.week", "name": "week", "type": "dashboard"}]}
    plain = {"exposures": [{"unique_id": "exposure.shop.raw", "name": "raw", "type": None}]}
    told = event(
        inputs=[dataset("shop.raw.orders", dbt_exposures=plain)],
        outputs=[dataset("shop.public.daily", dbt_exposures=board)],
    )
    found = DbtAnalyzer().analyze(told, {})
    assert found is not None
    assert found["outputs"] == [{"namespace": "dashboard", "name": "week"}]
    entries = found["job"]["facets"]["lineage"]["entries"]
    assert [(one["namespace"], one["name"], one["inputs"][0]["name"]) for one in entries] == [
        ("exposure", "raw", "shop.raw.orders"),
        ("dashboard", "week", "shop.public.daily"),
    ]
    assert DbtAnalyzer().analyze(event(), {}) is None


def test_a_column_of_the_same_name_and_type_passes_through_where_nothing_better_is_known() -> None:
    source = dataset("a", {"id": "int", "note": "text"})
    known = dataset("c", {"id": "int"}, columnLineage={"fields": {}})
    told = event(inputs=[source], outputs=[dataset("b", {"id": "int", "note": "int", "new": "int"}), known])
    assert columns(GenericAnalyzer().analyze(told, {})) == {"id": ["a.id"], "note": [], "new": []}
    by_catalog = event(inputs=[dataset("a")], outputs=[dataset("b")])
    catalog = {(STORE, name): {"id": "int"} for name in "ab"}
    assert columns(GenericAnalyzer().analyze(by_catalog, catalog)) == {"id": ["a.id"]}
    assert GenericAnalyzer().analyze(event(outputs=[dataset("b", {"id": "int"})]), {}) is None


def test_the_generic_analyzer_guesses_nothing_of_a_plan_that_sparks_listener_has_read() -> None:
    schema = {"id": "int"}
    told = event(inputs=[dataset("a", schema)], outputs=[dataset("b", schema)])
    assert GenericAnalyzer().analyze(told, {}) is not None
    told["job"]["facets"] = {"jobType": {"integration": "SPARK", "processingType": "BATCH"}}
    assert GenericAnalyzer().analyze(told, {}) is None


def test_the_generic_analyzer_adds_nothing_to_what_sql_says() -> None:
    analyzers, problems = load_analyzers()
    assert problems == {}
    assert [one.name for one in analyzers] == ["airflow", "dbt", "sql", "generic"]
    same: dict[str, Any] = {
        "inputs": [dataset("s.a", {"id": "int"})],
        "outputs": [dataset("s.b", {"id": "int"})],
    }
    assert [one.analyzer for one in analyze_event(event(**same), {}, analyzers)] == ["generic"]
    told = analyze_event(event("INSERT INTO s.b SELECT 7 AS id FROM s.a", **same), {}, analyzers)
    assert [(one.analyzer, one.confidence, one.problem) for one in told] == [("sql", 0.9, None)]
    assert json.loads(told[0].event)["job"]["name"] == "daily"


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT (((", "SELECT " + "(" * 5_000, "INSERT INTO", "SELECT 'open", "WITH", "EXEC run"),
        "ALTER TABLE s.a SWAP WITH s.b",
    ],
)
def test_a_text_that_cannot_be_read_is_a_problem_of_that_analyzer_alone(sql: str) -> None:
    same: dict[str, Any] = {
        "inputs": [dataset("s.a", {"id": "int"})],
        "outputs": [dataset("s.b", {"id": "int"})],
    }
    told = analyze_event(event(sql, **same), {}, load_analyzers()[0])
    assert [(one.analyzer, one.problem is None) for one in told] == [("sql", False), ("generic", True)]


def test_the_analyzer_of_the_guide_is_found_once_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, project = (one for one in blocks(PAGE.read_text(encoding="utf-8")) if one.title)
    assert len(code.text.splitlines()) <= 20
    (tmp_path / str(code.title)).write_text(code.text, encoding="utf-8")
    info = tmp_path / "shop_dashboards-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-dashboards\nVersion: 1.0\n")
    points = tomllib.loads(project.text)["project"]["entry-points"]["waybill.analyzers"]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text(
        "\n".join(["[waybill.analyzers]", *lines, "broken = dashboards:No"])
    )
    monkeypatch.syspath_prepend(tmp_path)
    analyzers, problems = load_analyzers()
    assert [one.name for one in analyzers] == ["airflow", "dbt", "sql", "dashboards", "generic"]
    assert list(problems) == ["broken"]
    (told,) = analyze_event(event(outputs=[dataset("shop.public.revenue")]), {}, analyzers)
    assert json.loads(told.event)["outputs"] == [{"namespace": "dashboard", "name": "user-metrics"}]
    assert (told.analyzer, told.confidence) == ("dashboards", 0.8)
