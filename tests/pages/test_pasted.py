"""Pages whose commands are pasted, one after the other: each works, and prints what the page shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pasting import blocks, paste

REPOSITORY = Path(__file__).parents[2]
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


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_what_a_page_installs_has_the_extras_that_it_names(page: Path) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for block in blocks(page.read_text(encoding="utf-8")):
        for extras in re.findall(rf"{project['name']}\[([\w,]+)\]", block.text):
            assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_the_readme_is_one_screen_and_works_in_a_package_index() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert re.findall(r"\]\((?!https://)([^)]*)\)", text) == []
