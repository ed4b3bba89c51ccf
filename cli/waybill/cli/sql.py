"""`waybill sql`: any question, in SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.home import as_agreed, existing_journal
from waybill.cli.options import with_settings
from waybill.transport import Settings, WaybillError

if TYPE_CHECKING:
    import duckdb

_FETCHED: Final = 1_000


@with_settings("home", "root")
def sql(
    settings: Settings,
    *,
    query: Annotated[str, typer.Argument(metavar="SQL", help="A query of the view `provenance`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Ask the compacted files with SQL.

    DuckDB runs the query over the view `provenance`, which has the columns did, parent_did, system_name,
    data_source, filename, transforms, data_sink, final_state, created, completed and annotations. Times are
    in UTC. Needs the extra `sql`.

    Examples:

    \b
      waybill sql "SELECT final_state, count(*) FROM provenance GROUP BY 1"
      waybill sql --json "SELECT * FROM provenance WHERE filename = 'orders.csv'"
    """
    with existing_journal(settings) as journal:
        root = as_agreed(settings, journal).root
    try:
        import duckdb
    except ImportError:
        raise WaybillError("SQL needs the extra `sql`: pip install 'waybill-lineage[sql]'") from None
    with duckdb.connect() as connection:
        _make_view(connection, root)
        try:
            answer = connection.execute(query)
            _show(answer, as_json=as_json)
        except duckdb.Error as error:
            raise WaybillError(
                f"{error}; correct the query, or see `waybill verify` for damaged files"
            ) from None


def _make_view(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    folders = [root / "provenance" / kind for kind in ("compacted", "late")]
    globs = [f"{_glob(folder)}/*/*/*.parquet" for folder in folders if any(folder.glob("*/*/*.parquet"))]
    if globs:
        listed = ", ".join("'" + glob.replace("'", "''") + "'" for glob in globs)
        connection.execute(
            f"CREATE VIEW provenance AS FROM read_parquet([{listed}], hive_partitioning = false)"
        )
        return
    console.note(f"nothing is compacted below {root} yet; `waybill flush` makes what was kept visible")
    connection.execute(f"CREATE TABLE provenance ({_COLUMNS})")


def _glob(folder: Path) -> str:
    """A path that stands for itself where patterns are read."""
    return re.sub(r"([*?\[])", r"[\1]", str(folder))


def _show(answer: duckdb.DuckDBPyConnection, *, as_json: bool) -> None:
    names = [column[0] for column in answer.description or ()]
    if as_json:
        while rows := answer.fetchmany(_FETCHED):
            for row in rows:
                console.json(dict(zip(names, row, strict=True)))
        return
    console.table(names, ([_text(cell) for cell in row] for row in answer.fetchall()))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list):
        return " > ".join(map(str, value))
    return "" if value is None else str(value)


_COLUMNS: Final = (
    "did VARCHAR, parent_did VARCHAR, system_name VARCHAR, data_source VARCHAR, filename VARCHAR, "
    "transforms VARCHAR[], data_sink VARCHAR, final_state VARCHAR, created TIMESTAMPTZ, "
    "completed TIMESTAMPTZ, annotations MAP(VARCHAR, VARCHAR)"
)
