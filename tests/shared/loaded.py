"""The command `waybill` in forks of a process that has loaded it: a fraction of its time."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Protocol

_ROOMS = ("waybill.cli.commands", "waybill.exporter", "waybill.lineage", "waybill.marquez")
_OUTSIDE = (
    "duckdb",
    "pydantic.fields",
    "pydantic.type_adapter",
    "pyarrow.dataset",
    "rich.progress",
    "rich.table",
    "typer._adapters",
)
"""What commands load when they need it."""


class Loaded(Protocol):
    """Runs `waybill` with these words on a terminal of this name, without input; returns its exit code."""

    def __call__(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], terminal: str
    ) -> int: ...


@contextlib.contextmanager
def loaded_waybill() -> Iterator[Loaded]:
    """Have a process that has loaded all commands."""
    program = [sys.executable, __file__]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def call(words: Sequence[str], folder: Path, environment: Mapping[str, str], terminal: str) -> int:
            asked.write(json.dumps([words, str(folder), environment, terminal]) + "\n")
            asked.flush()
            return int(answers.readline())

        yield call


def _serve() -> None:
    """Do each call of a line of the input in a fork, and print its exit code."""
    from waybill.cli.app import main
    from waybill.transport.process import prepare

    prepare()
    for room in _ROOMS:
        for module in walk_packages(import_module(room).__path__, f"{room}."):
            import_module(module.name)
    for name in _OUTSIDE:
        import_module(name)
    output = sys.stdout
    assert isinstance(output, io.TextIOWrapper)
    output.reconfigure(line_buffering=True)  # as on a terminal
    for line in sys.stdin:
        words, folder, environment, terminal = json.loads(line)
        if (process := os.fork()) == 0:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = words
            for stream, path in enumerate((os.devnull, terminal, terminal)):
                os.dup2(os.open(path, os.O_RDWR | os.O_NOCTTY), stream)
            _run(main)
            return
        output.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")


def _run(main: Callable[[], None]) -> None:
    """Run a program, and end this process as Python would, but without freeing all that is loaded: 0.3 s."""
    try:
        main()
    except SystemExit as ended:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - it waits for threads
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
        os._exit(int(ended.code or 0))


if __name__ == "__main__":
    _serve()
