"""`waybill plan`: what SQL and a dbt project would read and write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Run

SQL = """
CREATE TABLE lake.revenue USING parquet AS
SELECT c.country, sum(o.amount) AS revenue, count(*) AS n
FROM shop.orders o JOIN shop.customers c ON o.customer = c.id;
INSERT INTO lake.log SELECT * FROM lake.revenue;
DELETE FROM lake.old
"""
RULE = "━" * 39
DRAWN = f"""\
Lineage for: spark/lake.log
{RULE}

Upstream:
  └─ spark/lake.revenue

Last Run:
  none

Columns:
  ├─ country: spark/lake.revenue.country (IDENTITY)
  ├─ revenue: spark/lake.revenue.revenue (IDENTITY)
  └─ n: spark/lake.revenue.n (IDENTITY)

Rows:
  none that can be told

Lineage for: spark/lake.old
{RULE}

Upstream:
  none

Last Run:
  none

Columns:
  none that can be told

Rows:
  none that can be told

Lineage for: spark/lake.revenue
{RULE}

Upstream:
  ├─ spark/shop.customers
  └─ spark/shop.orders

Last Run:
  none

Columns:
  ├─ country: spark/shop.customers.country (IDENTITY)
  ├─ revenue: spark/shop.orders.amount (AGGREGATION)
  └─ n: new

Rows:
  ├─ spark/shop.customers.id (JOIN)
  └─ spark/shop.orders.customer (JOIN)
