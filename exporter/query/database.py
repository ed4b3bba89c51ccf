"""DuckDB, as questions use it: in memory, bounded, in UTC, and without the network.

A process has one database for questions, and each question a connection of its own to it, so all of them
together keep within one limit of memory. What does not fit is spilled to a folder for temporary files.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

FAILED: Final = (duckdb.Error, pa.ArrowException, OSError)
"""What a query raises; while its rows are read, Arrow's own errors bring what DuckDB says."""

_MEMORY: Final = "256MB"
_NAMED: Final = re.compile(r"\$(\w+)")
_THREADS: Final = 2
_DESCRIPTORS: Final = 3
_TOO_LITTLE_MEMORY: Final = "Out of Memory Error"


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection for one question; the caller closes it."""
    return _database(os.getpid()).cursor()


def connect_alone() -> duckdb.DuckDBPyConnection:
    """Open a database of its own for work in the background: once it is closed, all its memory is free."""
    return _opened(os.getpid(), threads=1)


@functools.cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process: a fork has none of the threads of the one that it comes with."""
    return _opened(process, threads=_THREADS)


def _opened(process: int, *, threads: int) -> duckdb.DuckDBPyConnection:
    _check_descriptors()
    opened = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": _MEMORY,
            "temp_directory": _spill_folder(process),
            "threads": str(threads),
            # Each of these reserves 70 MB of addresses, and files on a disk need none.
            "async_threads": "0",
        },
    )
    # DuckDB draws it on the standard output of `python -c` and of notebooks, whatever reads that.
    opened.execute("SET enable_progress_bar = false")
    return opened


def _check_descriptors() -> None:
    """Raise `OSError` if few files can be opened any more: DuckDB would end the process."""
    with contextlib.ExitStack() as stack:
        for _ in range(_DESCRIPTORS):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def _spill_folder(process: int) -> str:
    """A folder that DuckDB makes when it needs it, and removes; empty if there is no place for one."""
    try:
        return str(Path(tempfile.gettempdir(), f"waybill-{process}-{secrets.token_hex(4)}"))
    except OSError:
        return ""


def run(
    connection: duckdb.DuckDBPyConnection, query: str, params: Mapping[str, Any]
) -> duckdb.DuckDBPyRelation:
    """Run a query for Arrow's rows with those of the parameters that it names."""
    with _renewed_if_dead():
        return connection.sql(query, params=_named(query, params))


def execute(
    connection: duckdb.DuckDBPyConnection, statement: str, params: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Execute a statement with those of the parameters that it names; returns its rows, of which it has few.

    It takes half the time of `run`, which binds the statement twice.
    """
    with _renewed_if_dead():
        return connection.execute(statement, _named(statement, params)).fetchall()


@contextlib.contextmanager
def _renewed_if_dead() -> Iterator[None]:
    try:
        yield
    except duckdb.FatalException:
        # Once memory ran out at a bad moment, a database answers nothing: the next question has a new one.
        _database.cache_clear()
        raise


def _named(text: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in _NAMED.findall(text)}


def escaped(paths: Iterable[Path]) -> list[str]:
    """Paths as DuckDB reads them, to which ``*``, ``?`` and brackets would be patterns."""
    return [glob.escape(str(path)) for path in paths]


def is_short_of_memory(error: Exception) -> bool:
    """Whether a query failed since it needed more memory than there is."""
    return _TOO_LITTLE_MEMORY in str(error)
