from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from conftest import Kept, Run

SVG = "{http://www.w3.org/2000/svg}"
GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


def test_the_journey_of_a_file_is_a_tree_from_its_origin_to_its_sinks(called: Run, kept: Kept) -> None:
    done = called("trace", "--home", kept.home, kept.year)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"year.csv  {kept.year}"
    assert lines[1].startswith("│  2")
    assert "  SPLIT  sftp-in  " in lines[1]
    assert lines[2] == f"├─ first.csv  {kept.first}"
    assert "COMPLETE  halves > enrich > lake" in lines[3]
    assert "COMPLETE  halves > enrich > report" in lines[4]
    assert lines[5] == f"└─ second.csv  {kept.second}"
    assert "ERROR  halves" in lines[6]
    assert lines[7] == "      no header"
    assert len(lines) == 8


@pytest.mark.parametrize("asked", ["by name", "by did"])
def test_a_part_has_its_ancestors_and_not_its_siblings(called: Run, kept: Kept, asked: str) -> None:
    done = called("trace", "--home", kept.home, "first.csv" if asked == "by name" else kept.first)
    assert [line.split("  ")[0] for line in done.stdout.splitlines() if ".csv" in line] == [
        "year.csv",
        "└─ first.csv",
    ]


def test_one_direction_and_a_depth_cut_the_journey(called: Run, kept: Kept) -> None:
    assert "year.csv" not in called("trace", "--home", kept.home, "first.csv", "--down").stdout
    assert "first.csv" not in called("trace", "--home", kept.home, "year.csv", "--up").stdout
    assert "first.csv" not in called("trace", "--home", kept.home, "year.csv", "--depth", "0").stdout


def test_a_journey_is_shown_as_it_was_known_then(called: Run, kept: Kept) -> None:
    now = called("trace", "--home", kept.home, "year.csv").stdout
    assert called("trace", "--home", kept.home, "year.csv", "--as-of", "0m").stdout == now
    done = called("trace", "--home", kept.home, kept.year, "--as-of", "1d")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"nothing was known of the file {kept.year} at that time" in done.stderr


def test_annotations_are_shown_on_demand(called: Run, kept: Kept) -> None:
    assert "acme" not in called("trace", "--home", kept.home, "year.csv").stdout
    assert "customer=acme=1" in called("trace", "--home", kept.home, "year.csv", "--annotations").stdout


def test_json_has_every_file_with_its_parents_and_records(called: Run, kept: Kept) -> None:
    told = json.loads(called("trace", "--home", kept.home, "year.csv", "--json").stdout)
    assert told["did"] == kept.year
    files = {file["did"]: file for file in told["files"]}
    assert files.keys() == {kept.year, kept.first, kept.second}
    assert files[kept.first]["parents"] == [kept.year]
    assert {one["data_sink"] for one in files[kept.first]["records"]} == {"lake", "report"}
    assert files[kept.year]["records"][0]["completed"].endswith("Z")


def test_pictures_are_printed_or_written(called: Run, kept: Kept, tmp_path: Path) -> None:
    assert called("trace", "--home", kept.home, "year.csv", "--mermaid").stdout.startswith("flowchart LR\n")
    assert called("trace", "--home", kept.home, "year.csv", "--dot").stdout.startswith("digraph lineage {\n")
    for option, root in (("--svg", f"{SVG}svg"), ("--graphml", f"{GRAPHML}graphml")):
        file = tmp_path / f"journey{option}"
        done = called("trace", "--home", kept.home, "year.csv", option, file)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"wrote {file}\n")
        assert ET.parse(file).getroot().tag == root  # noqa: S314 - our own file


def test_a_picture_cannot_be_written_where_there_is_no_folder(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    done = called("trace", "--home", kept.home, "year.csv", "--svg", tmp_path / "none" / "journey.svg")
    assert done.returncode == 1
    assert "none" in done.stderr


def test_of_several_files_of_one_name_the_newest_is_shown(called: Run, kept: Kept) -> None:
    done = called("trace", "--home", kept.home, "*.csv", "--up")
    assert done.returncode == 0
    assert "3 files have this name, and this is the newest" in done.stderr
