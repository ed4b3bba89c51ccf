"""`waybill find`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from conftest import Kept, Run


def found(waybill: Run, kept: Kept, *arguments: str) -> list[dict[str, Any]]:
    done = waybill("find", "--home", kept.home, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_record_is_a_line_of_json_newest_first(waybill: Run, kept: Kept) -> None:
    records = found(waybill, kept)
    assert [record["completed"] for record in records] == sorted(
        (record["completed"] for record in records), reverse=True
    )
    assert sorted(record["final_state"] for record in records) == ["COMPLETE", "COMPLETE", "ERROR", "SPLIT"]
    (failed,) = [record for record in records if record["final_state"] == "ERROR"]
    assert failed == {
        "did": kept.second,
        "parent_did": kept.year,
        "system_name": "tests",
        "data_source": "halves",
        "filename": "second.csv",
        "transforms": [],
        "data_sink": None,
        "final_state": "ERROR",
        "created": failed["created"],
        "completed": failed["completed"],
        "annotations": {"customer": "acme=1", "errorCause": "no header"},
    }


@pytest.mark.parametrize(
    ("arguments", "filenames"),
    [
        (["--parent", "YEAR"], ["first.csv", "first.csv", "second.csv"]),
        (["--did", "YEAR"], ["year.csv"]),
        (["--data-source", "sftp-in"], ["year.csv"]),
        (["--data-sink", "lake"], ["first.csv"]),
        (["--system", "tests", "--state", "error"], ["second.csv"]),
        (["--system", "others"], []),
        (["--filename", "f*.csv"], ["first.csv", "first.csv"]),
        (["--annotation", "customer=acme=1", "--annotation", "errorCause=no header"], ["second.csv"]),
        (["--annotation", "customer=other"], []),
        (["--since", "1h", "--limit", "1", "--data-sink", "report"], ["first.csv"]),
        (["--until", "2020-01-01"], []),
    ],
)
def test_a_record_meets_every_condition(
    waybill: Run, kept: Kept, arguments: list[str], filenames: list[str]
) -> None:
    words = [word.replace("YEAR", kept.year) for word in arguments]
    assert sorted(record["filename"] for record in found(waybill, kept, *words)) == filenames


def test_without_a_terminal_a_row_is_a_line_with_tabs(waybill: Run, kept: Kept) -> None:
    done = waybill("find", "--home", kept.home, "--data-sink", "lake")
    heading, row = (line.split("\t") for line in done.stdout.splitlines())
    cells = dict(zip(heading, row, strict=True))
    assert cells["passage"] == "halves > enrich > lake"
    assert (cells["state"], cells["did"]) == ("COMPLETE", kept.first)


def test_nothing_found_is_exit_code_0_and_says_where_it_looked(waybill: Run, home: Path) -> None:
    done = waybill("find", "--home", home)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(home) in done.stderr
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--annotation", "customer"],
        ["--annotation", "=acme"],
        ["--since", "yesterday"],
        ["--state", "LOST"],
        ["--limit", "0"],
        ["--filename", "[z-a]"],
        ["--filename", "[]"],
    ],
)
def test_an_invalid_condition_is_exit_code_2(waybill: Run, home: Path, arguments: list[str]) -> None:
    done = waybill("find", "--home", home, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert arguments[0] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_line_tells_of_poison_whose_records_are_in_no_answer(waybill: Run, settings: Settings) -> None:
    journal = Journal(settings.home)
    journal.append(Kind.PROVENANCE, b'[{"did": 1}]')
    journal.close()
    note = "1 entry is poison and in no answer; see `waybill poison list`"
    query = "SELECT count(*) FROM provenance"
    for command in (["find"], ["sql", query]):
        assert note not in waybill(*command, "--home", settings.home).stderr
    assert flush(settings).poison == {"layout": 1}
    for command in (["find"], ["sql", query]):
        done = waybill(*command, "--home", settings.home)
        assert (done.returncode, note in done.stderr) == (0, True), done.stderr
    assert waybill("poison", "drop", "1", "--yes", "--home", settings.home).returncode == 0
    assert note not in waybill("find", "--home", settings.home).stderr


def test_a_file_that_cannot_be_read_is_named_after_the_records_of_the_others(
    waybill: Run, kept: Kept, tmp_path: Path
) -> None:
    shutil.copytree(kept.home / "provenance", tmp_path / "root/provenance")
    good = next((tmp_path / "root/provenance/compacted").rglob("*.parquet"))
    bad = good.with_name("00.parquet" if good.name != "00.parquet" else "01.parquet")
    bad.write_bytes(good.read_bytes()[:-9])
    home = ("--root", tmp_path / "root", "--home", tmp_path / "home")
    for command in (["find"], ["find", "--json"], ["explain", kept.first]):
        done = waybill(*command, *home)
        assert done.returncode == 1
        assert "first.csv" in done.stdout
        assert str(bad) in done.stderr
        assert "records may be missing" in done.stderr


def test_with_few_descriptors_all_is_found_or_it_is_an_error(
    settings: Settings, script: Path, tmp_path: Path
) -> None:
    journal, files = Journal(settings.home), 40
    fields = {"finalState": "COMPLETE", "created": 1, "completed": 2}
    sent = [{"did": f"d{at}", "systemName": f"system-{at}", **fields} for at in range(files)]
    journal.append(Kind.PROVENANCE, json.dumps(sent).encode())
    journal.close()
    assert len(flush(settings).files) == files
    found = {}
    for limit in (7, 9, 12, 16):
        limited: list[str | Path] = ["sh", "-c", f'ulimit -n {limit} && exec "$0" "$@"', script]
        limited += ["find", "--json", "--home", settings.home]
        done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
        found[limit] = (done.returncode, len(done.stdout.splitlines()))
    assert (found[7], found[16]) == ((1, 0), (0, files))
    assert set(found.values()) == {(1, 0), (0, files)}


def test_on_what_a_record_rests_is_told_apart_from_its_annotations(waybill: Run, home: Path) -> None:
    journal = Journal(home)
    body = {
        "eventTime": "2026-01-01T00:00:00Z",
        "eventType": "ABORT",
        "producer": "https://example.com",
        "run": {"runId": "r", "facets": {"waybill_inferred": {"reason": "the program that ran it is gone"}}},
        "job": {"namespace": "ns", "name": "job"},
    }
    journal.append(Kind.OPENLINEAGE, json.dumps(body).encode())
    journal.close()
    assert waybill("flush", "--home", home, "--provenance-enabled").returncode == 0
    evidence = "inferred: the program that ran it is gone"
    (line,) = waybill("find", "--home", home, "--json").stdout.splitlines()
    assert json.loads(line)["annotations"] == {"waybill.evidence": evidence}
    assert f"evidence: {evidence}" in waybill("find", "--home", home).stdout
    explained = waybill("explain", "r", "--home", home).stdout
    assert f"ABORT at 2026-01-01T00:00:00Z, {evidence}" in explained
