"""`waybill sql`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.facets.arrow import SCHEMA

if TYPE_CHECKING:
    from conftest import Kept, Run


def test_a_query_is_answered_in_json_and_in_lines_with_tabs(waybill: Run, kept: Kept, tmp_path: Path) -> None:
    # A folder whose name is a pattern unless it is quoted.
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "it's [a]*?" / "provenance")).parent
    query = "SELECT filename, annotations, data_sink FROM provenance WHERE data_sink = 'lake'"
    done = waybill("sql", query, "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "filename": "first.csv",
        "annotations": {"customer": "acme=1"},
        "data_sink": "lake",
    }
    lines = waybill("sql", query, "--root", root).stdout.splitlines()
    assert lines == ["filename\tannotations\tdata_sink", "first.csv\tcustomer=acme=1\tlake"]


def test_the_view_has_the_same_columns_with_files_and_without(
    waybill: Run, kept: Kept, tmp_path: Path
) -> None:
    empty, full = (waybill("sql", "DESCRIBE provenance", "--root", root) for root in (tmp_path, kept.home))
    assert [line.split("\t")[0] for line in full.stdout.splitlines()[1:]] == SCHEMA.names
    assert empty.stdout == full.stdout
    assert "nothing is compacted" in empty.stderr
    said = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = said[said.index("## waybill sql") : said.index("waybill sql --json")]
    assert [name for name in SCHEMA.names if not re.search(rf"\b{name}\b", listed)] == []


def test_times_are_in_utc_in_any_time_zone(waybill: Run, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    query = "SELECT completed, epoch_ms(completed) AS ms FROM provenance ORDER BY completed LIMIT 1"
    said = json.loads(waybill("sql", query, "--root", kept.home, "--json").stdout)
    assert datetime.fromisoformat(said["completed"]).timestamp() * 1_000 == pytest.approx(said["ms"])
    assert said["completed"].endswith("Z")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT nothing FROM provenance", "nothing"),
        (" ; -- no query", "empty"),
    ],
)
def test_a_query_that_cannot_be_answered_is_a_sentence(
    waybill: Run, kept: Kept, query: str, what: str
) -> None:
    wrong = waybill("sql", query, "--root", kept.home)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    (line,) = wrong.stderr.splitlines()
    assert line.startswith("waybill: the query ")
    assert what in line


def test_more_files_than_may_be_open_are_an_error_that_says_what_to_do(
    waybill: Run, kept: Kept, script: Path, tmp_path: Path
) -> None:
    good = next((kept.home / "provenance/compacted").rglob("*.parquet"))
    for at in range(80):
        copy = tmp_path / f"root/provenance/compacted/s-{at}/20260101/00.parquet"
        copy.parent.mkdir(parents=True)
        shutil.copy(good, copy)
    arguments = ("sql", "SELECT count(*) FROM provenance", "--root", tmp_path / "root")
    assert waybill(*arguments).returncode == 0
    limited: list[str | Path] = ["sh", "-c", 'ulimit -n 32 && exec "$0" "$@"', script, *arguments]
    done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "raise the hard limit (`ulimit -Hn`), or ask with `waybill find`" in done.stderr


def test_a_damaged_file_is_named(waybill: Run, kept: Kept, tmp_path: Path) -> None:
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "root" / "provenance")).parent
    damaged = next((root / "provenance" / "compacted").rglob("*.parquet"))
    damaged.write_bytes(b"PAR1 and nothing more")
    wrong = waybill("sql", "FROM provenance", "--root", root)
    assert wrong.returncode == 1
    assert str(damaged) in wrong.stderr
    assert "waybill verify" in wrong.stderr
