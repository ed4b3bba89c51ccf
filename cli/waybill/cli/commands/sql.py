"""`waybill sql`: query the records with SQL."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonLines
from waybill.cli.home import agreed_settings, checked_root, tell_of_poison
from waybill.cli.options import with_settings
from waybill.transport import Settings, WaybillError

if TYPE_CHECKING:
    import duckdb

_FETCHED_ROWS: Final = 1_000


@with_settings("home", "root")
def sql(
    settings: Settings,
    *,
    query: Annotated[str, typer.Argument(metavar="SQL", help="A query of the view `provenance`.")],
    as_json: JsonLines = False,
) -> None:
    """Query the compacted files with SQL.

    DuckDB runs the query over the view `provenance`, which has the columns did, parent_did, system_name,
    data_source, filename, transforms, data_sink, final_state, created, completed and annotations. Times are
    in UTC. Needs the extra `sql`. Exit code 1 when a file cannot be read, or is in quarantine. A line on
    stderr tells of accepted entries that are poison, whose records are in no answer.

    Examples:

    \b
      waybill sql "SELECT final_state, count(*) FROM provenance GROUP BY 1"
      waybill sql --json "SELECT * FROM provenance WHERE filename = 'orders.csv'"
    """
    from waybill.exporter.incomplete import Unread

    root = checked_root(agreed_settings(settings))
    try:
        import duckdb
    except ImportError:
        raise WaybillError("SQL needs the extra `sql`: pip install 'waybill-lineage[sql]'") from None
    tell_of_poison(settings)
    with duckdb.connect() as connection:
        try:
            _make_view(connection, root)
            if not connection.extract_statements(query):
                raise WaybillError("the query is empty; give one, such as 'SELECT * FROM provenance LIMIT 9'")
            _show(connection.execute(query), as_json=as_json)
        except duckdb.Error as error:
            # After an empty line DuckDB draws the place of the error.
            reason = str(error).partition("\n\n")[0]
            if os.strerror(errno.EMFILE) in reason:
                raise WaybillError(
                    "DuckDB opens all compacted files at once, and the system does not let a program open so "
                    "many; raise the hard limit (`ulimit -Hn`), or ask with `waybill find`"
                ) from None
            raise WaybillError(
                f"the query cannot be answered ({reason}); correct it, or if a file is damaged, see "
                "`waybill verify`"
            ) from None
    unread = Unread()
    unread.add_quarantined(root)
    unread.raise_any()


def _make_view(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    from waybill.exporter.directory import files_of
    from waybill.exporter.names import COMPACTED, LATE
    from waybill.facets.arrow import SCHEMA

    connection.execute("SET TimeZone = 'UTC'")
    # A pattern would pass over a folder that cannot be read.
    paths = [path for kind in (COMPACTED, LATE) for files in files_of(root / kind).values() for path in files]
    if paths:
        listed = ", ".join("'" + glob.escape(str(path)).replace("'", "''") + "'" for path in paths)
        connection.execute(
            f"CREATE VIEW provenance AS FROM read_parquet([{listed}], hive_partitioning = false)"
        )
        return
    console.note(f"nothing is compacted below {root} yet; `waybill flush` makes the latest events visible")
    connection.register("provenance", SCHEMA.empty_table())


def _show(answer: duckdb.DuckDBPyConnection, *, as_json: bool) -> None:
    names = [column[0] for column in answer.description or ()]
    if as_json:
        for row in _rows(answer):
            console.json(dict(zip(names, row, strict=True)))
    else:
        console.table(names, ([_text(cell) for cell in row] for row in _rows(answer)))


def _rows(answer: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    while rows := answer.fetchmany(_FETCHED_ROWS):
        yield from rows


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list):
        return " > ".join(map(str, value))
    return "" if value is None else str(value)
