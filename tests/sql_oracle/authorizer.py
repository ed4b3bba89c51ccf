"""What SQLite says that a statement reads and writes."""

from __future__ import annotations

from typing import Final

import apsw
from grammar import TABLES, Statement
from judging import Usage

_WRITES: Final = {apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE}


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
            if name in self.columns and (action in _WRITES or action == apsw.SQLITE_READ):
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
