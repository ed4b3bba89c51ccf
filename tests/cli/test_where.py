"""`waybill where`; that it follows an entry to its end is in tests/collector/test_receipt_status.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.usefixtures("made_home")


def test_a_text_that_is_no_receipt_is_exit_code_2(called: Run, home: Path) -> None:
    done = called("where", "mine", "--home", home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine is not a receipt" in done.stderr


def test_a_receipt_of_another_home_is_exit_code_2(called: Run, home: Path) -> None:
    done = called("where", "5f0c6a1b2d3e-4711", "--home", home)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"waybill: {home} never had 5f0c6a1b2d3e-4711; give the home of ")
    assert Journal(home).last_seq() == 0
