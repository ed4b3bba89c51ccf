"""The public functions of `waybill.exporter` take a root as a path or as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from layouts import HOUR_MS, START_MS, Layout, event, record

from waybill.exporter import (
    Compactor,
    Query,
    Wanted,
    age_off,
    age_off_archive,
    check,
    compare,
    explain,
    export,
    open_destination,
    rebuild,
    repair,
)
from waybill.exporter.query import scan
from waybill.exporter.sources import LinesSource
from waybill.lineage import find

if TYPE_CHECKING:
    from pathlib import Path


def test_a_root_may_be_given_as_text(layout: Layout, tmp_path: Path) -> None:
    layout.write(record("a"), record("b", at_ms=HOUR_MS))
    root, there, again = str(layout.root), tmp_path / "there", tmp_path / "again"
    Compactor(root).compact()
    assert len(layout.compacted()) == 2
    assert [one.did for one in find(root)] == ["b", "a"]
    assert [table.num_rows for table in scan(root, Query(did="a"))] == [1]
    assert [file.findings for file in check(root)] == [(), ()]
    assert len(export(root, open_destination(there)).copied) == 2
    assert list(compare(root, str(there))) == []
    (tmp_path / "events.json").write_bytes(event("r", "COMPLETE", 5))
    source, wanted = LinesSource((tmp_path / "events.json",)), Wanted(system_name="edge")
    assert rebuild(source, str(again), wanted).records == 1
    assert explain("r", [source], str(again), wanted).is_proven
    assert repair(root, wanted, dry_run=True).left == ()
    now_ms = START_MS + 2 * HOUR_MS + time.time_ns() // 1_000_000
    assert len(age_off(root, days=1, now_ms=now_ms).removed) == 2
    assert age_off_archive(root, days=1, now_ms=now_ms).removed == ()
