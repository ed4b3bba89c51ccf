"""The help, and the page that is made of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import typer
from http_page import html_page, http_page
from reference import collector_page, commands, reference, settings_page
from typer.testing import CliRunner

from waybill.cli.app import COMMANDS, app
from waybill.collector.openapi import description
from waybill.exporter.query import CONDITIONS
from waybill.transport.config import SETTINGS

if TYPE_CHECKING:
    from conftest import Run
    from typer.core import TyperGroup

    from waybill.cli.commanding import Deferred

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_the_help_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "write it anew: python docs/reference.py"


def test_the_page_of_the_settings_has_the_table_of_the_code() -> None:
    page = PAGE.with_name("settings.md").read_text(encoding="utf-8")
    assert page == settings_page(page), "write it anew: python docs/reference.py"
    assert f"\n| `{next(iter(SETTINGS))}` |" in page


def test_the_page_of_the_collector_has_the_conditions_of_the_code() -> None:
    page = PAGE.with_name("collector.md").read_text(encoding="utf-8")
    assert page == collector_page(page), "write it anew: python docs/reference.py"
    assert all(f"\n| `--{condition.option}` |" in page for condition in CONDITIONS)


def test_the_page_of_http_is_the_collectors_own_description() -> None:
    page = PAGE.with_name("http.md").read_text(encoding="utf-8")
    assert page == http_page(), "write it anew: python docs/reference.py"
    for path in description()["paths"]:
        assert f" {path}\n" in page
    served = PAGE.parents[1] / "collector" / "http.html"
    assert served.read_text(encoding="utf-8") == html_page(), "write it anew: python docs/reference.py"


def test_every_command_is_on_the_page_with_an_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(commands()) >= 11
    for name in commands():
        section = page.partition(f"## waybill {name}\n")[2].partition("\n## ")[0]
        assert re.search(rf"^ +(\w+=\w+ )*waybill {name}\b", section, re.MULTILINE), name


def test_a_page_that_a_help_names_is_there_and_the_help_says_where() -> None:
    help_of_all, _, of_commands = reference().partition("## waybill init")
    assert "docs/marquez.md are in Waybill's source repository" in " ".join(help_of_all.split())
    named = set(re.findall(r"docs/\S+\.md", of_commands))
    assert "docs/marquez.md" in named
    assert [path for path in named if not (PAGE.parents[1] / path).exists()] == []


def test_the_help_names_what_to_give() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<int range>|\[\[.*|\.\.\.\]\.\.\..*", page) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_the_first_line_of_its_own_help(name: str) -> None:
    listed = cast("TyperGroup", typer.main.get_command(app)).commands[name]
    own = cast("Deferred", listed).loaded
    assert " ".join(str(own.help).partition("\n\n")[0].split()) == listed.help
    assert own.get_short_help_str() == listed.get_short_help_str()


@pytest.mark.parametrize("asked", [("--help",), ("-h",), ("find", "--help")])
def test_help_is_exit_code_0(called: Run, asked: tuple[str, ...]) -> None:
    done = called(*asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: waybill")


def test_no_command_shows_the_help_and_is_exit_code_2(called: Run) -> None:
    done = called()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


def test_the_version_is_the_package_s(called: Run) -> None:
    done = called("--version")
    assert re.fullmatch(r"waybill \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_commands(shell: str) -> None:
    line = {"bash": ("COMP_WORDS", "waybill fl")}.get(shell, ("_TYPER_COMPLETE_ARGS", "waybill fl"))
    environment = {
        "_WAYBILL_COMPLETE": f"complete_{shell}",
        line[0]: line[1],
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    offered = CliRunner().invoke(app, [], prog_name="waybill", env=environment).stdout
    assert "flush" in offered


def test_the_module_is_the_same_command() -> None:
    command = [sys.executable, "-m", "waybill.cli", "--help"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.startswith("Usage: waybill ")) == (0, True)
