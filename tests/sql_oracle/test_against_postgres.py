"""Views of a real PostgreSQL, as the server prints them, against what it stores of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from catalogs import Catalogs, make_views
from judging import Case, Tally, ask
from postgres import running_postgres

if TYPE_CHECKING:
    from psycopg import Connection

OWN = "public"
ALL = 300
SAMPLE = 40
SEED = 7
TOLD_MAX = {"pg_catalog": 0.3, "information_schema": 0.2, OWN: 0.2}
"""The share of views of which the analyzer may say that it does not know all. A quarter of those in
`pg_catalog` read a function, such as `pg_stat_get_activity`: nobody can say where its columns come from.
"""
UNUSED = {
    "key_column_usage": {("pg_constraint", "oid"), ("pg_constraint", "confrelid")},
    "table_privileges": {("pg_class", "oid")},
    "udt_privileges": {("pg_type", "oid")},
    "usage_privileges": {("pg_class", "oid"), ("pg_type", "oid")},
}
"""Columns that a subquery of a system view lists, and nothing around it uses: nothing comes from them."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with running_postgres() as url:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def judge(
    connection: Connection, schema: str, texts: dict[str, str], *, every: int = 1
) -> tuple[Tally, Tally]:
    """Read each view as the server prints it, plain and pretty, and as it was written, if that is known.

    The first tally is for an analyzer that knows the columns of all tables, the second if it knows none.
    """
    catalogs, with_columns, without = Catalogs(connection), Tally(), Tally()
    for view in list(catalogs.views(schema))[::every]:
        # Both say nothing of the tables that each database has from the start.
        assert {view.usage, view.depends} <= {view.truth.columns} or schema != OWN
        unused = {(f"postgres.pg_catalog.{table}", column) for table, column in UNUSED.get(view.name, ())}
        truth = replace(view.truth, columns=view.truth.columns - unused)
        within = "postgres." + (OWN if schema == OWN else "pg_catalog")
        for text in dict.fromkeys((*view.texts, texts.get(view.name, view.texts[0]))):
            with_columns.add(Case(text, truth, ask(text, "postgres", within, catalogs.columns)))
            without.add(Case(text, truth, ask(text, "postgres", within, {})))
    return with_columns, without


def check(schema: str, tallies: tuple[Tally, Tally]) -> None:
    for tally in tallies:
        assert not tally.wrong, str(tally)
    assert tallies[0].told <= tallies[0].texts * TOLD_MAX[schema]


def test_a_sample_of_views_uses_what_the_database_says(connection: Connection) -> None:
    made = make_views(connection, SAMPLE, SEED)
    for schema, every in (("pg_catalog", 10), ("information_schema", 10), (OWN, 1)):
        check(schema, judge(connection, schema, made, every=every))


@pytest.mark.exhaustive
def test_views_use_what_the_database_says(connection: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_views(connection, ALL, SEED)
    for schema in ("pg_catalog", "information_schema", OWN):
        tallies = judge(connection, schema, made)
        with capsys.disabled():
            print(f"\n{schema}: {tallies[0]}\nthe same, no columns known: {tallies[1]}")  # noqa: T201
        check(schema, tallies)
