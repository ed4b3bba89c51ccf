"""Whether anything became dearer: seven short cases in CPU time, each as a ratio to one reference workload.

    python -m benchmarks.guard            # fails if a case is 25 % over its ratio in each of eight runs
    python -m benchmarks.guard --renew    # measures eight times, and writes the least ratios to guard.json

The reference is work of the same kind that uses none of Waybill's code: JSON, hashing, sorting, and a SQLite
database. It runs before and after each case, so a slow machine makes both dearer. What counts is the CPU time
of the process that does the work. On a shared machine, a single run of the same code may still be dearer by
40 %, so the least of several counts: what others do beside it adds to a run, and dearer code adds to all. The
client of the collector's cases costs almost nothing: its bodies are prepared, and it sends one over each
connection before it reads the answers.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import shutil
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from benchmarks.flush import BATCH, flush_bodies
from benchmarks.ingest import EVENTS, RECORDS, Case, bodies_of, collector, cpu_s_of, event_lines, record_lines
from benchmarks.lines import write_lines
from benchmarks.measuring import Results, in_folder, measured, parser_of

RATIOS: Final = Path(__file__).with_suffix(".json")
OVER_MAX: Final = 1.25

COLLECTOR_CASES: Final = {
    "single records, 64 connections": (Case("records", RECORDS, 1, 64), 20_000),
    "batches of 100, 8 connections": (Case("records", RECORDS, 100, 8), 200_000),
    "single events, 8 connections": (Case("events", EVENTS, 1, 8), 12_000),
}
FLUSHED_RECORDS: Final = 100_000
REBUILT_EVENTS: Final = 60_000
EMITTED_EVENTS: Final = 5_000
TRICKLE_S: Final = 20.0
"""Longer than a run without the facet takes to settle."""

Cases = dict[str, Callable[[Path], float]]
"""What is measured, by name: a function that works in a new folder and returns the CPU time in seconds."""


def main() -> None:
    """Compare the cases with their ratios, or measure these anew."""
    parser = parser_of(__doc__, rounds=8)
    parser.add_argument("--renew", action="store_true", help=f"write {RATIOS.name} anew")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        name, folder = arguments.worker
        work = {"emit": _emit, "reference": _do_reference, "trickle": _run_on_a_trickle}[name]
        print(json.dumps({"cpu_s": work(Path(folder))}))
    else:
        in_folder(arguments, _renew if arguments.renew else _compare)


def _compare(arguments: argparse.Namespace, folder: Path) -> Results:
    known: dict[str, float] = json.loads(RATIOS.read_text(encoding="utf-8"))
    cases = _prepare_cases(folder)
    if known.keys() != cases.keys():
        raise SystemExit(f"{RATIOS.name} has other cases: measure them by python -m benchmarks.guard --renew")
    results: Results = []
    dearer = set(cases)
    print(f"{'case':<32} {'ratio':>7} {'known':>7}")
    for run in range(arguments.rounds):
        for case in filter(dearer.__contains__, cases):
            ratio = _measure_ratio(cases[case], folder)
            if ratio <= known[case] * OVER_MAX:
                dearer.remove(case)
            results.append({"case": case, "run": run, "ratio": ratio})
            print(f"{case:<32} {ratio:>7.3f} {known[case]:>7.3f} {ratio / known[case]:>6.0%}", flush=True)
    if dearer:
        sys.exit(f"dearer by more than {OVER_MAX - 1:.0%} in {arguments.rounds} runs: {'; '.join(dearer)}")
    return results


def _renew(arguments: argparse.Namespace, folder: Path) -> Results:
    cases = _prepare_cases(folder)
    results: Results = []
    for _ in range(arguments.rounds):
        for case, measure in cases.items():
            results.append({"case": case, "ratio": _measure_ratio(measure, folder)})
            print(f"{case:<32} {results[-1]['ratio']:>7.3f}", flush=True)
    least = {case: round(min(row["ratio"] for row in results if row["case"] == case), 3) for case in cases}
    RATIOS.write_text(json.dumps(least, indent=2) + "\n", encoding="utf-8")
    return results


def _measure_ratio(measure: Callable[[Path], float], folder: Path) -> float:
    """The CPU time of a case, divided by that of the reference just before and just after it."""
    before_s = _measure_worker("reference", folder)
    work = folder / "work"
    used_s = measure(work)
    shutil.rmtree(work)
    return used_s * 2 / (before_s + _measure_worker("reference", folder))


def _measure_worker(name: str, folder: Path) -> float:
    return float(measured("benchmarks.guard", name, folder)["cpu_s"])


def _prepare_cases(folder: Path) -> Cases:
    """The cases, with everything that they send or read made beforehand."""
    records, events = record_lines(200_000), event_lines(12_000)
    cases: Cases = {}
    for name, (case, count) in COLLECTOR_CASES.items():
        bodies = bodies_of(case, (records if case.what == "records" else events)[:count])
        cases[name] = functools.partial(_serve, case, bodies)
    batches = bodies_of(Case("records", RECORDS, BATCH, 1), records[:FLUSHED_RECORDS])
    cases["flush"] = lambda home: float(flush_bodies(batches, home, archive=True)["cpu_s"])
    lines = folder / "events.jsonl"
    write_lines(lines, REBUILT_EVENTS, hours=24, repeats=0.01, seed=7)
    cases["rebuild"] = lambda out: float(measured("benchmarks.rebuild", "waybill", lines, out)["cpu_s"])
    cases["emit"] = functools.partial(_measure_worker, "emit")
    cases["runner with a trickle of runs"] = functools.partial(_measure_worker, "trickle")
    return cases


def _serve(case: Case, bodies: list[bytes], home: Path) -> float:
    """The CPU time in which a collector without a runner answers these bodies."""
    server, address = collector(home, "--runner", "none")
    head = f"POST {case.path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(address)) for _ in range(case.connections)
        ]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before_s = cpu_s_of(server.pid)
        for round_ in _rounds(requests, case.connections):
            for connection, request in zip(connections, round_, strict=False):
                connection.sendall(request)
            for connection, _ in zip(connections, round_, strict=False):
                answer = connection.recv(65_536)
                if not answer.startswith(b"HTTP/1.1 20"):
                    raise SystemExit(f"the collector answered {answer.decode()}")
        used_s = cpu_s_of(server.pid) - before_s
    server.terminate()
    server.wait(60)
    return used_s


def _rounds(requests: list[bytes], size: int) -> Iterator[list[bytes]]:
    return (requests[start : start + size] for start in range(0, len(requests), size))


def _emit(home: Path) -> float:
    """The CPU time in which a pipeline emits its files' ends; the runner's is not in it."""
    from waybill.transport import Tracker

    tracker = Tracker(home=home, runner="none", durability="process", provenance_enabled=True)
    before_s = time.process_time()
    for number in range(EMITTED_EVENTS // 2):  # a start and an end each
        with tracker.file(f"orders-{number}.csv", data_source="sftp-in") as file:
            file.egress("lake")
    used_s = time.process_time() - before_s
    tracker.close()
    return used_s


def _run_on_a_trickle(home: Path) -> float:
    """The CPU time of a runner while a few runs end each second, of clients that know no Waybill."""
    from waybill.transport import Journal, Kind, Settings
    from waybill.transport.runner import Runner

    given = {"home": home, "root": home / "root", "runner": "none", "provenance_enabled": True}
    settings = Settings.load(given, env={}, cwd=home.parent)
    with closing(Journal(home)) as journal:
        began_s, events = time.monotonic(), iter(event_lines(int(TRICKLE_S * 20) + 20))

        def append_some() -> bool:
            journal.append(Kind.OPENLINEAGE, next(events))
            return time.monotonic() - began_s > TRICKLE_S

        before_s = time.process_time()
        Runner(journal, settings).run(until=append_some)
        return time.process_time() - before_s


def _do_reference(_: Path) -> float:
    """The CPU time of work that changes only with the machine and with Python."""
    before_s = time.process_time()
    event: dict[str, Any] = {"run": {"runId": "01a1fd6a"}, "inputs": [{"name": f"n{at}"} for at in range(40)]}
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, digest BLOB, body BLOB)")
        for number in range(16_000):
            event["run"]["runId"] = f"01a1fd6a-{number:08}"
            body = json.dumps(event).encode()
            names = sorted(row["name"] for row in json.loads(body)["inputs"])
            digest = hashlib.sha256(body + "".join(names).encode()).digest()
            database.execute("INSERT INTO event (digest, body) VALUES (?, ?)", (digest, body))
    return time.process_time() - before_s


if __name__ == "__main__":
    main()
