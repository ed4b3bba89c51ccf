"""The collector's rate: records and events per second over HTTP, each acknowledged after an fsync.

    python -m benchmarks.ingest                    # every case, without a runner
    python -m benchmarks.ingest --runner child     # while a runner writes the Parquet files
    python -m benchmarks.ingest --backends         # events, with Marquez up, down, hanging, failing
    python -m benchmarks.ingest --page             # records, with and without somebody who looks at the page
    python -m benchmarks.ingest --connections 64 --workers 2

Each case is a fresh collector with its own home. Bodies are built before the clock starts, and all differ, so
that none is a repeat. Each connection sends the next body as soon as the last is answered. One thread of this
process drives all connections: it is Python too, and with small bodies it affects the figures. Only the
server's CPU seconds, which include those of its workers, can be compared between machines.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.backend import STATES, StandIn
from benchmarks.emit import end_runner
from benchmarks.measuring import Results, in_folder, median, parser_of, peak_mb
from benchmarks.records import records


class Case(NamedTuple):
    """One way to send."""

    what: str
    path: str
    batch: int
    connections: int


RECORDS: Final = "/provenance"
EVENTS: Final = "/api/v1/lineage"
CASES: Final[tuple[Case, ...]] = (
    Case("records", RECORDS, 100, 8),
    Case("records", RECORDS, 10_000, 1),
    Case("records", RECORDS, 10_000, 8),
    Case("records", RECORDS, 1, 8),
    Case("events", EVENTS, 1, 8),
    Case("events", "/api/v1/lineage/batch", 100, 8),
)
EVENT_BYTES: Final = 1_500
_CAMEL: Final = {
    "parent_did": "parentDid",
    "system_name": "systemName",
    "data_source": "dataSource",
    "data_sink": "dataSink",
    "final_state": "finalState",
}
_VIEW_EVERY_S: Final = 2
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the cases and print the table."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a case, at most (default 8)")
    parser.add_argument("--count", type=int, default=400_000, help="records or events of a case, at most")
    parser.add_argument("--backends", action="store_true", help="with the backend up and down, in rounds")
    parser.add_argument("--page", action="store_true", help="with and without views of the page, in rounds")
    parser.add_argument("--runner", choices=("none", "child"), default="none")
    parser.add_argument("--connections", type=int, help="in every case (default: each case's own)")
    parser.add_argument("--workers", type=int, default=1, help="processes that answer (default 1)")
    arguments = parser.parse_args()
    compare = _compare_views if arguments.page else _compare_backends if arguments.backends else _run_cases
    in_folder(arguments, compare)


def _run_cases(arguments: argparse.Namespace, folder: Path) -> Results:
    lines = record_lines(arguments.count)
    results = []
    print("| what | batch | connections | a second | p50 ms | p99 ms | CPU s per million | memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    cases = CASES
    if arguments.connections:
        # With the same number of connections, some cases become equal; each runs once.
        cases = tuple(dict.fromkeys(case._replace(connections=arguments.connections) for case in CASES))
    for at, case in enumerate(cases):
        # One at a time, a client in Python sends at most about ten thousand a second.
        count = arguments.count if case.batch > 1 else min(arguments.count, 100_000)
        elements = lines[:count] if case.what == "records" else event_lines(count)
        result = _measured(case, bodies_of(case, elements), folder / str(at), arguments)
        results.append(case._asdict() | result)
        print(
            f"| {case.what} | {case.batch:,} | {case.connections} | {result['per_s']:,.0f} "
            f"| {result['p50_ms']:.2f} | {result['p99_ms']:.2f} | {result['cpu_s_per_million']:.1f} "
            f"| {result['memory_mb']:.0f} |",
            flush=True,
        )
    return results


def _compare_backends(arguments: argparse.Namespace, folder: Path) -> Results:
    case = Case("events", EVENTS, 1, 8)
    results: Results = []
    bodies = event_lines(min(arguments.count, 100_000))
    arguments.runner = "child"
    for round_ in range(arguments.rounds):
        for state in STATES:
            home = folder / f"{round_}-{state}"
            with StandIn(state) as backend:
                result = _measured(case, bodies, home, arguments, "--marquez-url", backend.url)
                end_runner(home)
            results.append({"state": state, **result})
            shutil.rmtree(home, ignore_errors=True)
    print("| Marquez | events a second | / answering (goal: at least 0.95) |\n|---|---|---|")
    medians = {state: median(results, ("per_s",), state=state)["per_s"] for state in STATES}
    for state, per_s in medians.items():
        print(f"| {state} | {per_s:,.0f} | {per_s / medians['answering']:.2f} |")
    return results


def _compare_views(arguments: argparse.Namespace, folder: Path) -> Results:
    case = Case("records", RECORDS, 100, 8)
    results: Results = []
    bodies = bodies_of(case, record_lines(arguments.count))
    arguments.runner = "child"
    for round_ in range(arguments.rounds):
        for is_viewed in (False, True):
            home = folder / f"{round_}-{is_viewed}"
            result = _measured(case, bodies, home, arguments, is_viewed=is_viewed)
            end_runner(home)
            results.append({"is_viewed": is_viewed, **result})
            shutil.rmtree(home, ignore_errors=True)
    names = ("per_s", "cpu_s_per_million", "p99_ms")
    alone, viewed = (median(results, names, is_viewed=is_viewed) for is_viewed in (False, True))
    print("| | records a second | CPU s per million | p99 ms |\n|---|---|---|---|")
    for what, one in (("nobody looks", alone), (f"a view each {_VIEW_EVERY_S} s", viewed)):
        print(f"| {what} | {one['per_s']:,.0f} | {one['cpu_s_per_million']:.1f} | {one['p99_ms']:.1f} |")
    print(f"\nthe page costs {1 - viewed['per_s'] / alone['per_s']:.1%} (goal: less than 5 %)")
    return results


def _view(address: tuple[str, int]) -> None:
    """Open one view of the page after the other, until this process is ended."""
    for path in itertools.cycle(("/", "/find", "/find?final_state=ERROR", "/open", "/health", "/slis")):
        time.sleep(_VIEW_EVERY_S)
        with contextlib.closing(HTTPConnection(*address, timeout=60)) as connection:
            connection.request("GET", path, headers={"Accept": "text/html"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != HTTPStatus.OK:
                raise SystemExit(f"{path}: {answer.status}")


def _measured(
    case: Case,
    bodies: list[bytes],
    home: Path,
    arguments: argparse.Namespace,
    *options: str,
    is_viewed: bool = False,
) -> dict[str, float]:
    options = ("--runner", arguments.runner, "--workers", str(arguments.workers), *options)
    server, address = collector(home, *options)
    processes = [server.pid, *children_of(server.pid)] if arguments.workers > 1 else [server.pid]
    connections = [
        _Connection(address, case, bodies[at :: case.connections]) for at in range(case.connections)
    ]
    viewer = multiprocessing.get_context("spawn").Process(target=_view, args=(address,))
    if is_viewed:
        viewer.start()
    cpu_s, began_s = sum(map(cpu_s_of, processes)), time.perf_counter()
    _drive(connections, began_s + arguments.seconds)
    took_s, cpu_s = time.perf_counter() - began_s, sum(map(cpu_s_of, processes)) - cpu_s
    memory_mb = sum(map(peak_mb, processes))
    if is_viewed:
        if not viewer.is_alive():
            raise SystemExit("a view could not be opened")
        viewer.terminate()
        viewer.join()
    server.terminate()
    server.wait(60)
    latencies_s = sorted(one for connection in connections for one in connection.latencies_s)
    sent = len(latencies_s) * case.batch
    return {
        "per_s": sent / took_s,
        "p50_ms": statistics.median(latencies_s) * 1e3,
        "p99_ms": latencies_s[int(len(latencies_s) * 0.99)] * 1e3,
        "cpu_s_per_million": cpu_s / sent * 1e6,
        "memory_mb": memory_mb,
    }


def collector(home: Path, *options: str) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    """Start a collector; return its process, and the host and port where it listens."""
    command = [sys.executable, "-m", "waybill.cli", "serve", "--home", str(home), "--listen", "127.0.0.1:0"]
    command += ["--provenance-enabled", "--drain-timeout", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    host, _, port = server.stdout.readline().split()[2].rstrip(",").rpartition("//")[2].rpartition(":")
    return server, (host, int(port))


class _Connection:
    """A connection that sends the next body as soon as the last is answered."""

    def __init__(self, address: tuple[str, int], case: Case, bodies: list[bytes]) -> None:
        self.latencies_s: list[float] = []
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(0)  # not blocking
        head = f"POST {case.path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
        requests = (f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies)
        self._requests = iter(list(requests))
        self._left = memoryview(b"")
        self._began_s = 0.0

    def begin(self, until_s: float) -> bool:
        """Send the next body; return False when there is none."""
        self._began_s = time.perf_counter()
        request = next(self._requests, None) if self._began_s < until_s else None
        if request is not None:
            self._left = memoryview(request)
            self.send()
        return request is not None

    def send(self) -> None:
        """Send as much as the socket takes at once."""
        with contextlib.suppress(BlockingIOError):
            self._left = self._left[self.socket.send(self._left) :]

    @property
    def waits_for(self) -> int:
        """The selector event to wait for."""
        return selectors.EVENT_WRITE if self._left else selectors.EVENT_READ

    def read(self) -> None:
        """Read the answer, which is short."""
        answer = self.socket.recv(65_536)
        assert answer.startswith((b"HTTP/1.1 20",)), answer
        self.latencies_s.append(time.perf_counter() - self._began_s)


def _drive(connections: list[_Connection], until_s: float) -> None:
    """Send over all connections from one thread: several threads would compete for the interpreter lock."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            if connection.begin(until_s):
                selector.register(connection.socket, connection.waits_for, connection)
        while selector.get_map():
            for key, event in selector.select():
                connection = key.data
                if event & selectors.EVENT_WRITE:
                    connection.send()
                else:
                    connection.read()
                    if not connection.begin(until_s):
                        selector.unregister(connection.socket)
                        connection.socket.close()
                        continue
                if connection.waits_for != key.events:
                    selector.modify(connection.socket, connection.waits_for, connection)


