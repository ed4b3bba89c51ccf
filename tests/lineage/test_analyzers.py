"""Analyzers: what they find in events, and how others add theirs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pasting import blocks

from waybill.lineage.analyzers import (
    AirflowAnalyzer,
    DbtAnalyzer,
    GenericAnalyzer,
    SqlAnalyzer,
    analyze_event,
    load_analyzers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "analyzers.md"
STORE = "postgres://db:5432"
PACKAGE = import_module("openlineage_sql")


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


def columns(found: dict[str, Any] | None) -> dict[str, list[str]]:
    assert found is not None
    ((output),) = found["outputs"]
    fields = output["facets"]["columnLineage"]["fields"]
    return {
        name: [f"{used['name']}.{used['field']}" for used in one["inputFields"]]
        for name, one in fields.items()
    }


def sure(found: dict[str, Any] | None) -> float:
    assert found is not None
    return float(found["job"]["facets"]["waybill_inferred"]["confidence"])


@pytest.fixture(autouse=True)
def _no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage_sql", None)


def test_the_tables_of_a_text_are_the_datasets_of_its_event() -> None:
    found = SqlAnalyzer().analyze(
        event(
            "INSERT INTO Daily SELECT o.* FROM public.orders o",
            inputs=[dataset("shop.public.orders", {"Id": "int", "total": "int"})],
            outputs=[dataset("shop.public.daily", {"ID": "int", "total": "int"})],
        ),
        {},
    )
    assert (names(found, "inputs"), names(found, "outputs")) == (
        ["shop.public.orders"],
        ["shop.public.daily"],
    )
    assert columns(found) == {"ID": ["shop.public.orders.Id"], "total": ["shop.public.orders.total"]}
    assert sure(found) == 0.9


def test_a_table_that_the_event_does_not_name_is_in_the_same_database() -> None:
    reads = "SELECT c.id FROM customers c JOIN audit.visits v ON v.id = c.id"
    found = SqlAnalyzer().analyze(event(reads, outputs=[dataset("shop.public.daily")]), {})
    assert names(found, "inputs") == ["shop.audit.visits", "shop.public.customers"]
    assert columns(found) == {"id": ["shop.public.customers.id"]}


def test_each_output_of_a_text_has_its_own_inputs() -> None:
    text = """
        CREATE TEMP TABLE step AS SELECT id FROM orders; INSERT INTO a SELECT id FROM step;
        INSERT INTO b SELECT count(*) AS n FROM customers; INSERT INTO b VALUES (1)
    """
    job = {"namespace": STORE, "name": "script", "facets": {"sql": {"query": text, "dialect": "postgres"}}}
    found = SqlAnalyzer().analyze({"job": job}, {})
    assert found is not None
    inputs = {one["name"]: one["facets"]["lineage"]["inputs"] for one in found["outputs"]}
    assert {name: [one["name"] for one in some] for name, some in inputs.items()} == {
        "a": ["orders"],
        "b": ["customers"],
    }


def test_what_nobody_can_say_of_a_text_is_told_and_makes_it_less_sure() -> None:
    texts = {
        "SELECT a.id FROM a NATURAL JOIN b": "the columns of a NATURAL JOIN are not known",
        "SELECT id FROM a UNPIVOT (amount FOR month IN (jan, feb))": "the columns of an UNPIVOT",
    }
    for text, note in texts.items():
        found = SqlAnalyzer().analyze(event(f"CREATE TABLE c AS {text}", inputs=[dataset("a")]), {})
        assert found is not None
        assert note in found["job"]["facets"]["waybill_inferred"]["reason"]
        assert sure(found) == 0.7


def test_a_view_of_a_program_is_no_dataset() -> None:
    files = [{"namespace": "file", "name": f"/data/{name}", "facets": {}} for name in ("in.csv", "out")]
    of_spark = event("SELECT id FROM orders", inputs=files[:1], outputs=files[1:])
    found = SqlAnalyzer().analyze(of_spark, {})
    assert (names(found, "inputs"), columns(found)) == ([], {"id": []})
    assert found is not None
    assert "lineage" not in found["outputs"][0]["facets"], "there are inputs, yet nobody can name them"
    assert sure(found) == 0.7
    of_spark["job"]["facets"]["jobType"] = {"integration": "SPARK"}
    assert SqlAnalyzer().analyze(of_spark, {}) is None, "the program may do more than its SQL says"
    assert SqlAnalyzer().analyze(event("SELECT id FROM orders"), {}) is None
    assert SqlAnalyzer().analyze(event(), {}) is None


def test_a_symlink_names_a_table_and_the_engine_knows_its_columns_best() -> None:
    link = {"identifiers": [{"namespace": "/wh", "name": "lake.agg", "type": "TABLE"}]}
    used = {"namespace": "file", "name": "/in", "field": "a", "transformations": [{"type": "DIRECT"}]}
    lineage = {"fields": {"a": {"inputFields": [used]}}}
    source = {"namespace": "file", "name": "/wh/lake.db/agg", "facets": {"symlinks": link}}
    output = {"namespace": "file", "name": "/out", "facets": {}}
    query = "SELECT country FROM lake.agg"
    told = SqlAnalyzer().analyze(event(query, dialect="spark", inputs=[source], outputs=[output]), {})
    assert columns(told) == {"country": ["/wh/lake.db/agg.country"]}
    output["facets"] = {"columnLineage": lineage}
    told = SqlAnalyzer().analyze(event(query, dialect="spark", inputs=[source], outputs=[output]), {})
    assert told is not None
    assert (names(told, "inputs"), told["outputs"]) == (["/wh/lake.db/agg"], [])


def test_a_path_in_the_sql_of_spark_is_the_files_there() -> None:
    text = """
        INSERT INTO delta.`s3a://lake/shop/daily/` SELECT o.id, c.name
        FROM parquet.`/data/in/orders.parquet` AS o JOIN csv.`hdfs://nn:8020/c.csv` AS c ON c.id = o.customer
    """
    job = {"namespace": "spark", "name": "job.sql", "facets": {"sql": {"query": text, "dialect": "spark"}}}
    found = SqlAnalyzer().analyze({"job": job}, {})
    assert found is not None
    assert [(one["namespace"], one["name"]) for one in found["inputs"]] == [
        ("hdfs://nn:8020", "/c.csv"),
        ("file", "/data/in/orders.parquet"),
    ]
    assert columns(found) == {"id": ["/data/in/orders.parquet.id"], "name": ["/c.csv.name"]}
    (output,) = found["outputs"]
    assert (output["namespace"], output["name"]) == ("s3a://lake", "/shop/daily")
    told = {"namespace": "s3://lake", "name": "shop/daily", "facets": {}}
    found = SqlAnalyzer().analyze({"job": job, "outputs": [told]}, {})
    assert found is not None
    assert [(one["namespace"], one["name"]) for one in found["outputs"]] == [("s3://lake", "shop/daily")]


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("'s3://lake/in/day.parquet'", [("s3://lake", "in/day.parquet")]),
        ('"/lake/day.csv" AS d', [("file", "/lake/day.csv")]),
        ("read_parquet('s3://lake/in/*/*.parquet')", [("s3://lake", "in")]),
        ("read_csv('/lake/day.csv', header = true)", [("file", "/lake/day.csv")]),
        ("read_json_auto(['/a.json', 'https://h/b.json'])", [("file", "/a.json"), ("https://h", "/b.json")]),
        ("delta_scan('abfss://c@a.dfs.core.windows.net/t/')", [("abfss://c@a.dfs.core.windows.net", "t")]),
    ],
)
def test_a_file_in_the_sql_of_duckdb_is_the_dataset_of_that_file(
    source: str, files: list[tuple[str, str]]
) -> None:
    sql = {"query": f"INSERT INTO daily (id) SELECT id FROM {source}", "dialect": "duckdb"}  # noqa: S608
    job = {"namespace": "duckdb://shop", "name": "job", "facets": {"sql": sql}}
    found = SqlAnalyzer().analyze({"job": job}, {})
    assert found is not None
    assert [(one["namespace"], one["name"]) for one in found["inputs"]] == files
    assert columns(found) == {"id": [f"{name}.id" for _, name in files]}
    told = {"namespace": "s3a://lake", "name": "/in/day.parquet", "facets": {}}
    if files == [("s3://lake", "in/day.parquet")]:  # an event may name it otherwise
        found = SqlAnalyzer().analyze({"job": job, "inputs": [told]}, {})
        assert names(found, "inputs") == ["/in/day.parquet"]


def test_a_dialect_that_nobody_knows_is_told_and_that_of_the_namespace_is_taken() -> None:
    asked = event("INSERT INTO b (id) SELECT [id] FROM [a]", dialect="ms-sqll")
    for namespace, is_read in (("mssql://h:1433", True), ("postgres://h:5432", False)):
        asked["inputs"] = [{"namespace": namespace, "name": "s.a"}]
        (told,) = analyze_event(asked, {}, [SqlAnalyzer()])
        assert (told.problem is None) == is_read
        if is_read:
            said = json.loads(told.event)["job"]["facets"]["waybill_inferred"]
            assert "the dialect 'ms-sqll' is not known; did you mean mssql?" in said["reason"]
            assert said["confidence"] == 0.7


def test_two_tables_that_a_name_may_mean_are_neither() -> None:
    both = [dataset("shop.a.orders"), dataset("shop.b.orders")]
    found = SqlAnalyzer().analyze(event("SELECT id FROM orders", inputs=both, outputs=[dataset("x.y.z")]), {})
    assert (names(found, "inputs"), columns(found)) == ([], {"id": []})


def _opinion(parse: Callable[..., object]) -> ModuleType:
    made = ModuleType("openlineage_sql")
    made.parse = parse  # type: ignore[attr-defined]
    return made


def _reading(*tables: str, errors: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(
        in_tables=[SimpleNamespace(name=one) for one in tables], out_tables=[], errors=errors
    )


def test_the_second_opinion_lowers_the_confidence_where_it_reads_other_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found_beside(told: SimpleNamespace) -> dict[str, Any] | None:
        monkeypatch.setitem(sys.modules, "openlineage_sql", _opinion(lambda *_, **__: told))
        asked = event("SELECT id FROM orders", inputs=[dataset("shop.public.orders")])
        return SqlAnalyzer().analyze(asked, {})

    assert sure(found_beside(_reading("orders"))) == 0.9
    found = found_beside(_reading("orders", '"Events"'))
    assert found is not None
    assert sure(found) == 0.5
    assert found["job"]["facets"]["waybill_inferred"]["reason"].endswith("reads other tables: events")
    assert sure(found_beside(_reading("orders", '"Events"', errors=("cannot parse",)))) == 0.9


def test_one_process_gives_many_second_opinions_until_a_text_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(texts: list[str], **_: object) -> SimpleNamespace:
        if "fatal" in texts[0]:
            _end()
        return _reading("orders", f"by_{os.getpid()}")

    monkeypatch.setitem(sys.modules, "openlineage_sql", _opinion(parse))
    processes = []
    for column in ("a", "b", "fatal", "c", "d"):
        asked = event(f"SELECT {column} FROM orders", inputs=[dataset("shop.public.orders")])  # noqa: S608
        found = SqlAnalyzer().analyze(asked, {})
        assert found is not None
        processes.append(found["job"]["facets"]["waybill_inferred"]["reason"].partition("by_")[2])
    first, again, none, other, other_again = processes
    assert first == again != str(os.getpid())
    assert none == ""
    assert other == other_again not in {"", first}


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    time.sleep(60)


def _fail() -> None:
    raise RuntimeError("it parses that and does not follow it")


@pytest.mark.parametrize("happens", [_end, _hang, _fail, sys.exit])
def test_a_second_opinion_that_fails_costs_the_first_nothing(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage_sql", _opinion(lambda *_, **__: happens()))
    began = time.monotonic()
    found = SqlAnalyzer().analyze(event("SELECT id FROM orders", inputs=[dataset("shop.public.orders")]), {})
    assert time.monotonic() - began < 30
    assert (names(found, "inputs"), sure(found)) == (["shop.public.orders"], 0.9)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        (
            "postgres",
            "CREATE TEMP TABLE step AS SELECT id FROM orders; INSERT INTO x (id) SELECT id FROM step",
        ),
        ("postgres", "INSERT INTO x (id) SELECT o.id FROM orders o, json_each(o.tags) AS t"),
        ("snowflake", "INSERT INTO x (id) SELECT f.value FROM orders o, LATERAL FLATTEN(input => o.tags) f"),
        ("mysql", "UPDATE orders AS o JOIN rates AS r ON r.day = o.day SET o.net = o.total * r.rate"),
        (
            "tsql",
            "UPDATE o SET o.net = r.rate FROM dbo.orders AS o INNER JOIN dbo.rates AS r ON r.day = o.day",
        ),
        ("postgres", "WITH gone AS (DELETE FROM orders RETURNING id) INSERT INTO x (id) SELECT id FROM gone"),
        ("postgres", "WITH orders AS (SELECT id FROM orders) INSERT INTO x (id) SELECT id FROM orders"),
        ("duckdb", "INSERT INTO x (id) SELECT id FROM read_csv('in/day.csv')"),
        ("spark", "CACHE TABLE c AS SELECT id FROM orders; INSERT INTO x (id) SELECT id FROM c"),
    ],
)
def test_the_package_itself_does_not_dispute_what_it_does_not_follow(
    monkeypatch: pytest.MonkeyPatch, dialect: str, sql: str
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage_sql", PACKAGE)
    job = {"namespace": STORE, "name": "job", "facets": {"sql": {"query": sql, "dialect": dialect}}}
    found = SqlAnalyzer().analyze({"job": job}, {})
    assert found is not None
    assert "openlineage-sql" not in found["job"]["facets"]["waybill_inferred"]["reason"]


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
