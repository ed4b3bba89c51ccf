"""`waybill rebuild`, over a home that the Tracker and `waybill flush` made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from waybill.lineage import find
from waybill.transport import Journal

if TYPE_CHECKING:
    from conftest import Kept, Run


def test_without_the_home_it_goes_by_the_rule_of_the_files(called: Run, kept: Kept, tmp_path: Path) -> None:
    Journal(other := tmp_path / "other").close()
    done = called("rebuild", "--from", "events", kept.home, "--to", tmp_path / "again", "--home", other)
    assert done.returncode == 0, done.stderr
    assert find(tmp_path / "again") == find(kept.home)
