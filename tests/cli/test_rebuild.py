"""`waybill rebuild`, over a home that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.lineage import find
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    import pytest
    from conftest import Kept, Run


def lines_of(home: Path, path: Path) -> Path:
    journal = Journal(home)
    bodies = [entry.body for entry in journal.read(0) if entry.kind is Kind.OPENLINEAGE]
    journal.close()
    path.write_bytes(b"\n".join(bodies))
    return path


def test_files_need_no_home_that_only_the_environment_names(
    called: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("WAYBILL_HOME", str(nowhere))
    source = (
        "rebuild",
        "--from",
        "jsonl",
        lines_of(kept.home, tmp_path / "lines"),
        "--to",
        tmp_path / "again",
    )
    done = called(*source, "--json")
    assert (done.returncode, json.loads(done.stdout)["records"], nowhere.exists()) == (0, 4, False)


def test_without_the_home_it_goes_by_the_rule_of_the_files(called: Run, kept: Kept, tmp_path: Path) -> None:
    Journal(other := tmp_path / "other").close()
    done = called("rebuild", "--from", "events", kept.home, "--to", tmp_path / "again", "--home", other)
    assert done.returncode == 0, done.stderr
    assert find(tmp_path / "again") == find(kept.home)
