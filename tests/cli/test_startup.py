"""What a command loads; how long it takes depends on the machine, is measured by benchmarks/startup.py."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from waybill.cli.home import open_answers
from waybill.exporter import Query
from waybill.transport import Journal, Settings
from waybill.transport.config import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Kept

PROGRAM = """if True:
    import atexit, sys
    atexit.register(lambda: print("LOADED", *sys.modules))
    from waybill.cli import main
    sys.argv[0] = "waybill"
    main()
"""


def loaded_by(*arguments: object) -> tuple[str, set[str]]:
    """What a command prints, and every module that its process has loaded at its end."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, _, modules = done.stdout.rpartition("LOADED ")
    return said, set(modules.split())


@pytest.mark.parametrize(
    ("arguments", "commands"), [(["--help"], set()), (["keys", "add", "-h"], {"waybill.cli.commands.keys"})]
)
def test_a_command_line_loads_only_the_command_that_it_names(
    arguments: list[str], commands: set[str]
) -> None:
    said, loaded = loaded_by(*arguments)
    assert said.startswith("Usage: waybill")
    assert {one for one in loaded if one.startswith("waybill.cli.commands.")} == commands


def test_find_loads_neither_numpy_nor_pandas_nor_what_delivers(kept: Kept) -> None:
    pytest.importorskip("numpy")
    wanted = ("--state", "ERROR", "--filename", "sec*", "--since", "2d", "--system", "tests")
    said, loaded = loaded_by("find", "--home", kept.home, *wanted, "--annotation", "errorCause=no header")
    assert "second.csv" in said
    assert "pyarrow" in loaded
    assert {"numpy", "pandas", "requests", "waybill.marquez", "waybill.exporter.sources"} & loaded == set()


def test_texts_and_what_is_not_given_load_no_library_that_checks_values(kept: Kept) -> None:
    wanted = ("--home", kept.home, "--data-sink", "lake", "--tz", "local")
    _, loaded = loaded_by("find", *wanted)
    assert "pydantic" not in loaded
    for arguments in (["--help"], ["--version"], ["status", "--home", kept.home]):
        _, loaded = loaded_by(*arguments)
        assert "pydantic" not in loaded, arguments


def test_a_question_opens_the_journal_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Counted(Journal):
        def __init__(self, home: Path, *, to_read: bool = False) -> None:
            opened.append(home)
            super().__init__(home, to_read=to_read)

    monkeypatch.setattr("waybill.cli.home.Journal", Counted)
    settings = Settings.load({"home": kept.home}, origin=OPTIONS)
    with open_answers(settings, None) as (answers, _, _):
        assert sum(table.num_rows for table in answers.tables(Query()))
    assert opened == [kept.home]


@pytest.mark.usefixtures("made_home")
def test_a_drain_needs_none_of_the_packages_that_serve(home: Path) -> None:
    _, loaded = loaded_by("drain", "--home", home)
    assert "waybill.collector.server.stopping" in loaded
    assert {"uvloop", "granian"} & loaded == set()
