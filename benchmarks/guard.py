"""Whether anything became dearer: eight short cases in CPU time, each beside the best known build.

    python -m benchmarks.guard                   # fails if a case is dearer by more than 12 %, twice
    python -m benchmarks.guard --against main    # every case beside another commit; nothing fails

`guard.json` names for each case the commit that took the least CPU time; it only changes to a faster one.
That commit is built into an environment of its own, which has this one's packages, so that only our own
code differs. Both builds do the same in turn, so what the machine is, and what else runs on it, concerns
both. They are driven over HTTP and by the commands `serve`, `flush` and `rebuild`, whose options are the
same in both. What counts is the median over five pairs. The client costs the server's process nothing: its
bodies are prepared, and it sends one over each connection before it reads the answers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.ingest import EVENTS, RECORDS, Case, bodies_of, cpu_s_of, event_lines, record_lines
from benchmarks.lines import write_lines
from benchmarks.measuring import Results, in_folder, parser_of

BEST: Final = Path(__file__).with_suffix(".json")
OVER_MAX: Final = 1.12
REPOSITORY: Final = Path(__file__).parents[1]

SENT: Final = {
    "single records, 64 connections": (Case("records", RECORDS, 1, 64), 12_000),
    "single events, 8 connections": (Case("events", EVENTS, 1, 8), 8_000),
    "batches of 100 records, 8 connections": (Case("records", RECORDS, 100, 8), 200_000),
    "batches of 10,000 records, 8 connections": (Case("records", RECORDS, 10_000, 8), 400_000),
    "batches of 100 events, 8 connections": (Case("events", "/api/v1/lineage/batch", 100, 8), 20_000),
}
FLUSHED_RECORDS: Final = 100_000
REBUILT_EVENTS: Final = 60_000
TRICKLE_S: Final = 8.0
"""Longer than a run without the facet takes to settle."""
TRICKLE_RUNS: Final = 3
"""So many end in a second."""

Cases = dict[str, Callable[[str, Path], float]]
"""What is measured, by name: given a build's Python and a new folder, it returns the CPU time in seconds."""


