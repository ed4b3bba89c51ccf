"""`waybill sql`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Kept, Run


def test_a_query_is_answered_in_json_and_in_lines_with_tabs(waybill: Run, kept: Kept, tmp_path: Path) -> None:
    # A folder that would be a pattern, were it not quoted.
    root = Path(shutil.copytree(kept.home / "provenance", tmp_path / "it's [a]*?" / "provenance")).parent
    query = "SELECT filename, annotations, data_sink FROM provenance WHERE data_sink = 'lake'"
    done = waybill("sql", query, "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "filename": "first.csv",
        "annotations": {"customer": "acme=1"},
        "data_sink": "lake",
    }
    lines = waybill("sql", query, "--root", root).stdout.splitlines()
    assert lines == ["filename\tannotations\tdata_sink", "first.csv\tcustomer=acme=1\tlake"]


def test_an_empty_root_has_an_empty_view_and_a_wrong_query_is_a_sentence(
    waybill: Run, tmp_path: Path
) -> None:
    done = waybill("sql", "SELECT count(*) AS n FROM provenance", "--root", tmp_path, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"n": 0})
    assert "nothing is compacted" in done.stderr
    wrong = waybill("sql", "SELECT nothing FROM provenance", "--root", tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "nothing" in wrong.stderr
    assert "Traceback" not in wrong.stderr
