"""The command line in plain words: the help's parts, errors about values, and what a shell completes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
import typer
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.cli.records import as_plain
from waybill.transport import MissingExtraError, NotFoundError, Settings, SettingsError, WaybillError
from waybill.transport.config import SETTINGS

if TYPE_CHECKING:
    from conftest import Kept, Run
    from typer.core import TyperCommand, TyperGroup

    from waybill.cli.commanding import Deferred

OF_A_LIBRARY: Final = re.compile(
    r"Input should|Value error|validation|unable to parse|pydantic|Expected `|enum value|Input data|malformed"
    r"|Object (missing|contains)|at `\$|Errno|Schema\b|Traceback|Overflow",
    re.IGNORECASE,
)


def every_command() -> list[tuple[str, TyperCommand]]:
    found: list[tuple[str, Any]] = []
    for name, listed in cast("TyperGroup", typer.main.get_command(app)).commands.items():
        own = cast("Deferred", listed).loaded
        parts = getattr(own, "commands", None)
        found += [(f"{name} {part}", one) for part, one in parts.items()] if parts else [(name, own)]
    return found


@pytest.mark.parametrize(
    ("name", "command"), every_command(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_wording_of_a_library_is_shown(name: str, command: TyperCommand) -> None:
    said = []
    for param in command.params:
        if param.param_type_name == "option" and not getattr(param, "is_flag", False):
            for value in ("nonsense", "-99999999", "99999999"):
                try:
                    command.make_context(name, [param.opts[0], value])
                except typer.BadParameter as error:
                    said.append(error.format_message())
    assert [one for one in said if OF_A_LIBRARY.search(one)] == []


@pytest.mark.parametrize("name", SETTINGS)
def test_no_wording_of_a_library_is_shown_of_a_setting(name: str, tmp_path: Path) -> None:
    said = []
    for value in (
        "nonsense",
        "[",
        '{"a": 1}',
        '[{"backend": "x"}]',
        "-1",
        "9" * 25,
        "nan",
        "\0",
        ["x"],
        {"a": 1},
    ):
        try:
            Settings.load({name: value}, env={}, cwd=tmp_path)
        except SettingsError as error:
            said.append(str(error))
    assert [one for one in said if OF_A_LIBRARY.search(one)] == []


def test_settings_are_a_part_of_the_help_and_many_are_only_named(called: Run) -> None:
    few, many = (called(name, "--help").stdout.partition("\nSettings:\n")[2] for name in ("find", "flush"))
    assert "journal and the runner's log" in few
    assert "journal and the runner's log" not in many
    assert "--journal-retain-days DAYS, " in " ".join(many.split())
    assert "`waybill settings --help` explains them" in " ".join(many.split())


def completed(line: str) -> list[str]:
    """What a shell offers for the last word of a line."""
    environment = {
        "_WAYBILL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    return CliRunner().invoke(app, [], prog_name="waybill", env=environment).stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("flush --durability p", {"power", "process"}),
        ("find --state e", {"ERROR"}),
        ("find --state Er", {"ERROR"}),
        ("find --state ER", {"ERROR"}),
        ("close-stale --as C", {"CANCELLED"}),
        ("rebuild --from e", {"events"}),
        ("verify --from j", {"journal", "jsonl"}),
        ("dead-letters list --backend m", {"marquez"}),
        ("poison list --home {home} --projection l", {"layout"}),
        ("find --home {home} --system t", {"tests"}),
        ("compact --engine s", {"spark"}),
    ],
)
def test_a_shell_completes_values(kept: Kept, words: str, offered: set[str]) -> None:
    found = completed(f"waybill {words.format(home=kept.home)}")
    assert {one.upper() for one in found} == {one.upper() for one in offered}


def test_bash_completes_a_state_however_it_is_typed(script: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    # As bash does at a tab; what it offers has to begin with what was typed.
    at_tab = (
        f"source <({script} --show-completion bash)\n"
        "for typed in e Er; do\n"
        "COMP_WORDS=(waybill find --state $typed) COMP_CWORD=3\n"
        f"_waybill_completion {script}\n"
        'echo "${COMPREPLY[@]}"\n'
        "done"
    )
    done = subprocess.run([bash, "-c", at_tab], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("error\nError\n", "")


def test_a_command_without_json_passes_the_output_of_another_program_through() -> None:
    options = {
        name: {one for param in command.params for one in param.opts} for name, command in every_command()
    }
    assert {name for name, given in options.items() if "--json" not in given} == {
        "run",
        "spark submit",
        "dev logs",
        "mcp",  # its output is a protocol of JSON
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WaybillError("it failed; do it again"), 1),
        (SettingsError("home", "x", "a file", "give a folder"), 2),
        (NotFoundError("it is not there; give another"), 2),
        (MissingExtraError("SQL", "sql"), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_another_command_line_mends_is_exit_code_2_and_others_are_1(
    called: Run, monkeypatch: pytest.MonkeyPatch, home: Path, error: WaybillError, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("waybill.cli.commands.flush.check_home", fail)
    done = called("flush", "--home", home)
    assert (done.returncode, done.stderr) == (code, f"waybill: {error}\n")


def test_annotations_whose_keys_end_like_instants_are_shown_as_they_are() -> None:
    plain = as_plain({"began_ms": 0, "took_ms": "12", "annotations": {"took_ms": "12", "created": "x"}})
    assert plain == {
        "began": "1970-01-01T00:00:00.000Z",
        "took_ms": "12",
        "annotations": {"took_ms": "12", "created": "x"},
    }
