"""The guide to PySpark shows its example as it is, and what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from waybill.spark import LISTENER_VERSION

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "examples" / "spark_pipeline.py"


def block(language: str) -> str:
    (found,) = re.finditer(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    return found[1]


def test_the_guide_quotes_the_example() -> None:
    assert block("python") in EXAMPLE.read_text(encoding="utf-8")


def test_the_example_prints_what_the_guide_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], check=True, capture_output=True, text=True, cwd=tmp_path, timeout=200
    )
    assert done.stdout == block("text")


def test_the_guide_names_the_listener_that_is_fetched() -> None:
    named = re.findall(r"openlineage-spark(?:_2\.1\d:)? ?(\d+\.\d+\.\d+)", GUIDE)
    assert len(named) >= 2
    assert set(named) == {LISTENER_VERSION}
