"""`waybill drain`: the end of an instance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from calling import call
from served import event, record

from waybill.lineage import find

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Open, Start


def test_a_drain_says_what_is_left_and_its_exit_code_does(inside: Open, home: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    assert inside(marquez_url=nowhere).post("/api/v1/lineage", event()).status == 201
    done = call("drain", "--home", home, "--json", "--marquez-url", nowhere)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (list(report["left"]), list(report["problems"])) == (["marquez"], ["marquez"])
    assert "marquez has " in done.stderr


def test_a_drain_ends_the_collector_and_leaves_nothing(start: Start, home: Path) -> None:
    collector = start("--provenance-enabled")
    assert collector.post("/provenance", json.dumps([record()]).encode()).status == 202
    done = call("drain", "--home", home, "--json")
    assert done.returncode == 0, done.stderr
    assert collector.process.wait(10) == 0
    assert json.loads(done.stdout)["left"] == {}
    assert not [file for file in home.rglob("*.parquet") if "/raw/" in str(file)]
    assert len(find(home)) == 1
