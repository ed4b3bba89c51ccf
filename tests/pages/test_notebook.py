"""The notebook among the examples: its cells run, and give the outputs that it shows."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lineage.ipynb"
VARIABLE = re.compile(
    r"\d+ms|\d+s(?: \d+ms)?|(?:x|width)=\"[\d.]+\"| d=\"M[^\"]+\"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""The parts of an output that no two runs have in common: durations, the widths that these give, dids."""


def run(source: str, names: dict[str, Any]) -> dict[str, str]:
    """What a cell shows, by media type: the value of its last expression, as IPython shows it."""
    module = ast.parse(source)
    *before, last = module.body
    if isinstance(last, ast.Expr):
        module.body = before
    exec(compile(module, "cell", "exec"), names)  # noqa: S102 - our own notebook
    if not isinstance(last, ast.Expr):
        return {}
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - the same
    drawn = {"image/svg+xml": value._repr_svg_()} if hasattr(value, "_repr_svg_") else {}
    return {**drawn, "text/plain": repr(value)}


def shown(cell: dict[str, Any]) -> dict[str, str]:
    """The output that the notebook has of a cell."""
    return {media: "".join(text) for output in cell["outputs"] for media, text in output["data"].items()}


def test_the_cells_give_what_the_notebook_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setenv("WAYBILL_RUNNER", "none")
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if shown(cell)]
    names: dict[str, Any] = {}
    for cell in cells:
        found = run("".join(cell["source"]), names)
        same = [{key: VARIABLE.sub("…", text) for key, text in one.items()} for one in (found, shown(cell))]
        assert same[0] == same[1]
