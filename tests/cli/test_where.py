"""`waybill where`; that it follows an entry to its end is in tests/collector/test_receipt_status.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Run


def test_a_text_that_is_no_receipt_is_exit_code_2(waybill: Run, home: Path) -> None:
    done = waybill("where", "mine", "--home", home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine is no receipt" in done.stderr


def test_a_receipt_of_another_home_is_exit_code_1(waybill: Run, home: Path) -> None:
    done = waybill("where", "5f0c6a1b2d3e-4711", "--home", home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"waybill: {home} never had 5f0c6a1b2d3e-4711; give the home of ")
    assert not home.exists()
