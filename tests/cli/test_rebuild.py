"""`waybill rebuild`, over a home that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.exporter import check
from waybill.exporter.verification import accept_findings
from waybill.lineage import find
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from conftest import Kept, Run


def lines_of(home: Path, path: Path) -> Path:
    journal = Journal(home)
    bodies = [entry.body for entry in journal.read(0) if entry.kind is Kind.OPENLINEAGE]
    journal.close()
    path.write_bytes(b"\n".join(bodies))
    return path


@pytest.mark.parametrize("source", ["journal", "events", "jsonl"])
def test_every_source_of_a_home_gives_its_records_by_the_homes_own_settings(
    called: Run, kept: Kept, tmp_path: Path, source: str
) -> None:
    places = [lines_of(kept.home, tmp_path / "lines")] if source == "jsonl" else []
    root = tmp_path / "again"
    done = called("rebuild", "--from", source, *places, "--to", root, "--home", kept.home, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["records"], report["unreadable"], report["damaged"]) == (4, 0, [])
    assert find(root) == find(kept.home)
    assert sorted(report["files"]) == sorted(
        str(path.relative_to(root)) for path in root.glob("provenance/compacted/*/*/*.parquet")
    )


def test_files_need_no_home_that_only_the_environment_names(
    called: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("WAYBILL_HOME", str(nowhere))
    source = (
        "rebuild",
        "--from",
        "jsonl",
        lines_of(kept.home, tmp_path / "lines"),
        "--to",
        tmp_path / "again",
    )
    done = called(*source, "--json")
    assert (done.returncode, json.loads(done.stdout)["records"], nowhere.exists()) == (0, 4, False)
    monkeypatch.delenv("WAYBILL_HOME")
    done = called(*source, "--home", nowhere)
    assert (done.returncode, "there is no home at" in done.stderr) == (2, True)


def test_without_the_home_it_goes_by_the_rule_of_the_files(called: Run, kept: Kept, tmp_path: Path) -> None:
    Journal(other := tmp_path / "other").close()
    done = called("rebuild", "--from", "events", kept.home, "--to", tmp_path / "again", "--home", other)
    assert done.returncode == 0, done.stderr
    assert find(tmp_path / "again") == find(kept.home)


def test_records_are_chosen_by_time_and_system(called: Run, kept: Kept, tmp_path: Path) -> None:
    command = ["rebuild", "--from", "journal", "--home", kept.home]
    assert called(*command, "--to", tmp_path / "a", "--until", "2020-01-01").returncode == 0
    assert called(*command, "--to", tmp_path / "b", "--system", "others").returncode == 0
    assert called(*command, "--to", tmp_path / "c", "--system", "tests", "--since", "1h").returncode == 0
    assert [len(find(tmp_path / name)) for name in "abc"] == [0, 0, 4]


def test_what_cannot_be_read_is_named_with_its_place_and_is_exit_code_1(called: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("nonsense\n")
    done = called("rebuild", "--from", "jsonl", tmp_path / "log", "--to", tmp_path / "root")
    assert done.returncode == 1
    assert f"byte 0 of {tmp_path / 'log'}" in done.stderr
    assert done.stdout.startswith("1 entry of jsonl")


def test_a_damaged_file_that_is_in_the_way_is_named_and_is_exit_code_1(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    command = ["rebuild", "--from", "journal", "--home", kept.home, "--to", tmp_path / "root"]
    assert called(*command).returncode == 0
    damaged = next((tmp_path / "root").glob("provenance/compacted/*/*/*.parquet"))
    damaged.write_bytes(b"nonsense")
    done = called(*command, "--json")
    assert done.returncode == 1
    assert "was quarantined" in done.stderr
    (aside,) = json.loads(done.stdout)["aside"]
    assert aside["path"] == str(damaged.relative_to(tmp_path / "root"))
    accept_findings(tmp_path / "root", [one for file in check(tmp_path / "root") for one in file.findings])
    assert find(tmp_path / "root") == find(kept.home)


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (["marquez", "nourl"], 2, "'nourl': give an http or https URL"),
        (["marquez", "http://127.0.0.1:1"], 1, "does not answer"),
        (["marquez-db", "postgresql://127.0.0.1:1/marquez"], 1, "cannot be read"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_source_that_cannot_be_read_leaves_nothing_behind(
    called: Run, home: Path, tmp_path: Path, source: list[str], code: int, said: str
) -> None:
    Journal(home).close()
    done = called("rebuild", "--from", *source, "--to", tmp_path / "new" / "root", "--home", home)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert not (tmp_path / "new").exists()
