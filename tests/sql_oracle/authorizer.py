"""What SQLite says that a statement reads and writes."""

from __future__ import annotations

from typing import Final

import apsw
from grammar import TABLES
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

    def ask(self, text: str, columns: tuple[str, ...], *, is_coarse: bool) -> Usage:
        """What a statement uses, which makes these columns.

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
                tables.add(name)
                if action == apsw.SQLITE_READ and column:
                    used.add((name, column))
            return apsw.SQLITE_OK

        self._connection.authorizer = authorize
        try:
            self._connection.execute(f"EXPLAIN {text}")
        finally:
            self._connection.authorizer = None
        return Usage(
            frozenset(tables),
            frozenset(used),
            tuple(one.strip('"').lower() for one in columns),
            is_coarse=is_coarse,
        )
