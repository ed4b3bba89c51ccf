"""Signals: at whatever moment one comes, the collector ends soon, and its home is free."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from served import PROGRAM, event

from waybill.transport import locks

if TYPE_CHECKING:
    from conftest import Start

TERM, INT = signal.SIGTERM.value, signal.SIGINT.value
HUP, QUIT = signal.SIGHUP.value, signal.SIGQUIT.value
BOUND_S = 10.0
HELPER = Path(__file__).with_name("signalled.py")


def faults(home: Path, workers: int, every: int, *signals: int) -> list[str]:
    """What went wrong when these signals came at every so many lines; the last line has their number."""
    numbers = ",".join(map(str, signals))
    command = [sys.executable, str(HELPER), str(home), str(workers), str(every), numbers]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    *found, count = done.stdout.splitlines()
    assert int(count.split()[0]) >= 4
    return found


@pytest.mark.parametrize(
    ("workers", "every", "signals"),
    [
        (1, 90, (TERM,)),
        (1, 90, (INT, TERM)),
        (2, 30, (TERM,)),
        (2, 40, (QUIT,)),
    ],
)
def test_a_signal_at_any_moment_ends_it_and_frees_its_home(
    tmp_path: Path, workers: int, every: int, signals: tuple[int, ...]
) -> None:
    assert faults(tmp_path / "home", workers, every, *signals) == []


@pytest.mark.exhaustive
def test_a_signal_at_every_line_of_a_start_and_a_stop_ends_it(tmp_path: Path) -> None:
    assert faults(tmp_path / "home", 1, 1, TERM) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("signals", [(TERM, INT), (HUP,), (QUIT,)])
def test_each_signal_at_every_fifth_line_ends_it(
    tmp_path: Path, workers: int, signals: tuple[int, ...]
) -> None:
    assert faults(tmp_path / "home", workers, 5, *signals) == []


@pytest.mark.parametrize("wait_s", [0.0, 0.6])
def test_the_command_ends_soon_whenever_it_is_told_to(home: Path, wait_s: float) -> None:
    command = [*PROGRAM, "serve", "--home", str(home), "--listen", "127.0.0.1:0", "--runner", "none"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(wait_s)
    process.terminate()
    process.communicate(timeout=BOUND_S)
    assert process.returncode in {0, -signal.SIGTERM}
    assert not locks.is_held(home, "collector")


HALF = (
    b"POST /api/v1/lineage HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
)


def test_requests_that_do_not_end_hold_up_no_stop(start: Start) -> None:
    collector = start("--runner", "none", "--log-level", "error")
    assert collector.post("/api/v1/lineage", event()).status == 201
    assert collector.post("/api/v1/lineage", b"{").status == 400, "which is below the level of the log"
    host, _, port = collector.address.partition(":")
    with contextlib.ExitStack() as stack:
        clients = []
        for said, answer in ((b"", b""), (b"POST /api", b""), (HALF, b"HTTP/1.1 503 ")) * 10:
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(said)
            clients.append((client, answer))
        time.sleep(0.1)
        began_s = time.monotonic()
        assert collector.stop() == (0, "")
        assert time.monotonic() - began_s < BOUND_S
        assert [client.recv(13) for client, _ in clients] == [answer for _, answer in clients]


def test_a_second_signal_does_not_wait_for_the_projections(start: Start) -> None:
    # A backend that does not answer, and a drain that would wait for it.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        collector = start("--marquez-url", url, "--drain-timeout", "100")
        assert collector.post("/api/v1/lineage", event()).status == 201
        collector.process.terminate()
        time.sleep(0.5)
        collector.process.terminate()
        collector.process.communicate(timeout=BOUND_S)
    assert not locks.is_held(collector.home, "collector")
