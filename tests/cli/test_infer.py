"""`waybill infer` and `waybill analyzers`."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.lineage.analyzers.query_logs import without_values
from waybill.transport import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Run

INSERT = "INSERT INTO daily (id, note)\n\tSELECT id, 'secret' FROM orders -- nightly\n\tWHERE total > {}"
RUN = [
    INSERT.format(10),
    INSERT.format(25),
    "SELECT 1 FROM orders",
    "TRUNCATE daily",
    "UPDATE daily SET x = $1",
]
FAILED = "DELETE FROM gone"
GIVEN = ("--namespace", "postgres://db:5432", "--schema", "shop.public")


def stderr_log() -> str:
    lines = [
        f"2026-01-31 12:00:00.000 UTC [7] LOG:  duration: 0.4 ms  statement: {text}" for text in RUN[:-1]
    ]
    lines += [
        f"2026-01-31 12:00:01.000 UTC [7] LOG:  execute <unnamed>: {RUN[-1]}",
        "2026-01-31 12:00:01.000 UTC [7] DETAIL:  Parameters: $1 = 'secret'",
        f"2026-01-31 12:00:02.000 UTC [8] LOG:  statement: {FAILED}",
        '2026-01-31 12:00:02.000 UTC [8] ERROR:  relation "gone" does not exist at character 13',
        f"2026-01-31 12:00:02.000 UTC [8] STATEMENT:  {FAILED}",
        "torn in the mid",
        "2026-01-31 12:00:03.000 UTC [1] LOG:  checkpoint starting: time",
    ]
    return "\n".join(lines) + "\n"


def entries() -> list[tuple[str, str, str]]:
    """The same as level, message and failed statement."""
    told = [("LOG", f"duration: 0.4 ms  statement: {text}", "") for text in RUN[:-1]]
    told += [("LOG", f"execute <unnamed>: {RUN[-1]}", ""), ("LOG", f"statement: {FAILED}", "")]
    return [*told, ("ERROR", 'relation "gone" does not exist', FAILED), ("LOG", "checkpoint starting", "")]


def csv_log() -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    for level, message, query in entries():
        row = [""] * 26
        row[0], row[11], row[13], row[19] = "2026-01-31 12:00:00.000 UTC", level, message, query
        rows.writerow(row)
    return text.getvalue() + "torn,in the mid\n"


def json_log() -> str:
    lines = [
        json.dumps({"error_severity": level, "message": message} | ({"statement": query} if query else {}))
        for level, message, query in entries()
    ]
    return "\n".join([*lines, '{"torn": "in the'])


def lines_log() -> str:
    lines = [json.dumps({"QUERY_TEXT": text, "dialect": "postgres"}) for text in RUN]
    return "\n".join([*lines, "[]", json.dumps({"user": "ada"})])


def stored(home: Path) -> list[dict[str, Any]]:
    with closing(Journal(home)) as journal:
        return [json.loads(entry.body) for entry in journal.read(0)]


@pytest.fixture
def made(home: Path) -> Path:
    with closing(Journal(home)):
        return home


@pytest.mark.parametrize("write", [stderr_log, csv_log, json_log, lines_log])
def test_a_log_of_each_form_gives_the_same_jobs(
    called: Run, made: Path, tmp_path: Path, write: Callable[[], str]
) -> None:
    log = tmp_path / "queries.log"
    log.write_text(write())
    done = called("infer", log, *GIVEN, "--home", made)
    assert done.returncode == 0, done.stderr
    insert, update = sorted(stored(made), key=lambda one: len(one["inputs"]), reverse=True)
    assert [one["name"] for one in insert["inputs"]] == ["shop.public.orders"]
    (output,) = insert["outputs"]
    assert (output["namespace"], output["name"]) == ("postgres://db:5432", "shop.public.daily")
    assert list(output["facets"]["columnLineage"]["fields"]) == ["id", "note"]
    facets = insert["job"]["facets"]
    assert facets["sql"]["query"] == "INSERT INTO daily (id, note) SELECT id, ? FROM orders WHERE total > ?"
    assert facets["waybill_inferred"]["reason"] == "runs in a query log: 2; read from its SQL text"
    assert insert["schemaURL"].endswith("/JobEvent")
    assert [one["name"] for one in update["outputs"]] == ["shop.public.daily"]
    assert "secret" not in json.dumps([insert, update])
    assert done.stderr.startswith("jobs stored: 2; statements that write nothing: 2; ")
    assert (write is lines_log) == ("that failed when they were run: 1" not in done.stderr)
    assert f"lines that are damaged or of another form: {2 if write is lines_log else 1}\n" in done.stderr
    called("infer", log, *GIVEN, "--home", made)
    assert len(stored(made)) == 2, "the same log gives the same entries"


@pytest.mark.parametrize("write", [stderr_log, csv_log, json_log, lines_log])
def test_a_log_that_begins_in_the_middle_of_a_line_is_read(
    called: Run, made: Path, tmp_path: Path, write: Callable[[], str]
) -> None:
    log = tmp_path / "queries.log"
    log.write_text("orders WHERE total > 10\n" + write())
    done = called("infer", log, *GIVEN, "--home", made)
    assert "jobs stored: 2; " in done.stderr
    assert f"lines that are damaged or of another form: {3 if write is lines_log else 2}\n" in done.stderr


def test_a_dry_run_stores_nothing_and_says_what_it_would(called: Run, made: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    log.write_text(stderr_log())
    done = called("infer", log, *GIVEN, "--home", made, "--dry-run")
    assert "  <- shop.public.orders\n  -> shop.public.daily\n" in done.stdout
    assert "jobs that would be stored: 2" in done.stderr
    printed = called("infer", log, *GIVEN, "--home", made, "--dry-run", "--json").stdout.splitlines()
    assert [json.loads(line)["job"]["namespace"] for line in printed] == ["postgres://db:5432"] * 2
    assert stored(made) == []


def test_a_log_that_cannot_be_read_is_told(called: Run, made: Path, tmp_path: Path) -> None:
    done = called("infer", tmp_path / "none.log", *GIVEN, "--home", made)
    assert (done.returncode, done.stderr) == (
        2,
        f"waybill: there is no file {tmp_path / 'none.log'}; give a query log\n",
    )
    log = tmp_path / "queries.jsonl"
    log.write_text(json.dumps({"query": "INSERT INTO (((("}) + "\n" + "x" * 2_500_000 + "\n")
    done = called("infer", log, *GIVEN, "--home", made)
    assert done.returncode == 1
    assert "that could not be read: 1" in done.stderr
    assert "the first that could not be read: ParseError" in done.stderr
    assert "lines that are damaged or of another form: 1" in done.stderr
    log.write_text("")
    assert "jobs stored: 0" in called("infer", log, *GIVEN, "--home", made).stderr


def test_what_is_not_read_of_a_statement_is_told(called: Run, made: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.jsonl"
    log.write_text(json.dumps({"query": "INSERT INTO daily (id) SELECT id FROM refreshed(7)"}))
    done = called("infer", log, "--namespace", "postgres://db:5432", "--home", made, "--dry-run", "--json")
    assert "would be stored: 1; of which a part could not be read, as their facets say: 1" in done.stderr
    (event,) = map(json.loads, done.stdout.splitlines())
    unread = event["job"]["facets"]["waybill_inferred"]["unread"]
    assert unread == ["what the function refreshed reads itself is not known"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("INSERT INTO t VALUES (1, 'a''b'), (2, E'it\\'s')", "INSERT INTO t VALUES (?)"),
        ("DELETE FROM t1 WHERE x IN (1,2,3) /* all */ ;", "DELETE FROM t1 WHERE x IN (?)"),
        ("SELECT $$ a 'b' $$, $tag$ $$ $tag$, $1, 1.5e3", "SELECT ?"),
        ('UPDATE "T 1" SET a2 = 0x1F', 'UPDATE "T 1" SET a2 = ?'),
        ("SELECT 'never closed", "SELECT ?"),
    ],
)
def test_values_and_comments_make_no_other_statement(text: str, plain: str) -> None:
    assert without_values(text) == plain


@pytest.mark.parametrize("part", ["/*", "'", "''\\", "$$", "$a$b", '"', "(?", "?,", "\\", "1", "--"])
def test_a_hostile_statement_is_written_plain_in_proportion_to_its_length(part: str) -> None:
    assert len(without_values("SELECT " + part * 200_000)) <= 800_000


def test_the_analyzers_are_listed(called: Run) -> None:
    done = called("analyzers")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        "analyzer",
        "airflow",
        "dbt",
        "sql",
        "generic",
    ]
    listed = [json.loads(line) for line in called("analyzers", "--json").stdout.splitlines()]
    assert [one["confidence"] for one in listed] == [1.0, 1.0, 0.9, 0.3]


def test_a_home_says_how_often_each_was_used(called: Run, home: Path) -> None:
    log = home.parent / "queries.jsonl"
    log.write_text(json.dumps({"query": RUN[0]}) + "\n")
    Journal(home).close()
    assert called("infer", log, "--home", home, "--namespace", "shop").returncode == 0
    assert called("flush", "--home", home).returncode == 0
    listed = called("analyzers", "--used", "--json", "--home", home)
    edges = {one["name"]: one["edges"] for one in map(json.loads, listed.stdout.splitlines())}
    assert edges["inferred"] > 0
    assert edges["airflow"] == 0
    table = called("analyzers", "--used", "--home", home)
    assert table.stdout.splitlines()[0].split("\t") == ["analyzer", "sure", "edges", "reads"]


def test_what_may_write_and_cannot_be_read_is_not_said_to_write_nothing(
    called: Run, made: Path, tmp_path: Path
) -> None:
    log = tmp_path / "queries.jsonl"
    may_write = ("CALL x()", "COPY t FROM 's3://b/x.csv'", "EXECUTE p(1)", "DO $$ BEGIN PERFORM f(); END $$")
    reading = ("SELECT copy, load FROM t", "SELECT 1")
    renaming = ("ALTER TABLE daily RENAME TO day",)
    log.write_text("".join(json.dumps({"query": text}) + "\n" for text in may_write + reading + renaming))
    done = called("infer", log, *GIVEN, "--dry-run", "--home", made)
    says = "jobs that would be stored: 1; statements that write nothing: 2; that could not be read: 4\n"
    assert done.stderr.startswith(says), done.stderr
    assert "the first that could not be read: ValueError: statement 1 (CALL x() …) is not read" in done.stderr
    assert "shop.public.daily\n  -> shop.public.day\n" in done.stdout
