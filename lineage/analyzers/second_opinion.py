"""The second opinion on an SQL text: that of the package `openlineage-sql`, where it is installed."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import warnings
from importlib import import_module
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .reading_sql import Reading

TIME_S_MAX: Final = 1.0
_DIALECTS: Final = {"tsql": "mssql", "spark": "databricks"}


def dispute(text: str, dialect: str | None, reading: Reading) -> list[str]:
    """What it reads otherwise, beside what it is known not to follow; empty: nothing, or nobody can say."""
    try:
        parser: Any = import_module("openlineage_sql")
    except Exception:  # noqa: BLE001 - it is not there, or damaged
        return []
    theirs = _ask(parser, text, _DIALECTS.get(dialect or "", dialect))
    ours = {name[-1].casefold() for name in (*reading.inputs, *reading.outputs)}
    differing = (ours ^ (ours if theirs is None else theirs)) - {name.casefold() for name in reading.others}
    return [f"openlineage-sql reads other tables: {', '.join(sorted(differing))}"] if differing else []


def _ask(parser: Any, text: str, dialect: str | None) -> set[str] | None:  # noqa: ANN401 - it has no types
    """The last parts of the names of the tables that it finds; None: it cannot say."""
    child, pipe = _start(parser)
    try:
        pipe.send_bytes(msgspec.json.encode((text, dialect)))
        names = msgspec.json.decode(pipe.recv_bytes(), type=list[str] | None)
    except (OSError, EOFError):  # the process has ended; the next text gets another one
        _start.cache_clear()
        pipe.close()
        os.waitpid(child, 0)
        return None
    if names is None:
        return None
    return {name.casefold().replace('"', "").replace("`", "").rpartition(".")[2] for name in names}


@functools.lru_cache(maxsize=1)
def _start(parser: Any) -> tuple[int, Connection]:  # noqa: ANN401 - as above
    """Start the process that asks the package, as some texts end the process, and others may hold it up.

    It ends when its pipe is closed.
    """
    ours, its = Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which this process does not use
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            ours.close()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            while True:
                text, dialect = msgspec.json.decode(its.recv_bytes(), type=tuple[str, str | None])
                signal.setitimer(signal.ITIMER_REAL, TIME_S_MAX)
                told = parser.parse([text], dialect=dialect)
                names = [table.name for table in (*told.in_tables, *told.out_tables)] if told else []
                signal.setitimer(signal.ITIMER_REAL, 0)
                its.send_bytes(msgspec.json.encode(names if told and not told.errors else None))
        os._exit(0)
    its.close()
    return child, ours
