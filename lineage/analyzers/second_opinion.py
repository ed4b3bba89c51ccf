"""The second opinion on an SQL text: that of the package `openlineage-sql`, where it is installed."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
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
    """The last parts of the names of the tables that it finds; None: it cannot say.

    It is asked in a process of its own, as some texts end the process, and others may hold it up.
    """
    ours, its = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which this process does not use
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, TIME_S_MAX)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            told = parser.parse([text], dialect=dialect)
            if told is not None and not told.errors:
                names = [table.name for table in (*told.in_tables, *told.out_tables)]
                with os.fdopen(its, "wb") as pipe:
                    pipe.write(msgspec.json.encode(names))
        os._exit(0)
    os.close(its)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    try:
        names = msgspec.json.decode(said, type=list[str])
    except msgspec.DecodeError:  # it ended before it had said something
        return None
    return {name.casefold().replace('"', "").replace("`", "").rpartition(".")[2] for name in names}
