"""`waybill sql`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from layouts import record

from waybill.cli.sql_views import CORRELATION_VIEWS
from waybill.exporter.layout import Layout
from waybill.exporter.relations import RELATIONS_SCHEMA
from waybill.facets import PRODUCER
from waybill.facets.arrow import SCHEMA, to_table
from waybill.transport import Journal, Settings, Tracker, flush
from waybill.transport.config import agree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conftest import Kept, Run


def test_a_query_is_answered_in_json_and_in_lines_with_tabs(called: Run, kept: Kept, tmp_path: Path) -> None:
    # A folder whose name is a pattern unless it is quoted.
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "it's [a]*?" / "provenance")).parent
    query = "SELECT filename, annotations, data_sink FROM provenance WHERE data_sink = 'lake'"
    done = called("sql", query, "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "filename": "first.csv",
        "annotations": {"customer": "acme=1"},
        "data_sink": "lake",
    }
    lines = called("sql", query, "--root", root).stdout.splitlines()
    assert lines == ["filename\tannotations\tdata_sink", "first.csv\tcustomer=acme=1\tlake"]


def test_the_view_has_the_same_columns_with_files_and_without(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    (tmp_path / "root" / "provenance" / "raw").mkdir(parents=True)
    roots = (tmp_path / "root", kept.home)
    empty, full = (called("sql", "DESCRIBE provenance", "--root", root) for root in roots)
    assert [line.split("\t")[0] for line in full.stdout.splitlines()[1:]] == SCHEMA.names
    assert empty.stdout == full.stdout
    assert "no files are compacted" in empty.stderr
    said = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = said[said.index("## waybill sql") : said.index("waybill sql --json")]
    assert [name for name in SCHEMA.names if not re.search(rf"\b{name}\b", listed)] == []


def test_what_is_not_in_files_yet_is_told_with_the_command_that_puts_it_there(
    called: Run, settings: Settings
) -> None:
    on = settings.with_values({"provenance_enabled": True}, "test")
    query = ("sql", "SELECT count(*) AS n FROM provenance", "--home", settings.home, "--json")

    def track() -> None:
        with Tracker(settings=on) as tracker, tracker.file("f", data_source="in"):
            pass

    track()
    flush(on)
    whole = called(*query)
    assert (json.loads(whole.stdout), whole.stderr) == ({"n": 1}, "")
    track()
    told = called(*query)
    assert (json.loads(told.stdout), told.returncode) == ({"n": 1}, 0)
    assert told.stderr.startswith(
        "2 entries are not in compacted files yet, so the answer lacks their records"
    )
    command = re.findall(r"`waybill (.*?)`", told.stderr)[0]
    assert called(*shlex.split(command)).returncode == 0
    assert json.loads(called(*query).stdout) == {"n": 2}


def test_what_is_in_no_file_since_provenance_is_off_is_told_with_the_command_that_turns_it_on(
    called: Run, settings: Settings
) -> None:
    off = settings.with_values({"provenance_enabled": False}, "test")
    with Tracker(settings=off) as tracker, tracker.file("f", data_source="in"):
        pass
    told = called("sql", "FROM provenance", "--home", settings.home)
    assert "2 entries are not in compacted files yet" in told.stderr
    assert f"`waybill settings apply --home {settings.home} --provenance-enabled`" in told.stderr


def test_raw_files_that_are_not_compacted_are_told_of(called: Run, tmp_path: Path) -> None:
    given = {"home": tmp_path / "home", "provenance_enabled": True, "runner": "none"}
    on = Settings.load(given, env={}, cwd=tmp_path)
    with Tracker(settings=on) as tracker, tracker.file("f", data_source="in"):
        pass
    with contextlib.closing(Journal(on.home)) as journal:
        Layout(journal, agree(journal, on), linger_s=0).step()
    told = called("sql", "FROM provenance", "--root", on.root)
    assert "1 raw file is not in compacted files yet" in told.stderr


def test_instants_of_csv_are_of_the_one_form(called: Run, kept: Kept) -> None:
    done = called("sql", "SELECT created, completed FROM provenance", "--home", kept.home, "--csv")
    _, *rows = done.stdout.splitlines()
    assert rows
    for cell in ",".join(rows).split(","):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", cell)


def test_instants_within_a_value_are_of_the_one_form(called: Run, kept: Kept) -> None:
    at = "TIMESTAMPTZ '2026-01-31 12:00:00.5+00'"
    query = f"SELECT [{at}] AS a, {{'x': [{at}]}} AS b, MAP {{'k': {at}}} AS c, {at} AS d"
    said = json.loads(called("sql", query, "--root", kept.home, "--json").stdout)
    iso = "2026-01-31T12:00:00.500Z"
    assert said == {"a": [iso], "b": {"x": [iso]}, "c": {"k": iso}, "d": iso}


def test_times_are_in_utc_in_any_time_zone(called: Run, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    query = "SELECT completed, epoch_ms(completed) AS ms FROM provenance ORDER BY completed LIMIT 1"
    said = json.loads(called("sql", query, "--root", kept.home, "--json").stdout)
    assert datetime.fromisoformat(said["completed"]).timestamp() * 1_000 == pytest.approx(said["ms"])
    assert said["completed"].endswith("Z")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT nothing FROM provenance", 'column "nothing" not found'),
        ("SELECT did\nFORM provenance WHERE", "in line 2, column "),
        ("FROM nowhere", "nowhere does not exist"),
        (" ; -- no query", "the query is empty"),
    ],
)
def test_a_wrong_query_is_exit_code_2_and_told_with_its_place(
    called: Run, kept: Kept, query: str, what: str
) -> None:
    wrong = called("sql", query, "--root", kept.home)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    line = wrong.stderr.splitlines()[-1]
    assert line.startswith("Error: Invalid value for SQL: ")
    assert what in line
    assert " Error: " not in line


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("COPY (SELECT 1 AS did) TO '{file}'", 2),
        ("EXPLAIN ANALYZE COPY (SELECT 1 AS did) TO '{file}'", 2),
        ("PREPARE p AS COPY (SELECT 1 AS did) TO '{file}'; EXECUTE p", 2),
        ("EXPORT DATABASE '{root}'", 2),
        ("ATTACH '{other}/a.db'", 2),
        ("SET memory_limit = '1TB'", 2),
        ("INSTALL httpfs", 2),
        ("SELECT * FROM read_text('{other}/secret')", 1),
        ("SELECT * FROM glob('{other}/*')", 1),
        ("SELECT * FROM read_text('{root}/../secret')", 1),
        ("CREATE VIEW v AS FROM read_text('{other}/secret'); FROM v", 1),
    ],
)
def test_a_query_reads_nothing_outside_the_root_and_writes_nothing(
    called: Run, kept: Kept, tmp_path: Path, query: str, code: int
) -> None:
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "root" / "provenance")).parent
    (tmp_path / "secret").write_text("told to nobody")
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    file = next(path for path in files if "compacted" in path.parts)
    done = called("sql", query.format(file=file, root=root, other=tmp_path), "--root", root)
    assert (done.returncode, done.stdout) == (code, "")
    assert "--unrestricted" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_an_unrestricted_query_may_write_a_file(called: Run, kept: Kept, tmp_path: Path) -> None:
    query = "COPY (SELECT filename FROM provenance) TO '{}/names.csv'"
    assert called("sql", "--unrestricted", query.format(tmp_path), "--root", kept.home).returncode == 0
    assert "first.csv" in (tmp_path / "names.csv").read_text()


def test_a_query_that_takes_too_long_ends(called: Run, kept: Kept) -> None:
    query = "SELECT count(*) FROM range(100000000) a(i), range(1000) b(j) WHERE i % 7 = j % 5"
    done = called("sql", "--timeout", "1", query, "--root", kept.home)
    assert (done.returncode, done.stdout) == (1, "")
    assert "took more than 1 seconds" in done.stderr


def test_a_query_may_have_tables_of_its_own(called: Run, kept: Kept) -> None:
    query = "CREATE TABLE mine AS SELECT filename FROM provenance; SELECT count(*) > 0 AS some FROM mine"
    assert called("sql", query, "--root", kept.home).stdout.splitlines() == ["some", "True"]


def test_a_query_that_fails_at_work_is_exit_code_1(called: Run, kept: Kept) -> None:
    wrong = called("sql", "SELECT CAST(did AS INTEGER) FROM provenance", "--root", kept.home)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("waybill: the query failed")


FEW_FILES = """
import os, resource, sys
from waybill.cli.app import main
from waybill.cli.commands import sql

