"""`waybill age-off`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from waybill.exporter import Compactor
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from conftest import Run


def test_a_dry_run_lists_what_each_system_would_lose_and_what_waits_for_its_export(
    called: Run, tmp_path: Path
) -> None:
    root = tmp_path / "old"
    records = [
        ProvenanceRecord(
            did=name,
            system_name=name,
            data_source="in",
            filename="a.csv",
            transforms=(),
            final_state=FinalState.COMPLETE,
            created=1_767_225_600_000,
            completed=1_767_225_600_000,
        )
        for name in ("core", "edge")
    ]
    RawWriter(root).write(RawName("a1", 1, 2), records)
    Compactor(root).compact()
    files = {path.parts[-3]: path for path in (root / "provenance/compacted").rglob("*.parquet")}
    for path in files.values():
        os.utime(path, (1_767_232_800, 1_767_232_800))
    edge = str(files["edge"].relative_to(root))
    options = ("--root", root, "--system-days", "core=1000000", "--only-exported", "--json")
    waiting = json.loads(called("age-off", *options, "--dry-run").stdout)
    assert (waiting["removed"], waiting["waiting"]) == ([], [edge])
    assert called("export", tmp_path / "there", "--create", "--root", root).returncode == 0
    assert json.loads(called("age-off", *options, "--dry-run").stdout)["removed"] == [edge]
    assert files["edge"].exists()
    assert json.loads(called("age-off", *options).stdout)["removed"] == [edge]
    assert [name for name, path in files.items() if path.exists()] == ["core"]


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
