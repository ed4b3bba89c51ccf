"""The table of endings in the documentation says what the tests hold, and no more."""

from __future__ import annotations

from pathlib import Path

from endings import table

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_page_has_the_table_of_these_tests() -> None:
    """After a change of them, write it anew: ``python tests/spark/truth/endings.py``."""
    assert table() in PAGE.read_text(encoding="utf-8")
