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


def faults(home: Path, workers: int, moments: str, *signals: int) -> list[str]:
    """What went wrong when these signals came at these moments; the last line has their number."""
    command = [sys.executable, str(HELPER), str(home), str(workers), moments, ",".join(map(str, signals))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    *found, count = done.stdout.splitlines()
    assert int(count.split()[0]) >= 4
    return found


@pytest.mark.parametrize(
    ("workers", "moments", "signals"),
    [
        (1, "lines/90", (TERM,)),
        (1, "lines/90", (TERM, TERM)),
        (1, "lines/90", (INT,)),
        (2, "ms:0:150:50", (TERM,)),
        (1, "stop:0:45:15", (TERM, INT)),
        (2, "ms:0:300:100", (QUIT,)),
        (2, "lines/30", (TERM,)),
    ],
)
def test_a_signal_at_any_moment_ends_it_and_frees_its_home(
    tmp_path: Path, workers: int, moments: str, signals: tuple[int, ...]
) -> None:
    assert faults(tmp_path / "home", workers, moments, *signals) == []


@pytest.mark.exhaustive
def test_a_signal_at_every_line_of_a_start_and_a_stop_ends_it(tmp_path: Path) -> None:
    assert faults(tmp_path / "home", 1, "lines", TERM) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [TERM, INT, HUP, QUIT])
def test_a_signal_at_every_fifth_millisecond_of_a_start_ends_it(
    tmp_path: Path, workers: int, number: int
) -> None:
    assert faults(tmp_path / "home", workers, "ms:0:95:5", number) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("second", [TERM, INT, HUP, QUIT])
def test_a_second_signal_at_every_fifth_millisecond_of_a_stop_ends_it(
    tmp_path: Path, workers: int, second: int
) -> None:
    assert faults(tmp_path / "home", workers, "stop:0:95:5", TERM, second) == []


@pytest.mark.parametrize("wait_s", [0.0, 0.4, 0.8])
def test_the_command_ends_soon_whenever_it_is_told_to(home: Path, wait_s: float) -> None:
    command = [*PROGRAM, "serve", "--home", str(home), "--listen", "127.0.0.1:0", "--runner", "none"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(wait_s)
    process.terminate()
    process.communicate(timeout=BOUND_S)
    assert process.returncode in {0, -signal.SIGTERM}
    assert not locks.is_held(home, "collector")


@pytest.mark.parametrize("said", [b"POST /api", b""])
def test_a_connection_without_a_request_holds_up_no_stop(start: Start, said: bytes) -> None:
    collector = start("--runner", "none", "--log-level", "error")
    assert collector.post("/api/v1/lineage", event()).status == 201
    host, _, port = collector.address.partition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(said)
        time.sleep(0.1)
        began_s = time.monotonic()
        assert collector.stop() == (0, "")
        assert time.monotonic() - began_s < BOUND_S


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
