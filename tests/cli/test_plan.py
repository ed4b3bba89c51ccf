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

Downstream:
  none

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

Downstream:
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

Downstream:
  none

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
    assert "job.sql: ParseError" in done.stderr
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
