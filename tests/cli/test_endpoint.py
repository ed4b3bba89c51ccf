"""`waybill endpoint`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.transport import Journal, lease

if TYPE_CHECKING:
    from conftest import Run

EVENT = (
    b'{"eventTime":"2026-01-01T00:00:00Z","eventType":"COMPLETE","producer":"https://example.com/p",'
    b'"schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",'
    b'"run":{"runId":"01a1fdd8-977b-7e2c-b680-89cd0604d014"},"job":{"namespace":"n","name":"j"}}'
)

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def endpoint(home: Path, script: Path) -> Iterator[Start]:
    """Start an endpoint on a free port; gives the process and its URL."""
    started = []

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        command = [str(script), "endpoint", "--home", str(home), "--listen", "127.0.0.1:0", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().split()[2].rstrip(",")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def post(url: str, body: bytes = EVENT) -> int:
    request = urllib.request.Request(  # noqa: S310 - a loopback URL of our own
        f"{url}/api/v1/lineage", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
        return int(answer.status)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_event_that_was_answered_outlives_the_endpoint(
    endpoint: Start, home: Path, number: signal.Signals, code: int
) -> None:
    process, url = endpoint("--runner", "none")
    assert post(url) == 201
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (code, "")
    (entry,) = Journal(home).read(0)
    assert entry.body == EVENT


def test_it_starts_a_runner(endpoint: Start, home: Path) -> None:
    endpoint()
    deadline_s = time.monotonic() + 30
    while (runner := lease.holder(home)) is None:
        assert time.monotonic() < deadline_s, "no runner came"
        time.sleep(0.05)
    os.kill(runner, signal.SIGTERM)


def test_an_address_that_is_taken_is_one_sentence_and_exit_code_2(
    endpoint: Start, waybill: Run, tmp_path: Path
) -> None:
    _, url = endpoint("--runner", "none")
    address = url.removeprefix("http://")
    done = waybill("endpoint", "--home", tmp_path / "other", "--runner", "none", "--listen", address)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert address in sentence


def test_an_address_that_other_hosts_could_reach_is_refused(waybill: Run, home: Path) -> None:
    done = waybill("endpoint", "--home", home, "--runner", "none", "--listen", "0.0.0.0:0")
    assert (done.returncode, "loopback" in done.stderr) == (2, True)
