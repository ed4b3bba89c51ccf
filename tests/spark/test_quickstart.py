"""The quick start with Spark, pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pasting import paste

PAGE = Path(__file__).parents[2] / "docs" / "quickstart-spark.md"


@pytest.mark.spark_truth
@pytest.mark.timeout(300)
def test_the_quick_start_with_spark_can_be_pasted(tmp_path: Path) -> None:
    for done in paste(PAGE.read_text(encoding="utf-8"), tmp_path):
        assert not done.code, f"{done.command}\n{done.printed}"
        assert done.is_as_shown, f"{done.command}\n{done.printed}"
