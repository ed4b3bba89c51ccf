"""A run that is no file, as any client without our facet sends it: each door shows it by its job."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from events import event

from waybill.exporter import Query
from waybill.exporter.keys import Keys
from waybill.exporter.query import TailReader
from waybill.lineage import Lineage
from waybill.lineage.answers import HomeAnswers
from waybill.lineage.tools import list_tools
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

FAILED = "01a1fd6a-9e75-7d78-870f-24897efac4a1"
OPEN = "01a1fd6a-9e75-7d78-870f-24897efac4a2"
NAMED = "01a1fd6a-9e75-7d78-870f-24897efac4a3"
JOB = "dbt.shop.daily_totals"
INPUTS, OUTPUTS = ["lake/orders", "lake/rates"], ["lake/totals", "lake/rejects"]
PROPERTIES = {"spark_properties": {"properties": {"spark.waybill.filename": "orders"}}}


@pytest.fixture(params=["in the journal", "in files"])
def told(home: Path, settings: Settings, request: pytest.FixtureRequest) -> Path:
    """A run that failed, one that is open, and one that says which file it worked on."""
    flows: dict[str, Any] = {"job": f"etl/{JOB}", "inputs": INPUTS}
    journal = Journal(home)
    for body in (
        event(FAILED, "START", **flows),
        event(FAILED, "FAIL", "2026-01-31T12:05:00Z", **flows, outputs=OUTPUTS),
        event(OPEN, "START", **flows),
        event(NAMED, "COMPLETE", facets=PROPERTIES, **flows, outputs=OUTPUTS[:1]),
    ):
        journal.append(Kind.OPENLINEAGE, body)
    journal.close()
    if request.param == "in files":
        flush(settings)
    return home


@pytest.mark.parametrize("is_filed", [False, True])
@pytest.mark.parametrize("name", ["s3a://lake/orders", "s3://lake/orders", "hive/shop.orders", "shop.orders"])
def test_a_source_and_a_sink_are_found_by_each_name_of_their_dataset(
    called: Run, home: Path, settings: Settings, name: str, *, is_filed: bool
) -> None:
    link = {"symlinks": {"identifiers": [{"namespace": "hive", "name": "shop.orders", "type": "TABLE"}]}}
    linked = {"namespace": "s3://lake", "name": "orders", "facets": link}
    table = {"namespace": "hive", "name": "shop.orders"}
    flows: list[dict[str, Any]] = [
        {"inputs": [linked]},
        {"inputs": [table]},
        {"outputs": [linked]},
        {"outputs": [table]},
    ]
    dids = [f"{FAILED[:-1]}{number}" for number in range(4)]
    with contextlib.closing(Journal(home)) as journal:
        for did, flow in zip(dids, flows, strict=True):
            journal.append(Kind.OPENLINEAGE, event(did, job="etl/use", **flow))
    if is_filed:
        flush(settings)
    for option, expected in (("--data-source", dids[:2]), ("--data-sink", dids[2:])):
        done = called("find", "--home", home, option, name, "--json")
        assert {json.loads(line)["did"] for line in done.stdout.splitlines()} == set(expected), done.stderr
        assert called("find", "--home", home, option, name, "--count").stdout == "2\n"
        assert "no record has" not in called("find", "--home", home, option, name, "--state", "ERROR").stderr
    for option in ("--not-data-sink", "--missing-sink"):
        done = called("find", "--home", home, option, name, "--json")
        assert {json.loads(line)["did"] for line in done.stdout.splitlines()} == set(dids[:2]), done.stderr


def test_a_model_is_told_the_job_and_a_program_gets_the_record(told: Path, settings: Settings) -> None:
    ask = {tool.name: tool.ask for tool in list_tools()}
    with contextlib.closing(Journal(told, to_read=True)) as journal:
        answers = HomeAnswers(journal, settings, TailReader(journal), Keys())
        failed = msgspec.to_builtins(ask["find"](answers, {"final_state": ["ERROR"]}))
        journey = msgspec.to_builtins(ask["trace"](answers, {"did": FAILED}))
    assert [(one["job"], [*one["inputs"]]) for one in failed] == [(JOB, INPUTS)] * 2
    assert journey["files"][0]["run"]["job"] == JOB
    assert {one.filename for one in Lineage.open(told).find(Query(did=FAILED))} == {"orders"}
