"""`waybill age-off`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Run


def test_archived_entries_are_removed_only_on_request(called: Run, tmp_path: Path) -> None:
    old = tmp_path / "events/20260101/00/a1-1-2.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"entries")
    options = ("--root", tmp_path, "--json")
    assert json.loads(called("age-off", *options).stdout)["removed"] == []
    asked = (*options, "--archive-days", "30")
    assert json.loads(called("age-off", *asked, "--only-exported").stdout)["waiting"] != []
    assert json.loads(called("age-off", *asked, "--dry-run").stdout)["removed"] != []
    assert old.exists()
    done = json.loads(called("age-off", *asked).stdout)
    assert (done["removed"], done["size_bytes"]) == ([str(old.relative_to(tmp_path))], 7)
    assert not old.exists()
