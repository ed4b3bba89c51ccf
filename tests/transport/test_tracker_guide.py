"""The Tracker's guide shows its example as it is, and what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "tracker.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "examples" / "tracker.py"


def block(language: str) -> str:
    (found,) = re.finditer(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return found[1]


def test_the_guide_quotes_the_example() -> None:
    assert block("python") in EXAMPLE.read_text(encoding="utf-8")


def test_the_example_prints_what_the_guide_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], check=True, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.stdout == block("text")
