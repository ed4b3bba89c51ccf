"""`waybill drain`: the end of an instance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from served import event, record

from waybill.lineage import find

if TYPE_CHECKING:
    from conftest import Start


def test_a_drain_says_what_is_left_and_its_exit_code_does(start: Start, home: Path) -> None:
    nowhere = ("--marquez-url", "http://127.0.0.1:1")
    collector = start("--runner", "none", *nowhere)
    assert collector.post("/api/v1/lineage", event()).status == 201
    command = [str(Path(sys.executable).parent / "waybill"), "drain", "--home", str(home), "--json", *nowhere]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert collector.process.wait(10) == 0
    report = json.loads(done.stdout)
    assert (list(report["left"]), list(report["problems"])) == (["marquez"], ["marquez"])
    assert "marquez has " in done.stderr


def test_a_drain_ends_the_collector_and_leaves_nothing(start: Start, home: Path) -> None:
    collector = start("--provenance-enabled")
    assert collector.post("/provenance", json.dumps([record()]).encode()).status == 202
    command = [str(Path(sys.executable).parent / "waybill"), "drain", "--home", str(home), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert collector.process.wait(10) == 0
    report = json.loads(done.stdout)
    assert report["left"] == {}
    assert not [file for file in home.rglob("*.parquet") if "/raw/" in str(file)]
    assert len(find(home)) == 1
