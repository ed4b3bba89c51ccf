"""The dashboards: each panel gets data from a real Prometheus, or from the collector that it asks."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import grafana_dashboards
import pytest
from contract_server import ContractServer
from events import members
from programs import MONITORING, Prometheus, path_of
from served import Collector, record
from waiting import wait_until

GRAFANA = MONITORING / "grafana"
FILES = sorted(path.name for path in GRAFANA.glob("*.json"))
OLD = datetime(2026, 1, 31, 12, tzinfo=UTC)
OBJECTIVES = """
tiers:
  - {datasets: lake/*, tier: critical}
inventory: {csv: [inventory.csv]}
expected: {csv: [expected.csv]}
"""
INVENTORY = "namespace,name,tier,owner\nlake,orders,critical,ada\nlake,nothing,critical,bob\n"
EXPECTED = "source_namespace,source,target_namespace,target\nftp,raw,lake,orders\nftp,raw,lake,report\n"


class Watched(NamedTuple):
    collector: Collector
    prometheus: Prometheus


def test_the_files_are_what_the_code_makes() -> None:
    assert {name: (GRAFANA / name).read_text(encoding="utf-8") for name in FILES} == grafana_dashboards.made()


def ran(job: str, at: datetime, kind: str = "COMPLETE", **others: Any) -> dict[str, Any]:  # noqa: ANN401
    return members(f"{job} at {at}", kind, at.isoformat(), job=f"etl/{job}", **others)


def with_columns(name: str, **columns: str) -> dict[str, Any]:
    fields = [{"name": one, "type": kind} for one, kind in columns.items()]
    facets = {
        "schema": {"fields": fields},
        "ownership": {"owners": [{"name": "ada"}]},
        "tags": {"tags": [{"key": "tier", "value": "critical"}]},
    }
    return {"namespace": "lake", "name": name, "facets": facets}


def told(now: datetime) -> list[dict[str, Any]]:
    """Events that give every panel something to show."""
    unreadable = {"namespace": "etl", "name": "odd", "facets": {"sql": {"query": "SELEC ((("}}}
    return [
        ran("import", OLD, inputs=["ftp/old"], outputs=["lake/old"]),
        ran(
            "load",
            now - timedelta(hours=2),
            inputs=["ftp/raw"],
            outputs=[with_columns("orders", a="int", b="int")],
        ),
        ran("load", now, inputs=["ftp/raw"], outputs=[with_columns("orders", a="text", c="int")]),
        ran("sum", now, inputs=["lake/orders"], outputs=[with_columns("report", s="int")]),
        ran("sum", now + timedelta(milliseconds=1), "FAIL", inputs=["lake/orders"], outputs=["lake/report"]),
        ran("mail", now, inputs=["lake/report"]),
        members("odd", "COMPLETE", now.isoformat(), job=unreadable, outputs=["lake/odd"]),
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A collector with something of everything, and a Prometheus that reads its metrics."""
    path_of("prometheus")
    folder, now = tmp_path_factory.mktemp("watched"), datetime.now(UTC)
    home = folder / "home"
    home.mkdir(mode=0o700)
    for name, text in (("slis.yaml", OBJECTIVES), ("inventory.csv", INVENTORY), ("expected.csv", EXPECTED)):
        (home / name).write_text(text)
    marquez, closed = ContractServer().start(), ContractServer(api_key="another").start()
    backends = [{"backend": "custom", "name": "closed", "endpoint": closed.url, "api_key": "wrong"}]
    given = ["--marquez-url", marquez.url, "--backends", json.dumps(backends), "--archive-enabled"]
    collector = Collector(home, "--provenance-enabled", "--provenance-annotations-allowed", "*", *given)
    prometheus = Prometheus(folder, collector.address)
    wait_until(lambda: prometheus.ask('waybill_rejected_total{kind="openlineage"}'), 60)
    fill(collector, now)
    wait_until(lambda: prometheus.ask("waybill_sli_breach"), 120)
    wait_until(lambda: prometheus.ask("rate(waybill_delivery_failed_total[5m])"), 120)
    wait_until(lambda: collector.get("/api/v1/analyzers").json["problems"], 120)
    wait_until(lambda: prometheus.ask('ALERTS{alertstate="firing", severity="ticket"}'), 60)
    yield Watched(collector, prometheus)
    prometheus.stop()
    collector.process.kill()
    collector.process.communicate()
    for server in (marquez, closed):
        server.refuse()


def fill(collector: Collector, now: datetime) -> None:
    """Send something of everything."""
    for one in told(now):
        assert collector.post("/api/v1/lineage", json.dumps(one).encode()).status == 201
    assert collector.post("/api/v1/lineage", json.dumps(told(now)[0]).encode()).status == 201
    now_ms = int(now.timestamp() * 1_000)
    ended = {"created": now_ms - 1_000, "completed": now_ms, "annotations": {"customer": "acme"}}
    records = [
        record(**ended),
        record(
            **ended, did="01a1fd6a-9e75-7d78-870f-24897efac4a5", finalState="ERROR", parentDid=record()["did"]
        ),
    ]
    assert collector.post("/provenance", json.dumps(records).encode()).status == 202
    assert collector.post("/api/v1/lineage", b"{}").status == 422
    assert collector.ask("GET", "/where", headers={"Host": "elsewhere.example"}).status == 403


def instants(dashboard: dict[str, Any]) -> dict[str, str]:
    """Grafana's own variables for the period that a dashboard shows at first."""
    count, unit = int(dashboard["time"]["from"][4:-1]), dashboard["time"]["from"][-1]
    span = timedelta(**{{"h": "hours", "d": "days"}[unit]: count})
    now_s = time.time()
    return {"__from": f"{(now_s - span.total_seconds()) * 1000:.0f}", "__to": f"{now_s * 1000 + 1000:.0f}"}


def picked(found: Any, selector: str) -> Any:  # noqa: ANN401 - any JSON value
    """What gjson picks of JSON by the selectors that the dashboards use."""
    if selector.endswith("|@flatten"):
        inner = selector.removesuffix("|@flatten")
        lists = (
            [picked(found, one) for one in inner[1:-1].split(",")]
            if inner[0] == "["
            else picked(found, inner)
        )
        return [one for some in lists for one in some]
    for at, part in enumerate(parts := selector.split(".") if selector else []):
        if part == "#":
            rest = ".".join(parts[at + 1 :])
            return [value for one in found if (value := picked(one, rest)) is not None]
        found = found.get(part) if isinstance(found, dict) else None
    return found


def answered(collector: Collector, query: dict[str, Any], values: dict[str, str]) -> list[dict[str, Any]]:
    """The rows that Infinity makes of the collector's answer."""
    params = []
    for one in query["url_options"]["params"]:
        value = one["value"]
        for name, given in values.items():
            value = value.replace(f"${{{name}}}", given)
        assert "${" not in value
        params.append((one["key"], value))
    reply = collector.get(f"{query['url']}?{urlencode(params)}")
    assert reply.status == 200, reply.body
    found = picked(reply.json, query["root_selector"])
    rows = [found] if isinstance(found, dict) else found
    return [{one["text"]: picked(row, one["selector"]) for one in query["columns"]} for row in rows or ()]


def variables_of(dashboard: dict[str, Any], collector: Collector) -> dict[str, str]:
    """The variables as somebody sees them who opens the dashboard."""
    values = instants(dashboard)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "textbox":
            values[variable["name"]] = variable["query"]
        if variable["type"] == "query":
            chosen = answered(collector, variable["query"]["infinityQuery"], values)
            names = {name for row in chosen for name in row.values()}
            assert "orders" in names
            values[variable["name"]] = "orders"
    return values


PANELS = [
    pytest.param(name, panel, id=f"{name} {panel['title']}")
    for name in FILES
    for panel in json.loads((GRAFANA / name).read_text(encoding="utf-8"))["panels"]
]


@pytest.mark.parametrize(("name", "panel"), PANELS)
def test_a_panel_has_data(watched: Watched, name: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        if "expr" in target:
            samples = watched.prometheus.ask(target["expr"])
            assert [one for one in samples if not math.isnan(float(one["value"][1]))], target["expr"]
            continue
        dashboard = json.loads((GRAFANA / name).read_text(encoding="utf-8"))
        rows = answered(watched.collector, target, variables_of(dashboard, watched.collector))
        assert rows
        empty = [column for column in rows[0] if all(row[column] is None for row in rows)]
        assert empty == [], rows
