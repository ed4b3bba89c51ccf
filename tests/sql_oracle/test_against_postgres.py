"""Views of a real PostgreSQL, as the server prints them, against what it stores of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from grammar import TABLES, Grammar
from judging import Case, Column, Tally, Usage, ask
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


ATTEMPTS_PER_VIEW_MAX = 3
FIRST_COLUMN = 7
"""The columns of the system have negative numbers, and sets of columns count from the first of these."""
PERMISSIONS = re.compile(
    r":relid (\d+) :inh \w+ :requiredPerms \d+ :checkAsUser \d+ :selectedCols \(b([ \d]*)\)"
)

USAGE = """
    SELECT view_catalog || '.' || view_schema || '.' || view_name,
           table_catalog || '.' || table_schema || '.' || table_name, column_name
    FROM information_schema.view_column_usage"""


class View(NamedTuple):
    """A view.

    Attributes:
        name: its name.
        texts: it as the server prints it, plain and pretty.
        truth: what its stored tree uses.
        usage: the columns that `information_schema.view_column_usage` names.
    """

    name: str
    texts: tuple[str, ...]
    truth: Usage
    usage: frozenset[Column]


class Catalogs:
    """The tables and views of a database.

    Attributes:
        columns: those of each table and view with their types, by its whole name.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        rows = connection.execute("""
            SELECT c.oid::int, current_database() || '.' || nspname || '.' || relname, attnum, attname,
                   format_type(atttypid, atttypmod)
            FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace LEFT JOIN pg_attribute a
              ON attrelid = c.oid AND NOT attisdropped
            WHERE relkind IN ('r', 'v', 'p', 'f', 'm') ORDER BY 1, 3""").fetchall()
        self._names = {oid: name for oid, name, *_ in rows}
        self._numbered = {(oid, number): column for oid, _, number, column, _ in rows}
        self.columns: dict[str, dict[str, str]] = {}
        for _, name, number, column, of_type in rows:
            self.columns.setdefault(name, {}).update({column: of_type} if (number or 0) > 0 else {})

    def views(self, schema: str) -> Iterator[View]:
        """The views of a schema, in the order of their names."""
        usage = self._usage_by_view()
        rows = self._connection.execute(
            """SELECT c.oid::int, relname, pg_get_viewdef(c.oid), pg_get_viewdef(c.oid, true),
                ev_action::text
            FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_rewrite ON ev_class = c.oid
            WHERE relkind = 'v' AND rulename = '_RETURN' AND nspname = %s ORDER BY relname""",
            [schema],
        ).fetchall()
        for oid, name, *texts, tree in rows:
            key = self._names[oid]
            yield View(name, tuple(texts), self._used(oid, tree), usage.get(key, frozenset()))

    def _usage_by_view(self) -> dict[str, frozenset[Column]]:
        found: dict[str, set[Column]] = {}
        for view, table, column in self._connection.execute(USAGE):
            found.setdefault(view, set()).add((table, column))
        return {view: frozenset(columns) for view, columns in found.items()}

    def _used(self, view: int, tree: str) -> Usage:
        """What the stored tree of a view reads; pg_depend leaves out the system's own tables."""
        tables, columns = set[str](), set[tuple[str, str]]()
        for found in PERMISSIONS.finditer(tree):
            table = int(found[1])
            tables.add(self._names[table])
            numbers = [int(number) - FIRST_COLUMN for number in found[2].split()]
            if 0 in numbers:  # the whole row
                columns |= {(self._names[table], column) for column in self.columns[self._names[table]]}
            columns |= {(self._names[table], self._numbered[table, number]) for number in numbers if number}
        return Usage(frozenset(tables), frozenset(columns), tuple(self.columns[self._names[view]]))


def _make_tables(connection: Connection) -> None:
    """Make the tables of the grammar anew."""
    connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(f'{column} bigint' for column in columns)})")


def make_views(connection: Connection, number: int, seed: int) -> dict[str, str]:
    """Make views from the grammar; their texts by name."""
    from psycopg import DatabaseError

    _make_tables(connection)
    made: dict[str, str] = {}
    random = Random(seed)
    for _ in range(number * ATTEMPTS_PER_VIEW_MAX):
        text, _columns = Grammar(random, is_postgres=True).query()
        try:
            connection.execute(f"CREATE VIEW v{len(made):03} AS {text}")
        except DatabaseError:
            continue  # the grammar does not know every rule
        made[f"v{len(made):03}"] = text
        if len(made) == number:
            return made
    raise AssertionError(f"the database took only {len(made)} views")


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
        # It says nothing of the tables that each database has from the start.
        assert view.usage == view.truth.columns or schema != OWN
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