"""


def node(kind: str, name: str, *, sql: str | None = None, uses: tuple[str, ...] = (), **given: object) -> Any:  # noqa: ANN401 - JSON
    """A node as dbt 1.10 writes it, without what nobody reads here."""
    told: dict[str, Any] = {"resource_type": kind, "name": name, "database": "shop", "schema": "main"}
    told |= {"config": {"materialized": "table"}, "depends_on": {"nodes": list(uses)}}
    return told | ({} if sql is None else {"compiled_code": sql}) | given


MANIFEST = {
    "metadata": {"adapter_type": "duckdb"},
    "sources": {"source.shop.raw.orders": node("source", "orders", schema="raw", identifier="ORDERS_2")},
    "nodes": {
        "model.shop.stage": node(
            "model",
            "stage",
            sql='select * from "shop"."raw"."ORDERS_2"',
            uses=("source.shop.raw.orders",),
            config={"materialized": "ephemeral"},
        ),
        "model.shop.daily": node(
            "model",
            "daily",
            sql='with __dbt__cte__s as (select * from "shop"."raw"."ORDERS_2") select * from __dbt__cte__s',
            uses=("model.shop.stage", "source.shop.raw.orders"),
        ),
        "test.shop.unique": node("test", "unique", sql="select 1", uses=("model.shop.daily",)),
    },
    "exposures": {
        "exposure.shop.week": {
            "name": "week",
            "type": "dashboard",
            "depends_on": {"nodes": ["model.shop.daily"]},
        }
    },
}
CATALOG = {"sources": {"source.shop.raw.orders": {"columns": {"ID": {"type": "INTEGER"}}}}, "nodes": {}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "target").mkdir(parents=True)
    (folder / "target/manifest.json").write_text(json.dumps(MANIFEST))
    return folder


def test_a_file_is_drawn_as_lineage_is_with_its_columns(called: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text(SQL)
    done = called("plan", file, "--dialect", "spark", "--columns")
    assert (done.returncode, done.stdout) == (0, DRAWN)
    without = called("plan", file, "--dialect", "spark").stdout
    assert "Columns:" not in without
    (event,) = map(json.loads, called("plan", file, "--dialect", "spark", "--json").stdout.splitlines())
    assert [one["name"] for one in event["outputs"]] == ["lake.log", "lake.old", "lake.revenue"]
    assert event["schemaURL"].endswith("/JobEvent")


def test_tables_are_named_as_events_name_them(called: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text("INSERT INTO daily (id) SELECT id FROM raw.orders")
    given = ("--namespace", "postgres://db:5432", "--schema", "shop.public")
    drawn = called("plan", file, *given).stdout
    assert "Lineage for: postgres://db:5432/shop.public.daily" in drawn
    assert "  └─ postgres://db:5432/shop.raw.orders" in drawn


def test_a_dbt_project_is_drawn_with_its_exposures(called: Run, project: Path) -> None:
    done = called("plan", project, "--columns")
    assert done.returncode == 0, done.stderr
    daily, week = sorted(done.stdout.split("Lineage for: ")[1:], key=lambda one: one.startswith("dashboard"))
    assert daily.splitlines()[:4] == ["duckdb/shop.main.daily", RULE, "", "Upstream:"]
    assert daily.splitlines()[4] == "  └─ duckdb/shop.raw.ORDERS_2"
    assert "Columns:\n  none that can be told" in daily
    assert week.startswith(f"dashboard/week\n{RULE}\n\nUpstream:\n  └─ duckdb/shop.main.daily\n")
    (project / "target/catalog.json").write_text(json.dumps(CATALOG))
    drawn = called("plan", project, "--columns", "--namespace", "duckdb://shop").stdout
    assert "Columns:\n  └─ ID: duckdb://shop/shop.raw.ORDERS_2.ID (IDENTITY)" in drawn


def test_what_cannot_be_read_is_told(called: Run, project: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text("INSERT INTO ((((")
    done = called("plan", file)
    assert (done.returncode, done.stdout) == (1, "")
    said = "job.sql: ParseError: the text cannot be parsed at line 1, column 16: Expected table name\n"
    assert done.stderr == f"waybill: {said}"
    (event,) = map(json.loads, called("plan", file, "--json").stdout.splitlines())
    assert (event["inputs"], event["outputs"]) == ([], [])
    assert [f"job.sql: {one}\n" for one in event["job"]["facets"]["waybill_inferred"]["unread"]] == [said]
    file.write_text("DROP TABLE a")
    done = called("plan", file)
    assert (done.returncode, done.stderr) == (0, "it writes nothing that can be told\n")
    assert called("plan", tmp_path / "none.sql").returncode == 2
    manifest = project / "target/manifest.json"
    manifest.write_text(json.dumps({**MANIFEST, "nodes": {"model.shop.a": node("model", "a")}}))
    done = called("plan", project)
    assert (done.returncode, "run `dbt compile`" in done.stderr) == (2, True)
    manifest.unlink()
    done = called("plan", project)
    assert (done.returncode, "run `dbt compile`" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("unread", "told"),
    [
        ("CALL refresh()", "statement 2 (CALL refresh() …) is not read"),
        ("SELECT id FROM", "statement 2 cannot be parsed at line 2, column 14: Expected table name"),
        ("INSERT INTO x (id) SELECT id FROM other(1)", "what the function other reads itself is not known"),
        ("INSERT INTO x (id) SELECT e.id FROM raw.orders o", "e.id is of no table in reach"),
        ("CREATE MODEL m AS SELECT id FROM t", "statement 2 (CREATE MODEL …) is not read"),
        ("ALTER TABLE a SWAP WITH b", "statement 2 (ALTER TABLE …) is not read"),
        ("EXPORT DATA OPTIONS(uri='x') AS SELECT id FROM t", "statement 2 (EXPORT DATA …) is not read"),
    ],
)  # fmt: skip
def test_what_is_not_read_beside_what_is_makes_the_answer_incomplete(
    called: Run, tmp_path: Path, unread: str, told: str
) -> None:
    file = tmp_path / "job.sql"
    file.write_text(f"INSERT INTO daily (id) SELECT id FROM orders;\n{unread}")  # noqa: S608 - it is read only
    done = called("plan", file, "--dialect", "bigquery")
    assert done.returncode == 3
    assert told in done.stderr
    assert f"Not read:\n  {told}" in done.stdout
    assert "  └─ bigquery/orders" in done.stdout
    done = called("plan", file, "--dialect", "bigquery", "--json")
    (event,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, event["job"]["facets"]["waybill_inferred"]["unread"]) == (3, [told])
    assert told in done.stderr


def test_a_column_that_is_not_known_is_not_new(called: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.sql"
    file.write_text(
        "CREATE TABLE l AS SELECT u.id, u.k, 1 AS one FROM w UNPIVOT (v FOR k IN (a, b)) AS u (id, k, v)"
    )
    done = called("plan", file, "--dialect", "snowflake", "--columns")
    assert "Columns:\n  ├─ ID: not known\n  ├─ K: not known\n  └─ ONE: new\n" in done.stdout
    assert (done.returncode, "the columns of an UNPIVOT" in done.stderr) == (3, True)


def test_a_model_that_cannot_be_read_is_drawn_from_what_it_depends_on(called: Run, project: Path) -> None:
    manifest = project / "target/manifest.json"
    models = {
        "model.shop.plain": node("model", "plain", uses=("model.shop.stage",)),
        "model.shop.python": node("model", "python", sql="def model(dbt, session): ...", language="python",
                                  uses=("model.shop.daily",)),
        "model.shop.pivot": node("model", "pivot", sql="PIVOT shop.main.daily ON day USING sum(n)",
                                 uses=("model.shop.daily",)),
        "model.shop.called": node("model", "called", sql="CALL load()", uses=("model.shop.daily",)),
        "snapshot.shop.old": node("snapshot", "old", uses=("model.shop.daily", "model.shop.plain")),
    }  # fmt: skip
    manifest.write_text(json.dumps({**MANIFEST, "nodes": MANIFEST["nodes"] | models}))
    done = called("plan", project, "--namespace", "db")
    assert done.returncode == 3
    drawn = {one.splitlines()[0]: one for one in done.stdout.split("Lineage for: ")[1:]}
    sources = {"plain": ["raw.ORDERS_2"], "old": ["main.daily", "main.plain"]}
    for name in ("plain", "python", "pivot", "called", "old"):
        upstream = drawn[f"db/shop.main.{name}"].split("Upstream:\n")[1].split("\n\n")[0].splitlines()
        assert [one[len("  └─ ") :] for one in upstream] == [
            f"db/shop.{one}" for one in sources.get(name, ["main.daily"])
        ]
        assert "Not read:\n" in drawn[f"db/shop.main.{name}"]
    assert "Not read:" not in drawn["db/shop.main.daily"]
    said = {"pivot": "the columns of a PIVOT"} | dict.fromkeys(("plain", "python"), "it has no compiled SQL")
    for key, why in (said | {"called": "statement 1 (CALL load() …) is not read"}).items():
        assert f"model.shop.{key}: " in done.stderr
        assert why in done.stderr
    events = [json.loads(one) for one in called("plan", project, "--json").stdout.splitlines()]
    unread = {one["job"]["name"] for one in events if "unread" in one["job"]["facets"]["waybill_inferred"]}
    assert unread == set(models)


@pytest.mark.parametrize(
    ("word", "told"), [("postgress", "did you mean postgres?"), ("snow-fake", "did you mean snowflake?")]
)
def test_only_a_dialect_that_is_known_is_taken(called: Run, tmp_path: Path, word: str, told: str) -> None:
    file = tmp_path / "job.sql"
    file.write_text("SELECT [a] INTO b FROM c")
    for command in (("plan", file), ("infer", file, "--namespace", "db")):
        done = called(*command, "--dialect", word)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the dialect '{word}' is not known; {told}" in " ".join(done.stderr.split())
    for alias in ("mssql", "TSQL", "sql-server", "SQL Server"):
        assert called("plan", file, "--dialect", alias, "--namespace", "db").returncode == 0
