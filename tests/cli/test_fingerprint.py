from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

ORDERS = "xxh3-128:b47e5f278b024151d3047ab9cc789b9d"
"""Of the bytes ``orders``."""


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    folder = tmp_path / "incoming"
    (folder / "east").mkdir(parents=True)
    (folder / "east" / "b.csv").write_bytes(b"orders")
    (folder / "a.csv.gz").write_bytes(gzip.compress(b"orders"))
    (folder / "link.csv").symlink_to(folder / "a.csv.gz")
    (folder / "nowhere").symlink_to(folder / "nothing")
    return folder


def test_each_file_is_a_line_as_sha256sum_prints_it(called: Run, incoming: Path) -> None:
    done = called("fingerprint", incoming / "a.csv.gz", incoming / "east" / "b.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{ORDERS}  {incoming}/a.csv.gz\n{ORDERS}  {incoming}/east/b.csv\n"


def test_a_folder_is_read_with_all_below_it_if_that_is_asked_for(called: Run, incoming: Path) -> None:
    done = called("fingerprint", "--recursive", incoming)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{ORDERS}  {incoming}/a.csv.gz\n{ORDERS}  {incoming}/east/b.csv\n"
    done = called("fingerprint", incoming)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"waybill: {incoming} is a folder; give --recursive to read the files in it\n"


def test_what_cannot_be_read_is_told_and_the_others_are_printed(called: Run, incoming: Path) -> None:
    (incoming / "a.csv.gz").write_bytes(gzip.compress(b"orders")[:-4])
    done = called("fingerprint", incoming / "none", incoming / "a.csv.gz", incoming / "east" / "b.csv")
    assert done.returncode == 1
    assert done.stdout == f"{ORDERS}  {incoming}/east/b.csv\n"
    missing, damaged = done.stderr.splitlines()
    assert missing.startswith(f"waybill: {incoming}/none: it is not there")
    assert damaged.startswith(f"waybill: {incoming}/a.csv.gz: its gzip data cannot be read near byte ")


def test_json_has_the_sizes_too(called: Run, incoming: Path) -> None:
    done = called("fingerprint", incoming / "a.csv.gz", "--json")
    assert json.loads(done.stdout) == {
        "path": f"{incoming}/a.csv.gz",
        "fingerprint": ORDERS,
        "compression": "gzip",
        "input_bytes": (incoming / "a.csv.gz").stat().st_size,
        "content_bytes": 6,
    }


def test_a_bomb_is_refused_by_the_setting(called: Run, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(2**21)))
    done = called("fingerprint", bomb, "--fingerprint-max-bytes", "1MiB")
    assert (done.returncode, done.stdout) == (1, "")
    assert "contains more than 1,048,576 bytes" in done.stderr
    assert "raise fingerprint_max_bytes" in done.stderr


def test_stdin_is_read_to_its_end(script: Path) -> None:
    command = [str(script), "fingerprint", "-"]
    done = subprocess.run(command, input=gzip.compress(b"orders"), capture_output=True, check=True)
    assert done.stdout == f"{ORDERS}  -\n".encode()
