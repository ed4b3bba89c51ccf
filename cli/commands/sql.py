"""`waybill sql`: query the records with SQL."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.exporter.names import LAYOUT
from waybill.transport import MissingExtraError, Settings, WaybillError
from waybill.transport.config import apply_command
from waybill.transport.counting import counted

from .. import console
from ..arguments import Csv, JsonLines, argument, flag, seconds
from ..home import agreed_settings, checked_root, existing_journal, files_into
from ..options import with_settings
from ..records import iso
from ..sql_views import CORRELATION_VIEWS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_FETCHED_ROWS: Final = 1_000
_TIMEOUT_S: Final = 600.0
_BOUNDS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "2GB",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_HARMLESS: Final = frozenset({"SELECT", "CREATE"})


@with_settings("home", "root")
def sql(
    settings: Settings,
    *,
    query: Annotated[str, argument("SQL", "A query over the view `provenance`.")],
    as_json: JsonLines = False,
    as_csv: Csv = False,
    unrestricted: Annotated[
        bool, flag("--unrestricted", "Let the query read and write any file that you may.")
    ] = False,
    timeout: Annotated[float, seconds("--timeout", "How long the query may take.", 1.0)] = _TIMEOUT_S,
) -> None:
    """Query the compacted files with SQL.

    DuckDB runs the query over the view `provenance`, which has the columns did, parent_did, system_name,
    data_source, filename, transforms, data_sink, final_state, created, completed and annotations, and the
    view `relations`, which has did, kind, value and time: what is known of files beside their records. Times
    are in UTC. The query may make views and tables of its own, which end with it. It reads nothing outside
    the root and changes no file, unless it is unrestricted. Needs the extra `sql`. Exit code 1 if a file
    cannot be read or is in quarantine. Lines on stderr count the accepted entries whose records are missing
    from the answer, because they are poison or not in compacted files yet.

    Examples:
      waybill sql "SELECT final_state, count(*) FROM provenance GROUP BY 1"
      waybill sql --json "SELECT * FROM provenance WHERE filename = 'orders.csv'"
      waybill sql "SELECT did FROM relations WHERE kind = 'input' AND value = 'lake/orders'"
      waybill sql --unrestricted "COPY (FROM provenance WHERE data_sink = 'lake') TO 'lake.parquet'"
    """
    from waybill.exporter.incomplete import Unread
    from waybill.exporter.keys import Keys

    agreed = agreed_settings(settings)
    root = checked_root(agreed)
    try:
        import duckdb
        import pytz  # type: ignore[import-untyped]  # noqa: F401 - DuckDB needs it to return times
    except ImportError:
        raise MissingExtraError("SQL", "sql") from None
    _tell_of_what_lacks(agreed, root)
    with duckdb.connect(config=_BOUNDS) as connection:
        try:
            _make_views(connection, root, query)
            statements = connection.extract_statements(query)
            if not statements:
                raise typer.BadParameter(
                    "the query is empty; give one such as SELECT * FROM provenance", param_hint="SQL"
                )
            if not unrestricted:
                _check_kinds(statements)
                _shut_in(connection, root)
            with _interrupted_after(connection, timeout):
                _show(connection.execute(query), as_json=as_json, as_csv=as_csv)
        except duckdb.InterruptException:
            raise WaybillError(
                f"the query took more than {timeout:g} seconds; ask for less, or give it more with --timeout"
            ) from None
        except duckdb.PermissionException as error:
            raise WaybillError(
                f"the query needs what is outside the root ({_fault_of_query(str(error))}); "
                "to allow that: --unrestricted"
            ) from None
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise typer.BadParameter(_fault_of_query(str(error)), param_hint="SQL") from None
        except duckdb.Error as error:
            # After an empty line, DuckDB points to the place of the error.
            reason = str(error).partition("\n\n")[0]
            if os.strerror(errno.EMFILE) in reason:
                raise WaybillError(
                    "DuckDB opens all compacted files at once, which exceeds the limit of open files; "
                    "raise the hard limit (`ulimit -Hn`), or use `waybill find`"
                ) from None
            _raise_damaged(root)
            raise WaybillError(
                f"the query failed ({reason}); correct it, or if a file may be damaged, run `waybill verify`"
            ) from None
    Keys().compare(root)
    unread = Unread()
    unread.add_known(root)
    unread.raise_any()


def _check_kinds(statements: Sequence[duckdb.Statement]) -> None:
    """Refuse statements that write files, or may wrap one that does."""
    for statement in statements:
        if statement.type.name not in _HARMLESS:
            raise typer.BadParameter(
                f"{statement.type.name} is more than a question; to allow that: --unrestricted",
                param_hint="SQL",
            )


def _shut_in(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Let queries reach nothing outside the root, for good."""
    connection.execute("SET allowed_directories = $folders", {"folders": [str(root), glob.escape(str(root))]})
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")