make_views = sql._make_views

def made_views(*given):
    make_views(*given)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))

sql._make_views = made_views
main()
"""
"""How many files DuckDB opens at once is a matter of time: here it can open none more."""


def test_more_files_than_may_be_open_are_an_error_that_says_what_to_do(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    good = next((kept.home / "provenance/compacted").rglob("*.parquet"))
    for at in range(3):
        copy = tmp_path / f"root/provenance/compacted/s-{at}/20260101/00.parquet"
        copy.parent.mkdir(parents=True)
        shutil.copy(good, copy)
    arguments = ("sql", "FROM provenance", "--root", tmp_path / "root")
    assert called(*arguments).returncode == 0
    limited: list[str | Path] = [sys.executable, "-c", FEW_FILES, *arguments]
    done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "raise the hard limit (`ulimit -Hn`), or use `waybill find`" in done.stderr


def test_a_damaged_file_is_named(called: Run, kept: Kept, tmp_path: Path) -> None:
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "root" / "provenance")).parent
    damaged = next((root / "provenance" / "compacted").rglob("*.parquet"))
    damaged.write_bytes(b"PAR1 and nothing more")
    wrong = called("sql", "FROM provenance", "--root", root)
    assert wrong.returncode == 1
    assert wrong.stderr.count(str(damaged)) == 1
    assert f"is damaged (it is not a whole Parquet file); run `waybill repair --root {root}`" in wrong.stderr


def test_what_is_known_beside_the_records_has_views(called: Run, settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        with tracker.file("a.csv", data_source="in") as a, tracker.file("b.csv", data_source="in") as b:
            joined = tracker.join([a, b], "ab.csv", data_source="daily")
        with joined:
            joined.egress("lake")
            joined.egress("mart")
    assert flush(settings).left == {}

    def asked(query: str) -> list[dict[str, object]]:
        done = called("sql", query, "--root", settings.root, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert asked("SELECT value FROM relations WHERE kind = 'parent'") == [{"value": b.did}]
    [event] = asked("SELECT * FROM correlation_event WHERE process = 'daily'")
    columns = ["id_event", "process", "version", "fingerprint", "input_size", "event_time", "forced"]
    assert list(event) == columns
    assert (event["process"], event["version"], event["forced"]) == ("daily", None, 0)
    rows = asked("SELECT * FROM correlation_details")
    details = [row for row in rows if row["id_event"] == joined.did]
    assert {str(one["field"]): json.loads(str(one["JSON"])) for one in details} == {
        "filename": "ab.csv",
        "inputs": ["tests/daily"],
        "producers": [PRODUCER],
        "sinks": ["lake", "mart"],
        "states": ["COMPLETE"],
        "system": "tests",
    }
    lineage = (
        "SELECT id_parent, depth FROM correlation_lineage WHERE id_child = '{}' ORDER BY depth, id_parent"
    )
    above = asked(lineage.format(joined.did))
    assert {one["id_parent"]: one["depth"] for one in above} == {joined.did: 0, a.did: 1, b.did: 1}


DIDS = "abcdefgh"


def depths(edges: Iterable[tuple[str, str]], start: str) -> dict[str, int]:
    """Everything that edges lead to from a start, and in how many steps at least."""
    found, now = {start: 0}, {start}
    for depth in itertools.count(1):
        now = {to for of, to in edges if of in now} - found.keys()
        if not now:
            return found
        found |= dict.fromkeys(now, depth)
    raise AssertionError


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=14),
    st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=5),
)
def test_the_view_of_all_ancestors_has_what_a_walk_along_the_edges_finds(
    named: list[tuple[str, str]], further: list[tuple[str, str]]
) -> None:
    edges = [*named, *further]
    files = {did for _, did in named} | {did for edge in edges for did in edge}
    with duckdb.connect() as connection:
        connection.register("provenance", to_table([record(child, parent_did=of) for of, child in named]))
        rows = [{"did": child, "kind": "parent", "value": of, "time": 0} for of, child in further]
        connection.register("relations", pa.Table.from_pylist(rows, RELATIONS_SCHEMA))
        connection.execute(CORRELATION_VIEWS)
        found = connection.sql("SELECT id_parent, id_child, depth FROM correlation_lineage").fetchall()
    expected = [(of, did, depth) for of in files for did, depth in depths(edges, of).items()]
    assert sorted(found) == sorted(expected)
