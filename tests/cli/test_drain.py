"""`waybill drain`; that it leaves nothing behind is in tests/collector/test_drain.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Run


def test_a_home_without_a_journal_has_nothing_to_drain_and_gets_none(called: Run, home: Path) -> None:
    home.mkdir()
    (home / "agreement.lock").touch()
    done = called("drain", "--home", home)
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing to flush" in done.stderr
    assert [path.name for path in home.iterdir()] == ["agreement.lock"]