@contextlib.contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Iterator[None]:
    timer = threading.Timer(timeout_s, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell_of_what_lacks(agreed: Settings, root: Path) -> None:
    """Say on stderr which entries the answer lacks: those that are poison, or in no compacted file yet."""
    from waybill.exporter.directory import raw_files, raw_hours
    from waybill.exporter.query import poison_note

    raws = sum(len(raw_files(root, hour)) for hour in raw_hours(root))
    with existing_journal(agreed, needed=False, to_read=True) as journal:
        if journal is not None and (note := poison_note(journal)) is not None:
            console.note(note)
        is_whole_home = journal is not None and files_into(journal, root)
        entries = journal.waiting(journal.cursor(LAYOUT)).entries if journal and is_whole_home else 0
    if not entries + raws:
        return
    found = [counted(entries, "entry", "entries")] * bool(entries) + [counted(raws, "raw file")] * bool(raws)
    verb = "is" if entries + raws == 1 else "are"
    says = f"{' and '.join(found)} {verb} not in compacted files yet, so the answer lacks their records"
    if agreed.provenance_enabled or not is_whole_home:
        todo = ["flush", "--home", str(agreed.home)] if is_whole_home else ["compact", "--root", str(root)]
        console.note(f"{says}: run `waybill {shlex.join(todo)}`")
        return
    turned_on = apply_command(agreed.home, {"provenance_enabled": True})
    console.note(f"{says}: provenance_enabled is off; to turn it on: `{turned_on}`")


def _fault_of_query(message: str) -> str:
    """The fault of a query and its place; DuckDB puts the kind of error first, and draws the place."""
    said, _, drawing = message.partition("\n\n")
    line, _, pointer = drawing.partition("\n")
    head = re.match(r"LINE (\d+): ", line)
    at = (
        f", in line {head[1]}, column {pointer.index('^') - head.end() + 1}"
        if head and "^" in pointer
        else ""
    )
    wrong = " ".join(re.sub(r"^\w+ Error: ", "", said).split())
    return f"{wrong}{at}"


def _files(root: Path) -> list[Path]:
    """The files to query, listed because a pattern would skip a folder that cannot be read."""
    from waybill.exporter.directory import files_of
    from waybill.exporter.names import COMPACTED, LATE

    return [path for kind in (COMPACTED, LATE) for files in files_of(root / kind).values() for path in files]


def _raise_damaged(root: Path) -> None:
    """Raise an `IncompleteError` if files cannot be opened; DuckDB names only one, in its own words."""
    from waybill.exporter import parquet
    from waybill.exporter.incomplete import Unread

    unread = Unread()
    for path in _files(root):
        try:
            parquet.open_file(path)
        except parquet.DAMAGED as error:
            unread.add(path, error, root)
    unread.raise_any()


def _make_views(connection: duckdb.DuckDBPyConnection, root: Path, query: str) -> None:
    from waybill.exporter.relations import RELATIONS_SCHEMA, relation_files
    from waybill.facets.arrow import SCHEMA

    connection.execute("SET TimeZone = 'UTC'")
    paths = _files(root)
    if not paths:
        console.note(f"no files are compacted below {root} yet")
    _make_view(connection, "provenance", paths, SCHEMA)
    _make_view(connection, "relations", [path for _, path in relation_files(root)], RELATIONS_SCHEMA)
    if "correlation_" in query.lower():  # they open files when they are made
        connection.execute(CORRELATION_VIEWS)


def _make_view(
    connection: duckdb.DuckDBPyConnection, name: str, paths: Sequence[Path], schema: pa.Schema
) -> None:
    if not paths:
        connection.register(name, schema.empty_table())
        return
    listed = ", ".join("'" + glob.escape(str(path)).replace("'", "''") + "'" for path in paths)
    connection.execute(f"CREATE VIEW {name} AS FROM read_parquet([{listed}], hive_partitioning = false)")


def _show(answer: duckdb.DuckDBPyConnection, *, as_json: bool, as_csv: bool) -> None:
    names = [column[0] for column in answer.description or ()]
    if as_json:
        for row in _rows(answer):
            console.json({name: _value(cell) for name, cell in zip(names, row, strict=True)})
    else:
        rows = ([_text(_value(cell)) for cell in row] for row in _rows(answer))
        console.table(names, rows, as_csv=as_csv)


def _rows(answer: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    while rows := answer.fetchmany(_FETCHED_ROWS):
        yield from rows


def _value(value: object) -> object:
    """A cell as a JSON value, with every instant as `iso` writes it."""
    if isinstance(value, dict):
        return {key: _value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(one) for one in value]
    if isinstance(value, datetime):
        return iso(int(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1_000))
    return value


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list):
        return " > ".join(map(str, value))
    return "" if value is None else str(value)
