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

SYSTEM = ("pg_catalog", "information_schema")
OWN = ("public",)
ALL = 300
SAMPLE = 40
SEED = 7
TOLD_MAX = 0.2
"""The share of views of which the analyzer may say that it cannot read them."""
UNUSED = {
    "key_column_usage": {("pg_constraint", "oid"), ("pg_constraint", "confrelid")},
    "table_privileges": {("pg_class", "oid")},
    "udt_privileges": {("pg_type", "oid")},
    "usage_privileges": {("pg_class", "oid"), ("pg_type", "oid")},
}
"""Columns that a subquery of a system view lists, and nothing around it uses: nothing comes from them."""
SYSTEM_VIEWS_MIN = 140


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with running_postgres() as url:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def judge(
    connection: Connection, schemas: tuple[str, ...], texts: dict[str, str], *, every: int = 1
) -> Tally:
    """Read each view as the server prints it, plain and pretty, and as it was written, if that is known."""
    catalogs, tally = Catalogs(connection), Tally()
    for view in list(catalogs.views(schemas))[::every]:
        # Both say nothing of the tables that each database has from the start.
        assert {view.usage, view.depends} <= {view.truth.columns} or schemas == SYSTEM
        for text in dict.fromkeys((*view.texts, texts.get(view.name, view.texts[0]))):
            unused = {(f"postgres.pg_catalog.{table}", column) for table, column in UNUSED.get(view.name, ())}
            truth = replace(view.truth, columns=view.truth.columns - unused)
            tally.add(Case(text, truth, ask(text, "postgres", catalogs.columns)))
    return tally


def check(tally: Tally) -> None:
    assert not tally.wrong, str(tally)
    assert tally.told < tally.texts * TOLD_MAX


def test_a_sample_of_views_uses_what_the_database_says(connection: Connection) -> None:
    check(judge(connection, SYSTEM, {}, every=10))
    check(judge(connection, OWN, make_views(connection, SAMPLE, SEED)))


@pytest.mark.exhaustive
def test_views_use_what_the_database_says(connection: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    system = judge(connection, SYSTEM, {})
    made = judge(connection, OWN, make_views(connection, ALL, SEED))
    with capsys.disabled():
        print(f"\nsystem views: {system}\nviews from the grammar: {made}")  # noqa: T201
    assert system.texts > SYSTEM_VIEWS_MIN
    check(system)
    check(made)
