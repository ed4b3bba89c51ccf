"""`waybill impact` and `waybill origins`: what they print."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from events import members

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


@pytest.fixture
def told(home: Path) -> Path:
    """A home with a job that reads a dataset, and writes a column of another one from it."""
    source = {
        "namespace": "lake",
        "name": "raw",
        "field": "amount",
        "transformations": [{"type": "DIRECT", "subtype": "AGGREGATION", "masking": True}],
    }
    facets = {
        "columnLineage": {"fields": {"total": {"inputFields": [source]}}},
        "schema": {"fields": [{"name": "total"}, {"name": "day"}]},
        "ownership": {"owners": [{"name": "=cmd()"}]},
        "tags": {"tags": [{"key": "tier", "value": "gold"}]},
    }
    job = {
        "namespace": "etl",
        "name": "sum",
        "facets": {"sql": {"query": "SELECT sum(amount) AS total\nFROM raw\x1b[31m"}},
    }
    event = members(
        "r",
        job=job,
        inputs=["lake/raw"],
        outputs=[{"namespace": "lake", "name": "orders", "facets": facets}],
    )
    with closing(Journal(home)) as journal:
        journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    return home


def test_impact_is_a_table_csv_or_json(called: Run, told: Path) -> None:
    done = called("impact", "raw.amount", "--home", told)
    assert done.returncode == 0, done.stderr
    heading, job, dataset = (line.split("\t") for line in done.stdout.splitlines())
    assert heading[:4] == ["distance", "kind", "name", "reached"]
    assert job == ["1", "job", "etl/sum", "yes", "", "", "2026-01-31T12:00:00.000Z", "COMPLETE", "", ""]
    assert dataset == ["2", "dataset", "lake/orders", "yes", "=cmd()", "gold", "", "", "total", ""]
    lines = called("impact", "raw", "--home", told, "--csv").stdout.splitlines()
    assert list(csv.DictReader(lines))[1]["columns"] == "total"
    found = json.loads(called("impact", "raw", "--home", told, "--json").stdout)
    assert [one["distance"] for one in found["nodes"]] == [1, 2]
    assert found["nodes"][0]["last_run"]["started"] == "2026-01-31T12:00:00.000Z"
    nothing = called("impact", "orders", "--home", told)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "nothing is known that comes from lake/orders" in nothing.stderr


def test_origins_are_steps_with_the_job_s_sql(called: Run, told: Path) -> None:
    done = called("origins", "orders.total", "--home", told)
    assert done.returncode == 0, done.stderr
    table, _, texts = done.stdout.partition("\n\n")
    assert table.splitlines()[1].split("\t") == [
        *("lake/orders.total", "lake/raw.amount", "direct, masked", "DIRECT/AGGREGATION", "etl/sum", "end")
    ]
    assert texts.splitlines()[:2] == ["SQL of etl/sum", "  SELECT sum(amount) AS total"]
    assert "\x1b" not in texts
    found = json.loads(called("origins", "orders.total", "--home", told, "--json").stdout)
    assert (found["steps"][0]["is_masked"], found["ends"][0]["column"]) == (True, "amount")
    unknown = called("origins", "orders.day", "--home", told)
    assert (unknown.returncode, unknown.stdout) == (0, "")
    assert "nothing is known of where lake/orders.day comes from" in unknown.stderr
    wrong = called("origins", "orders", "--home", told)
    assert (wrong.returncode, "lake/orders is a dataset, no column" in wrong.stderr) == (2, True)


def test_a_column_of_which_only_what_decides_its_rows_is_known_is_told_as_such(
    called: Run, told: Path
) -> None:
    query = "INSERT INTO sums SELECT note, one.amount FROM one JOIN two USING (id)"
    job = {"namespace": "etl", "name": "join", "facets": {"sql": {"query": query}}}
    event = members("s", job=job, inputs=["db/one", "db/two", "db/more"], outputs=["db/sums"])
    with closing(Journal(told)) as journal:
        journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    assert called("lineage", "db/sums", "--refresh", "--home", told).returncode == 0
    says = "no column is known that its values come from"
    for column, is_said in (("note", True), ("amount", False)):
        done = called("origins", f"db/sums.{column}", "--home", told)
        assert (says in done.stderr) is is_said, (column, done.stdout)
        assert "db/one.id\tindirect\tINDIRECT/JOIN" in done.stdout
        assert "maybe from db/more, too" in done.stderr


def test_lists_of_datasets_are_tables_csv_or_json(called: Run, told: Path) -> None:
    done = called("datasets", "--unread", "--home", told)
    assert done.stdout.splitlines() == ["dataset\tlast written", "lake/orders\t2026-01-31T12:00:00.000Z"]
    stale = called("datasets", "--stale", "2026-02-01", "--home", told, "--json")
    assert json.loads(stale.stdout)["datasets"][0]["node"]["name"] == "orders"
    doubled = called("datasets", "--duplicate-producers", "--home", told)
    assert (doubled.returncode, doubled.stdout, "there is none" in doubled.stderr) == (0, "", True)
    with closing(Journal(told)) as journal:
        again = members("s", "START", "2026-01-31T11:30:00Z", job="etl/again")
        ended = members("s", job="etl/again", outputs=["lake/orders"])
        journal.append_many((Kind.OPENLINEAGE, json.dumps(one).encode(), "") for one in (again, ended))
    lines = called("datasets", "--duplicate-producers", "--home", told, "--csv").stdout.splitlines()
    assert list(csv.reader(lines))[1:] == [
        ["output", "lake/orders", "etl/again", "1", "0.50"],
        ["output", "lake/orders", "etl/sum", "1", "0.00"],
    ]


def test_search_shows_what_matches_and_how_much_more_there_is(called: Run, told: Path) -> None:
    done = called("search", "gold", "tot", "--home", told)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split("\t") == [
        *("dataset", "lake/orders", "total", "tier:gold", "=cmd()", "")
    ]
    found = json.loads(called("search", "lake", "--limit", "1", "--home", told, "--json").stdout)
    assert (len(found["nodes"]), found["matches"]) == (1, 2)
    more = called("search", "lake", "--limit", "1", "--home", told)
    assert "these are 1 of 2; more with --limit" in more.stderr
    nothing = called("search", "nothing", "--home", told)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "nothing has all these words" in nothing.stderr


def test_diff_shows_a_table_and_the_lines_of_the_sql(called: Run, told: Path) -> None:
    job = {"namespace": "etl", "name": "sum", "facets": {"sql": {"query": "SELECT max(x)\nFROM raw\x1b[31m"}}}
    with closing(Journal(told)) as journal:
        journal.append(Kind.OPENLINEAGE, json.dumps(members("s", job=job, inputs=["lake/raw"])).encode())
    done = called("diff", "r", "s", "--home", told)
    assert done.returncode == 0, done.stderr
    table, _, sql = done.stdout.partition("SQL of etl/sum\n")
    assert table.splitlines()[1:] == ["output\tlake/orders\tlake/orders\t"]
    assert sql.splitlines()[3:5] == ["  -SELECT sum(amount) AS total", "  +SELECT max(x)"]
    assert "\x1b" not in sql
    found = json.loads(called("diff", "r", "s", "--home", told, "--json").stdout)
    assert [one["what"] for one in found["differences"]] == ["sql", "output"]
    assert "do not differ" in called("diff", "r", "r", "--home", told).stderr
    gone = called("diff", "r", "gone", "--home", told)
    assert (gone.returncode, "no event of the run gone is stored" in gone.stderr) == (2, True)


def test_alias_makes_two_names_one_for_good(called: Run, told: Path) -> None:
    with closing(Journal(told)) as journal:
        event = members("s", job="etl/mail", inputs=["hive/sales.orders"])
        journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
    words = ("alias", "hive/sales.orders", "lake/orders", "--home", told)
    both = ["hive/sales.orders", "lake/orders"]
    dry = called(*words, "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()) == (0, both)
    assert "these would be one dataset; once it is declared, it cannot be undone" in dry.stderr
    assert "etl/mail" not in called("lineage", "lake/orders", "--home", told).stdout
    done = called(*words)
    assert (done.returncode, done.stdout.splitlines()) == (0, both)
    assert "these are one dataset now, which cannot be undone" in done.stderr
    assert "etl/mail" in called("lineage", "lake/orders", "--home", told).stdout
    assert "etl/sum" in called("lineage", "sales.orders", "--home", told).stdout
    again = called(*words, "--json")
    assert ([one["name"] for one in json.loads(again.stdout)["names"]]) == ["sales.orders", "orders"]
    assert "one dataset already" in again.stderr
    for wrong, says in (
        (("orders", "nothing"), "has the name 'nothing'"),
        (("orders", "etl/sum"), "is a job"),
    ):
        refused = called("alias", *wrong, "--home", told)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
