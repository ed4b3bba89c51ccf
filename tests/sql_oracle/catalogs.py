"""What PostgreSQL says that its views use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from grammar import TABLES, Grammar
from judging import Column, Usage

if TYPE_CHECKING:
    from psycopg import Connection

_ATTEMPTS_PER_VIEW_MAX = 3
_FIRST_COLUMN = 7
"""The columns of the system have negative numbers, and sets of columns count from the first of these."""
_PERMISSIONS = re.compile(
    r":relid (\d+) :inh \w+ :requiredPerms \d+ :checkAsUser \d+ :selectedCols \(b([ \d]*)\)"
)

_NONE: frozenset[Column] = frozenset()
_USAGE = """
    SELECT view_catalog || '.' || view_schema || '.' || view_name,
           table_catalog || '.' || table_schema || '.' || table_name, column_name
    FROM information_schema.view_column_usage"""
_DEPENDS = """
    SELECT current_database() || '.' || v.relnamespace::regnamespace || '.' || v.relname,
           current_database() || '.' || t.relnamespace::regnamespace || '.' || t.relname, attname
    FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
      JOIN pg_class t ON t.oid = d.refobjid
      JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'n'"""


class View(NamedTuple):
    """A view.

    Attributes:
        name: its name.
        texts: it as the server prints it, plain and pretty.
        truth: what its stored tree uses.
        usage: the columns that `information_schema.view_column_usage` names.
        depends: those that `pg_depend` has.
    """

    name: str
    texts: tuple[str, ...]
    truth: Usage
    usage: frozenset[Column]
    depends: frozenset[Column]


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
        usage, depends = (self._columns_by_view(query) for query in (_USAGE, _DEPENDS))
        rows = self._connection.execute(
            """SELECT c.oid::int, relname, pg_get_viewdef(c.oid), pg_get_viewdef(c.oid, true),
                ev_action::text
            FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_rewrite ON ev_class = c.oid
            WHERE relkind = 'v' AND rulename = '_RETURN' AND nspname = %s ORDER BY relname""",
            [schema],
        ).fetchall()
        for oid, name, *texts, tree in rows:
            key = self._names[oid]
            yield View(
                name,
                tuple(texts),
                self._used(oid, tree),
                usage.get(key, _NONE),
                depends.get(key, _NONE),
            )

    def _columns_by_view(self, query: str) -> dict[str, frozenset[Column]]:
        found: dict[str, set[Column]] = {}
        for view, table, column in self._connection.execute(query):
            found.setdefault(view, set()).add((table, column))
        return {view: frozenset(columns) for view, columns in found.items()}

    def _used(self, view: int, tree: str) -> Usage:
        """What the stored tree of a view reads; pg_depend leaves out the system's own tables."""
        tables, columns = set[str](), set[tuple[str, str]]()
        for found in _PERMISSIONS.finditer(tree):
            table = int(found[1])
            tables.add(self._names[table])
            numbers = [int(number) - _FIRST_COLUMN for number in found[2].split()]
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
    for _ in range(number * _ATTEMPTS_PER_VIEW_MAX):
        text, _columns = Grammar(random, is_postgres=True).query()
        try:
            connection.execute(f"CREATE VIEW v{len(made):03} AS {text}")
        except DatabaseError:
            continue  # the grammar does not know every rule
        made[f"v{len(made):03}"] = text
        if len(made) == number:
            return made
    raise AssertionError(f"the database took only {len(made)} views")
