"""Statements against SQLite's authorizer, which is asked for each table and column that a statement uses."""

from __future__ import annotations

from random import Random

import apsw
import hypothesis
import pytest
from grammar import TABLES, Grammar, Statement
from hypothesis import strategies
from judging import Case, Tally, Usage, ask

ALL = 3_000
TOLD_MAX = 0.1
WRITES = {apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE}


class Authorizer:
    """A database with the tables of the grammar, which is asked and never changed.

    Attributes:
        columns: those of each table with their types, by its whole name.
    """

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        for table, columns in TABLES.items():
            self._connection.execute(f"CREATE TABLE {table} ({', '.join(f'{one} int' for one in columns)})")
        self.columns = {
            self.name(table): {one.strip('"'): "int" for one in columns} for table, columns in TABLES.items()
        }

    def name(self, table: str) -> str:
        """The whole name of a table of the grammar."""
        return "main." + table.strip('"')

    def ask(self, statement: Statement) -> Usage:
        """What a statement uses.

        Raises:
            apsw.SQLError: it is not valid.
        """
        tables, used = set[str](), set[tuple[str, str]]()

        def authorize(
            action: int, table: str | None, column: str | None, schema: str | None, _: str | None
        ) -> int:
            # A table of which no column is read comes without its schema, and so do CTEs.
            name = f"{schema or 'main'}.{table}"
            if name in self.columns and (action in WRITES or action == apsw.SQLITE_READ):
                tables.add(name.lower())
                if action == apsw.SQLITE_READ and column:
                    used.add((name.lower(), column.lower()))
            return apsw.SQLITE_OK

        self._connection.authorizer = authorize
        try:
            self._connection.execute(f"EXPLAIN {statement.text}")
        finally:
            self._connection.authorizer = None
        columns = tuple(one.strip('"').lower() for one in statement.columns)
        return Usage(frozenset(tables), frozenset(used), columns, is_coarse=statement.is_coarse)


AUTHORIZER = Authorizer()


def judge(random: Random) -> list[Case]:
    """Make a statement, and ask both sides: an analyzer that knows all columns, and one that knows none."""
    statement = Grammar(random, is_postgres=False).statement()
    try:
        truth = AUTHORIZER.ask(statement)
    except apsw.SQLError:
        hypothesis.reject()  # the grammar does not know every rule
    written = statement.written and AUTHORIZER.name(statement.written)
    return [
        Case(statement.text, truth, ask(statement.text, "sqlite", "main", columns, written))
        for columns in (AUTHORIZER.columns, {})
    ]


@hypothesis.given(strategies.randoms(use_true_random=False))
def test_a_sample_of_statements_uses_what_the_database_says(random: Random) -> None:
    for case in judge(random):
        assert not case.faults, str(case)


@pytest.mark.exhaustive
def test_statements_use_what_the_database_says(capsys: pytest.CaptureFixture[str]) -> None:
    with_columns, without = Tally(), Tally()

    @hypothesis.settings(max_examples=ALL)
    @hypothesis.given(strategies.randoms(use_true_random=False))
    def collect(random: Random) -> None:
        for tally, case in zip((with_columns, without), judge(random), strict=True):
            tally.add(case)

    collect()
    with capsys.disabled():
        print(f"\nstatements: {with_columns}\nthe same, no columns known: {without}")  # noqa: T201
    assert not with_columns.wrong, str(with_columns)
    assert not without.wrong, str(without)
    assert with_columns.told < with_columns.texts * TOLD_MAX
