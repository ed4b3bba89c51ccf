from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Settings, Tracker, flush

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run

ORDERS = "xxh3-128:b47e5f278b024151d3047ab9cc789b9d"


@pytest.fixture
def dids(settings: Settings, tmp_path: Path) -> list[str]:
    """Of three files of a home, of which the last two have the same content."""
    with Tracker(settings=settings) as tracker:
        dids = []
        for name, content in (("other.csv", b"other"), ("orders.csv", b"orders"), ("again.csv", b"orders")):
            (tmp_path / name).write_bytes(content)
            with tracker.file(
                path=tmp_path / name, data_source="in", fingerprint=True, force=name == "again.csv"
            ) as f:
                dids.append(f.did)
    return dids


def test_files_with_the_same_content_are_listed(called: Run, home: Path, dids: list[str]) -> None:
    done = called("duplicates", "--home", home)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert heading == ["fingerprint", "created (UTC)", "filename", "system", "did", "forced"]
    assert [[row[0], *row[2:]] for row in rows] == [
        [ORDERS, "orders.csv", "tests", dids[1], ""],
        [ORDERS, "again.csv", "tests", dids[2], "forced"],
    ]
    assert called("duplicates", "--home", home, "--csv").stdout.count(",forced\n") == 2, "the heading, too"


def test_json_has_each_content_with_its_files(called: Run, home: Path, dids: list[str]) -> None:
    told = json.loads(called("duplicates", "--home", home, "--json").stdout)
    assert told["fingerprint"] == ORDERS
    assert [(one["did"], one["filename"], one["forced"]) for one in told["files"]] == [
        (dids[1], "orders.csv", False),
        (dids[2], "again.csv", True),
    ]
    assert told["files"][0]["created"].endswith("Z")


def test_a_home_without_duplicates_says_so(called: Run, home: Path, settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        tracker.file("orders.csv", data_source="in")
    done = called("duplicates", "--home", home)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no two files with a fingerprint have the same content\n"


def test_a_root_alone_lists_them_as_the_home_does(
    called: Run, home: Path, settings: Settings, dids: list[str]
) -> None:
    flush(settings)
    told = called("duplicates", "--home", home, "--json").stdout
    assert told.count(dids[2]) == 1
    assert called("duplicates", "--root", settings.root, "--json").stdout == told
    (settings.root / "provenance/relations").rename(home.parent / "gone")
    done = called("duplicates", "--root", settings.root)
    assert (done.returncode, done.stdout) == (0, "")
