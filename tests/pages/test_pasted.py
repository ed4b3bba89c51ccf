"""Pages whose commands are pasted, one after the other: each works, and prints what the page shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pasting import blocks, commands, paste

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FAILING = ("python orders.py",)
"""What a page pastes in order to see it fail."""
PASTED = ("README.md", "docs/quickstart.md", "docs/audit.md", "docs/openlineage.md", "docs/deltafi.md")


@pytest.mark.parametrize("page", PASTED)
def test_a_page_can_be_pasted(page: str, tmp_path: Path) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    shown = 0
    for done in paste(text, tmp_path):
        assert not done.code or done.command in FAILING, f"{done.command}\n{done.printed}"
        assert done.is_as_shown, f"{done.command}\n{done.printed}"
        shown += bool(done.shown)
    assert shown >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_installs_is_a_checkout_or_a_wheel_with_extras_that_there_are(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for extras in re.findall(r"(?: '\.|\.whl)\[([\w,]+)\]", block.text):
            assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
        assert not re.search(rf"pip install[^\n]* '?{PROJECT['name']}\b", block.text), "no index has it"


def test_the_page_about_installing_names_every_extra_and_the_wheel_that_is_built() -> None:
    text = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(PROJECT["optional-dependencies"])
    assert f"dist/{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}-py3-none-any.whl[" in text


def test_the_readme_is_one_screen_and_begins_with_commands_that_make_and_the_checks_have() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    demo, test = (command.partition("#")[0].strip() for command, _ in commands(blocks(text)[0].text))
    assert (demo, test) == ("make demo", "make test")
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    checks = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert test in checks.splitlines()
