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
SHOWN = f"lake/orders, lake/rates > {JOB} > lake/rejects, lake/totals"
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


def test_what_failed_is_its_job_with_all_inputs_and_outputs(called: Run, told: Path) -> None:
    done = called("find", "--home", told, "--state", "ERROR")
    rows = [line.split("\t") for line in done.stdout.splitlines()[1:]]
    assert [row[2:4] for row in rows] == [[JOB, SHOWN]] * 2, "a record for each output"
    (first, *_) = [json.loads(line) for line in called("find", "--home", told, "--json").stdout.splitlines()]
    assert (first["filename"], first["data_source"]) == ("orders", "lake/orders"), (
        "the record as it is folded"
    )
    assert (first["job"], first["inputs"], first["outputs"]) == (JOB, INPUTS, sorted(OUTPUTS))


def test_a_run_that_says_which_file_it_is_about_is_shown_as_that(called: Run, told: Path) -> None:
    done = called("find", "--home", told, "--did", NAMED, "--json")
    (one,) = map(json.loads, done.stdout.splitlines())
    assert (one["filename"], "job" in one) == ("orders", False)


@pytest.mark.parametrize("name", ["rates", "lake/rates", "orders", "o?ders"])
def test_a_name_that_an_input_has_finds_the_run_and_says_why(called: Run, told: Path, name: str) -> None:
    done = called("find", "--home", told, "--filename", name, "--state", "ERROR")
    assert {line.split("\t")[2] for line in done.stdout.splitlines()[1:]} == {JOB}
    assert "1 of these is a run that read a dataset of this name, and no file of it" in done.stderr


@pytest.mark.parametrize("more", [[], ["--open"], ["--count"]], ids=["found", "open", "counted"])
def test_an_input_that_no_run_has_by_this_name_is_said(called: Run, told: Path, more: list[str]) -> None:
    for name, says in (("lake/rates/", True), ("lake/rates", False), ("rates", False)):
        done = called("find", "--home", told, "--input", name, *more)
        assert done.returncode == 0, done.stderr
        assert (f"no run is known that read '{name}'; give the name that" in done.stderr) is says, name


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


@pytest.mark.parametrize("more", [[], ["--open"], ["--by", "state"]], ids=["found", "open", "counted"])
def test_the_name_of_a_job_is_said_to_be_none_of_a_file(called: Run, told: Path, more: list[str]) -> None:
    says = f"no file has the name '{JOB}'; it is that of a job: `waybill lineage etl/{JOB}` shows how it ran"
    done = called("find", "--home", told, "--filename", JOB, *more)
    assert done.returncode == 0, done.stderr
    assert (says in done.stderr, "no record has the filename" in done.stderr) == (True, False)
    assert called("lineage", f"etl/{JOB}", "--home", told).returncode == 0
    other = called("find", "--home", told, "--filename", f"{JOB}s", *more).stderr
    assert ("that of a job" in other, "no record has the filename" in other) == (False, more != ["--open"])


def test_its_journey_proof_and_what_misses_a_sink_name_the_job(called: Run, told: Path) -> None:
    traced = called("trace", "--home", told, FAILED).stdout
    assert (f"{JOB}  {FAILED}" in traced, SHOWN in traced) == (True, True)
    assert (
        json.loads(called("trace", "--home", told, FAILED, "--json").stdout)["files"][0]["run"]["job"] == JOB
    )
    assert f"ERROR  {JOB}  {SHOWN}" in called("explain", "--home", told, FAILED).stdout
    missing = called("find", "--home", told, "--missing-sink", "lake/totals", "--did", FAILED).stdout
    assert [line.split("\t")[2] for line in missing.splitlines()[1:]] == [JOB]


def test_while_it_is_open_it_is_listed_with_its_job_and_inputs(called: Run, told: Path) -> None:
    (row,) = called("find", "--home", told, "--open").stdout.splitlines()[1:]
    assert row.split("\t")[2:4] == [JOB, ", ".join(INPUTS)]
    (one,) = map(json.loads, called("find", "--home", told, "--open", "--json").stdout.splitlines())
    assert (one["job"], one["inputs"]) == (JOB, INPUTS)
    first, then = called("trace", "--home", told, OPEN).stdout.splitlines()
    assert (first, then.rpartition("  ")[2].partition(", last began")[0]) == (
        f"{JOB}  {OPEN}",
        ", ".join(INPUTS),
    )


def test_a_model_is_told_the_job_and_a_program_gets_the_record(told: Path, settings: Settings) -> None:
    ask = {tool.name: tool.ask for tool in list_tools()}
    with contextlib.closing(Journal(told, to_read=True)) as journal:
        answers = HomeAnswers(journal, settings, TailReader(journal), Keys())
        failed = msgspec.to_builtins(ask["find"](answers, {"final_state": ["ERROR"]}))
        journey = msgspec.to_builtins(ask["trace"](answers, {"did": FAILED}))
    assert [(one["job"], [*one["inputs"]]) for one in failed] == [(JOB, INPUTS)] * 2
    assert journey["files"][0]["run"]["job"] == JOB
    assert {one.filename for one in Lineage.open(told).find(Query(did=FAILED))} == {"orders"}
