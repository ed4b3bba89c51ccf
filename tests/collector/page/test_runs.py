"""A run that is no file, on the page: its job, all that it read and wrote, and what comes from what."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from events import event, members
from typer.testing import CliRunner

from waybill.cli.app import app

if TYPE_CHECKING:
    from conftest import Open

RUN = "01a1fd6a-9e75-7d78-870f-24897efac4a1"
OPEN = "01a1fd6a-9e75-7d78-870f-24897efac4a2"
FILE = "01a1fd6a-9e75-7d78-870f-24897efac4a3"
JOB = "dbt.shop.daily_totals"
NAMES = ("lake/orders", "lake/rates", "lake/totals", "lake/rejects")


def test_a_run_is_its_job_with_all_inputs_and_outputs_on_each_view(inside: Open) -> None:
    collector = inside(provenance_enabled=True)
    flows: dict[str, Any] = {"job": f"etl/{JOB}", "inputs": NAMES[:2], "outputs": NAMES[2:]}
    for body in (event(RUN, "START", **flows), event(RUN, "FAIL", **flows), event(OPEN, "START", **flows)):
        assert collector.post("/api/v1/lineage", body).status == 201
    html = {"Accept": "text/html"}
    views = {f"/file?did={RUN}": 4, "/find?final_state=ERROR": 4, "/find?filename=rates": 4, "/open": 2}
    for view, names in views.items():
        text = collector.get(view, html).body.decode()
        assert f"<bdi>{JOB}</bdi>" in text, view
        assert [name for name in NAMES[:names] if name not in text] == [], view
    found = collector.get("/find.json?filename=rates").json
    assert (found["runs"][RUN]["job"], found["records"][0]["filename"]) == (JOB, "orders")
    assert "read a dataset of this name" in collector.get("/find?filename=rates", html).body.decode()
    assert f"<bdi>{JOB}</bdi>" in collector.get("/search?q=orders", html).body.decode()


def test_a_run_is_told_over_http_with_its_job_and_all_inputs_and_outputs(inside: Open) -> None:
    collector = inside(provenance_enabled=True)
    file = {"waybill_deltaFile": {"did": FILE, "filename": "a.csv", "dataSource": "in"}}
    flows: dict[str, Any] = {"job": f"etl/{JOB}", "inputs": NAMES[:2], "outputs": NAMES[2:]}
    for body in (
        event(RUN, "COMPLETE", **flows),
        event(OPEN, "START", **flows),
        event(FILE, "COMPLETE", facets=file),
    ):
        assert collector.post("/api/v1/lineage", body).status == 201
    of_run = {"job": JOB, "inputs": list(NAMES[:2]), "outputs": sorted(NAMES[2:])}
    told = {one["did"]: one for one in collector.get("/api/v1/records").json}
    assert {key: told[RUN][key] for key in of_run} == of_run
    assert told[RUN]["data_source"] == NAMES[0]  # the record is as the fold has it
    assert of_run.keys() & told[FILE].keys() == set()
    (still_open,) = collector.get("/api/v1/records/open").json
    assert ({key: still_open[key] for key in of_run}, still_open["did"]) == (of_run, OPEN)
    asked = collector.get("/api/v1/records?filename=rates")
    assert [one["did"] for one in asked.json] == [RUN, RUN]
    assert "read a dataset of this name" in asked.headers["warning"]
    assert all(of_run.keys().isdisjoint(one) for one in collector.get("/provenance/query").json or [])
    described = collector.get("/openapi.json").json
    for path, name in (("records", "ToldRecord"), ("records/open", "ToldOpenFile")):
        answer = described["paths"][f"/api/v1/{path}"]["get"]["responses"]["200"]
        items = answer["content"]["application/json"]["schema"]["items"]
        assert items == {"$ref": f"#/components/schemas/{name}"}
        assert described["components"]["schemas"][name]["properties"].keys() >= of_run.keys()
        assert of_run.keys().isdisjoint(described["components"]["schemas"][name]["required"])


def test_a_run_whose_sender_is_ahead_is_marked_on_the_page_and_in_each_answer(inside: Open) -> None:
    collector = inside()
    later = datetime.now(UTC) + timedelta(days=3, hours=1)
    for body in (
        event(
            RUN, "COMPLETE", later.isoformat(), job="etl/load", inputs=["lake/in"], outputs=["lake/orders"]
        ),
        event(OPEN, "START", job="etl/use", inputs=["lake/orders"]),
    ):
        assert collector.post("/api/v1/lineage", body).status == 201
    html = {"Accept": "text/html"}
    for view, marks in (
        ("/dataset?node=lake/orders", 2),
        ("/job?node=etl/load", 2),
        ("/dataset?node=lake/in", 1),
        ("/job?node=etl/use", 0),
    ):
        text = collector.get(view, html).body.decode()
        assert text.count("the sender's clock is 3d 1h ahead") == marks, view
    days = 3.0 + 1 / 24
    for path in ("lineage-graph?name=lake/orders", "impact?name=lake/in", "runs"):
        (found,) = re.findall(r'"clock_ahead_s":([\d.]+)', collector.get(f"/api/v1/{path}").body.decode())
        assert abs(float(found) / 86_400 - days) < 0.01, path


def test_a_column_is_shown_with_the_inputs_that_may_be_behind_it(inside: Open) -> None:
    collector = inside()
    flows: dict[str, Any] = {"job": "etl/sum", "inputs": ["db/orders", "db/<rates>"], "outputs": ["db/sums"]}
    told = members(RUN, **flows)
    told["job"]["facets"] = {
        "sql": {"query": "INSERT INTO sums SELECT total, 1 AS n FROM orders WHERE total > 1"}
    }
    assert collector.post("/api/v1/lineage", json.dumps(told).encode()).status == 201
    read = CliRunner().invoke(app, ["lineage", "db/sums", "--refresh", "--home", str(collector.home)])
    assert read.exit_code == 0, read.output
    for column, how in (("total", "direct"), ("n", "indirect")):
        page = collector.get(f"/column?node=db/sums&column={column}", {"Accept": "text/html"}).body.decode()
        text = " ".join(re.sub("<[^>]*>", " ", page).split())
        assert f" db/sums.{column} {how}" in text
        assert ("No column is known that its values come from" in text) is (how == "indirect")
        assert "Maybe from db/&lt;rates&gt; , too" in text
