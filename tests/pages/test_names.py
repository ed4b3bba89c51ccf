"""The names of Waybill's own that pages and docstrings quote: each is there."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_guides import PAGES, REPOSITORY

ROOMS = sorted(path for path in (REPOSITORY / "src" / "waybill").iterdir() if path.is_dir())
QUOTED = re.compile(r"(?:`|^::: )(waybill(?:\.\w+)+)(?=[(`]|$)", re.MULTILINE)
"""A name in backticks, or one that the reference of Python describes."""
NO_NAMES_OF_PYTHON = {
    "waybill.yaml": "a file",
    "waybill.service": "a unit of systemd",
    "waybill.evidence": "an annotation",
    **dict.fromkeys(("waybill.before", "waybill.format", "waybill.rule", "waybill.seal"), "in a footer"),
}


def docstrings(room: Path) -> Iterator[str]:
    """The docstrings of a room, those below a name's value, too."""
    for path in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    yield text


def groups() -> set[str]:
    """The groups of entry points, which other packages may fill."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    return set(re.findall(r'^\[project\.entry-points\."(.+)"\]$', text, re.MULTILINE))


@pytest.mark.parametrize("place", [*PAGES, *ROOMS], ids=lambda place: place.name)
def test_every_dotted_name_that_is_quoted_is_there(place: Path) -> None:
    texts = docstrings(place) if place.is_dir() else [place.read_text(encoding="utf-8")]
    gone = list[str]()
    for name in sorted({name for text in texts for name in QUOTED.findall(text)}):
        if name not in NO_NAMES_OF_PYTHON and name not in groups():
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                gone.append(name)
    assert gone == []
