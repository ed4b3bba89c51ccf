"""The table of endings in the documentation says what the tests hold, and no more."""

from __future__ import annotations

from endings import rows_held, rows_of_the_page


def test_each_row_of_the_page_has_a_test_and_each_test_its_row() -> None:
    rows = rows_of_the_page()
    assert len(rows) == len(set(rows)) > 40
    assert set(rows) == rows_held()
