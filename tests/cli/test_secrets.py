"""Passwords of backend URLs: whatever happens, none is written down or said."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from contract_server import ContractServer

from waybill.marquez import dead_letters
from waybill.transport import Journal

if TYPE_CHECKING:
    from conftest import Run

PASSWORD: Final = "hunter2-of-waybill"  # noqa: S105 - the test's own
WRITTEN: Final = (PASSWORD.encode(), base64.b64encode(f"ann:{PASSWORD}".encode()))
"""How it is written in a URL and in a request."""
WAIT_S: Final = 60.0

PIPELINE: Final = """
import logging, sys

logging.basicConfig(level=logging.DEBUG)
from waybill.transport import Tracker

with Tracker() as tracker:
    for number in range(3):
        with tracker.file(f"{number}.csv", data_source="in") as file:
            file.egress("out")
"""


@pytest.fixture
def home(home: Path) -> Path:
    """A home with nothing in it yet."""
    home.mkdir()
    return home


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """By the environment, a backend that refuses every event, and one that nobody answers for."""
    refusing = ContractServer(fault="422").start()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        urls = refusing.url, f"http://127.0.0.1:{closed.getsockname()[1]}"
        marquez, away = (url.replace("//", f"//ann:{PASSWORD}@") for url in urls)
        monkeypatch.setenv("WAYBILL_MARQUEZ_URL", marquez)
        given = [{"backend": "custom", "endpoint": f"{away}/lineage"}]
        monkeypatch.setenv("WAYBILL_BACKENDS", msgspec.json.encode(given).decode())
        yield
    refusing.refuse()


def wait_for_dead_letters(home: Path) -> None:
    journal = Journal(home)
    deadline_s = time.monotonic() + WAIT_S
    while len(dead_letters(journal)) < 3:
        assert time.monotonic() < deadline_s, "nothing is refused"
        time.sleep(0.1)
    journal.close()


@pytest.mark.usefixtures("backends")
def test_no_password_of_a_backend_is_in_a_file_or_in_what_is_said(
    called: Run, home: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"HOME": home, "ROOT": root, "SYSTEM_NAME": "tests", "PROVENANCE_ENABLED": "true"}
    for name, value in given.items():
        monkeypatch.setenv(f"WAYBILL_{name}", str(value))
    ran = subprocess.run([sys.executable, "-c", PIPELINE], capture_output=True, check=True, timeout=WAIT_S)
    wait_for_dead_letters(home)
    said = {"the pipeline": ran.stdout + ran.stderr}
    for command in (
        ("status",),
        ("doctor",),
        ("settings",),
        ("dead-letters", "list"),
        ("reconcile",),
        ("flush", "--timeout", "1"),
    ):
        done = called(*command)
        said[" ".join(command)] = (done.stdout + done.stderr).encode()
    assert "422" in said["dead-letters list"].decode()
    assert [name for name, words in said.items() if any(secret in words for secret in WRITTEN)] == []
    files = [path for folder in (home, root) for path in folder.rglob("*") if path.is_file()]
    assert {"journal.db", "runner.log"} <= {path.name for path in files}
    assert [path for path in files if any(secret in path.read_bytes() for secret in WRITTEN)] == []