def main() -> None:
    """Compare each case with the best known build, or with a given one."""
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--against", metavar="COMMIT", help="compare every case with this one")
    in_folder(parser.parse_args(), _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    best: dict[str, str] = json.loads(BEST.read_text(encoding="utf-8"))
    cases = _prepare_cases(folder)
    if best.keys() != cases.keys():
        raise SystemExit(f"{BEST.name} and {Path(__file__).name} name other cases")
    if arguments.against:
        best = dict.fromkeys(cases, arguments.against)
    builds: dict[str, str] = {}
    for commit in sorted(set(best.values())):
        if _is_known(commit):
            builds[commit] = _build(commit, folder / f"build-{commit}")
    results: Results = []
    dearer = []
    print(f"{'case':<42} {'beside':<10} {'CPU s':>7} {'here':>7} {'ratio':>7}")
    for case, measure in cases.items():
        if (reference := builds.get(best[case])) is None:
            print(f"{case:<42} {best[case]:<10} not measured: that commit is not in this clone")
            continue
        for _ in range(2):  # a second time only if the first has a case that is dearer
            pairs = [_measure_pair(measure, reference, folder, at) for at in range(arguments.rounds)]
            then_s, now_s = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(now_s / then_s for then_s, now_s in pairs)
            results.append({"case": case, "beside": best[case], "pairs": pairs, "ratio": ratio})
            print(f"{case:<42} {best[case]:<10} {then_s:>7.2f} {now_s:>7.2f} {ratio:>7.0%}", flush=True)
            if ratio <= OVER_MAX or arguments.against:
                break
        else:
            dearer.append(case)
    if dearer:
        sys.exit(f"dearer by more than {OVER_MAX - 1:.0%}, twice: {'; '.join(dearer)}")
    return results


def _measure_pair(
    measure: Callable[[str, Path], float], reference: str, folder: Path, at: int
) -> tuple[float, float]:
    """The CPU time of a case in the reference and here; who comes first changes from pair to pair."""
    used_s = {}
    for python in (reference, sys.executable)[:: 1 if at % 2 else -1]:
        used_s[python] = measure(python, folder / "work")
        shutil.rmtree(folder / "work")
    return used_s[reference], used_s[sys.executable]


def _is_known(commit: str) -> bool:
    """Whether this clone has a commit; a shallow one may not."""
    words = ["git", "-C", str(REPOSITORY), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _build(commit: str, folder: Path) -> str:
    """Build a commit into an environment with this one's packages; return its Python."""
    words = ["git", "-C", str(REPOSITORY), "archive", commit]
    archive = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
        sources.extractall(folder / "source", filter="data")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder / "own"), str(folder / "source")], check=True)
    venv.create(folder / "env", symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    paths = [folder / "own", sysconfig.get_path("purelib")]
    (packages / "build.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return str(folder / "env/bin/python")


def _prepare_cases(folder: Path) -> Cases:
    """The cases, with everything that they send or read made beforehand."""
    records, events = record_lines(400_000), event_lines(20_000)
    cases: Cases = {}
    for name, (case, count) in SENT.items():
        bodies = bodies_of(case, (records if case.what == "records" else events)[:count])
        cases[name] = functools.partial(_serve, case, bodies)
    batches = bodies_of(Case("records", RECORDS, 10_000, 1), records[:FLUSHED_RECORDS])
    cases["flush"] = functools.partial(_flush, batches)
    lines = folder / "events.jsonl"
    write_lines(lines, REBUILT_EVENTS, hours=24, repeats=0.01, seed=7)
    cases["rebuild"] = lambda python, out: _command_cpu_s(
        python, "rebuild", "--from", "jsonl", str(lines), "--to", str(out)
    )
    cases["runner with a trickle of runs"] = functools.partial(_trickle, events)
    return cases


def _serve(case: Case, bodies: list[bytes], python: str, home: Path, runner: str = "none") -> float:
    """The CPU time in which a collector without a runner answers these bodies."""
    with ExitStack() as stack:
        server, address = _collector(python, home, runner)
        stack.callback(_end, server)
        connections = [
            stack.enter_context(socket.create_connection(address)) for _ in range(case.connections)
        ]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests = [_request(case, address, body) for body in bodies]
        before_s = cpu_s_of(server.pid)
        for round_ in _rounds(requests, case.connections):
            for connection, request in zip(connections, round_, strict=False):
                connection.sendall(request)
            for connection, _ in zip(connections, round_, strict=False):
                _read_answer(connection)
        return cpu_s_of(server.pid) - before_s


def _flush(batches: list[bytes], python: str, home: Path) -> float:
    """The CPU time in which a flush makes files of records that the journal has."""
    _serve(Case("records", RECORDS, 10_000, 1), batches, python, home)
    return _command_cpu_s(python, "flush", "--home", str(home))


def _trickle(events: list[bytes], python: str, home: Path) -> float:
    """The CPU time of a runner while a few runs end each second, of clients that know no Waybill."""
    case = Case("events", EVENTS, 1, 1)
    server, address = _collector(python, home, "child")
    try:
        with socket.create_connection(address) as connection:
            for event in events[: int(TRICKLE_S * TRICKLE_RUNS)]:
                connection.sendall(_request(case, address, event))
                _read_answer(connection)
                time.sleep(1 / TRICKLE_RUNS)
        runners = [pid for pid in _processes_with(str(home)) if pid != server.pid]
        if not runners:
            raise SystemExit("the collector has started no runner")
        return sum(map(cpu_s_of, runners))
    finally:
        _end(server)
        while left := list(_processes_with(str(home))):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def _collector(python: str, home: Path, runner: str) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    """Start a build's collector; return its process, and the host and port where it listens."""
    command = [python, "-m", "waybill.cli", "serve", "--home", str(home), "--listen", "127.0.0.1:0"]
    command += ["--provenance-enabled", "--drain-timeout", "0", "--runner", runner]
    # Not in the repository: there, Python would import this tree's own code.
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home.parent)
    assert server.stdout is not None
    host, _, port = server.stdout.readline().split()[2].rstrip(",").rpartition("//")[2].rpartition(":")
    return server, (host, int(port))


def _end(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait(60)
    assert server.stdout is not None
    server.stdout.close()


def _request(case: Case, address: tuple[str, int], body: bytes) -> bytes:
    head = f"POST {case.path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _read_answer(connection: socket.socket) -> None:
    answer = connection.recv(65_536)
    if not answer.startswith(b"HTTP/1.1 20"):
        raise SystemExit(f"the collector answered {answer.decode()}")


def _rounds(requests: list[bytes], size: int) -> Iterator[list[bytes]]:
    return (requests[start : start + size] for start in range(0, len(requests), size))


def _command_cpu_s(python: str, *words: str) -> float:
    """The CPU time of a build's command, with all processes that it has started."""
    before = os.times()
    command = [python, "-m", "waybill.cli", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(words[-1]).parent)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _processes_with(text: str) -> Iterator[int]:
    """The processes whose command line has a text."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_text(errors="replace"):
                yield int(path.parent.name)
        except OSError:  # it has ended meanwhile
            continue


if __name__ == "__main__":
    main()