def bodies_of(case: Case, elements: list[bytes]) -> list[bytes]:
    """The bodies in which a case sends these records or events."""
    if case.path == EVENTS:
        return elements
    starts = range(0, len(elements) - case.batch + 1, case.batch)
    return [b"[" + b",".join(elements[at : at + case.batch]) + b"]" for at in starts]


def record_lines(count: int, *, hours: int = 1) -> list[bytes]:
    """Records as DeltaFi sends them, in order of `completed`."""
    table = records(count, hours=hours, systems=5, repeats=0.0, seed=7)
    for name in ("created", "completed"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast("int64"))
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row["annotations"] = dict(row["annotations"] or ())
    return [
        msgspec.json.encode(
            {_CAMEL.get(name, name): value for name, value in row.items() if value is not None}
        )
        for row in rows
    ]


def event_lines(count: int) -> list[bytes]:
    """Events as large as those of a real job, a millisecond apart: two inputs, one output, schemas."""
    event: dict[str, Any] = {
        "eventType": "COMPLETE",
        "eventTime": "2026-01-31T12:00:00.000Z",
        "producer": "https://example.org/benchmark",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "job": {"namespace": "benchmark", "name": "orders.daily"},
        "inputs": [{"namespace": "file", "name": f"/data/orders-{at}"} for at in range(2)],
        "outputs": [{"namespace": "file", "name": "/lake/orders", "facets": {}}],
    }
    fields: list[dict[str, str]] = []
    event["outputs"][0]["facets"]["schema"] = {"_producer": "", "_schemaURL": "", "fields": fields}
    while len(msgspec.json.encode(event)) < EVENT_BYTES - 60:
        fields.append({"name": f"column_{len(fields)}", "type": "string"})
    lines = []
    for at in range(count):
        event["run"] = {"runId": f"01a1fd6a-9e75-7d78-870f-{at:012x}"}
        event["eventTime"] = f"2026-01-31T12:{at // 60_000 % 60:02}:{at // 1_000 % 60:02}.{at % 1_000:03}Z"
        lines.append(msgspec.json.encode(event))
    return lines


def cpu_s_of(pid: int) -> float:
    """The CPU seconds that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS_A_SECOND


def children_of(pid: int) -> list[int]:
    """The processes that a process with one thread has started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()))


if __name__ == "__main__":
    main()
