"""The rate that a collector sustains, with every record visible in `/api/v1/records` soon after it is sent.

    python -m benchmarks.steady --rate 80000                  # ten minutes at one rate
    python -m benchmarks.steady --rate 20000 40000 80000 --seconds 20

Each rate is a fresh collector with its runner, which meanwhile writes the archive and the raw and compacted
files, and keeps up the keys. Another process sends batches of 100 over 8 connections at the given rate.
Every record is different and has just ended; late batches are sent as soon as possible. Every half second,
one more record is sent and then queried until it is visible, and each of `QUESTIONS` is asked, which have no
bounds of time. A rate counts as held if all records were sent at that rate, and each of these single records
was visible in time.
*Behind* are the entries that are in the journal and not yet in the layout, the keys or the index.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.emit import end_runner
from benchmarks.ingest import collector, cpu_s_of, record_lines
from benchmarks.measuring import cpu_s, peak_mb
from waybill.transport import Journal, locks

BATCH: Final = 100
CONNECTIONS: Final = 8
TEMPLATES: Final = 64
VISIBLE_S: Final = 2.0
"""A record must be visible within this time."""
SENT_SHARE: Final = 0.99
"""The share of the rate that must be sent; the last batches may be late."""
PROBE_EVERY_S: Final = 0.5
QUESTIONS: Final = (
    "/provenance/query?did=unknown",
    "/provenance/query?filename=unknown",
    "/provenance/query?limit=50",
    "/provenance/query?data_source=ds-03-ingest&final_state=ERROR&limit=50",
)
PROJECTIONS: Final = ("layout", "keys", "index")
JSON: Final = {"Content-Type": "application/json"}
_PLACE: Final = b"#######-"
_NOW: Final = b"1111111111111"


class Held(NamedTuple):
    """The result of one rate."""

    rate: int
    sent_per_s: float
    visible_s: list[float]
    answered_ms: dict[str, list[float]]
    collector_cpu_s: float
    runner_cpu_s: float
    client_cpu_s: float
    memory_mb: float
    behind: dict[str, int]

    @property
    def is_held(self) -> bool:
        """Whether everything was sent and visible in time."""
        return self.sent_per_s >= SENT_SHARE * self.rate and max(self.visible_s) <= VISIBLE_S


def main() -> None:
    """Try the rates and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, nargs="+", default=[80_000], help="records a second")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long each is held (default 600)")
    parser.add_argument("--folder", type=Path, help="where the homes go: the disk that is measured")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="waybill-bench-", dir=arguments.folder))
    results: list[dict[str, Any]] = []
    print(
        "| rate | sent a second | shows after p50 s | max s | collector CPU s | runner CPU s | client CPU s "
        "| collector MB | behind | held |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    try:
        for rate in arguments.rate:
            home = folder / str(rate)
            held = _measured(home, rate, arguments.seconds)
            behind = ", ".join(f"{name} {entries:,}" for name, entries in held.behind.items())
            results.append(held._asdict() | {"is_held": held.is_held})
            print(
                f"| {held.rate:,} | {held.sent_per_s:,.0f} | {statistics.median(held.visible_s):.2f} "
                f"| {max(held.visible_s):.2f} | {held.collector_cpu_s:.1f} "
                f"| {held.runner_cpu_s:.1f} | {held.client_cpu_s:.1f} | {held.memory_mb:.0f} "
                f"| {behind} | {'yes' if held.is_held else 'no'} |",
                flush=True,
            )
            shutil.rmtree(home, ignore_errors=True)
        print("\n| rate | question meanwhile | p50 ms | p95 ms | asked |\n|---|---|---|---|---|")
        for one in results:
            for question, taken_ms in one["answered_ms"].items():
                p95_ms = sorted(taken_ms)[int(len(taken_ms) * 0.95)]
                print(
                    f"| {one['rate']:,} | {question} | {statistics.median(taken_ms):.1f} | {p95_ms:.1f} "
                    f"| {len(taken_ms)} |"
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def _measured(home: Path, rate: int, seconds: float) -> Held:
    server, address = collector(home)
    ours, theirs = multiprocessing.Pipe()
    sender = multiprocessing.get_context("spawn").Process(target=_send, args=(address, rate, seconds, theirs))
    sender.start()
    ours.recv()  # the sender has built its bodies
    before_s, began_s = _cpu_s(server.pid, home), time.perf_counter()
    ours.send(None)
    visible_s, answered_ms = _probe(address, began_s + seconds)
    sent, client_s = ours.recv()
    took_s = time.perf_counter() - began_s
    behind = _behind(home)
    sender.join()
    collector_s, runner_s = (
        after - before for after, before in zip(_cpu_s(server.pid, home), before_s, strict=True)
    )
    memory_mb = peak_mb(server.pid)
    server.terminate()
    server.wait(60)
    end_runner(home)
    return Held(
        rate, sent / took_s, visible_s, answered_ms, collector_s, runner_s, client_s, memory_mb, behind
    )


def _probe(address: tuple[str, int], until_s: float) -> tuple[list[float], dict[str, list[float]]]:
    """How long each single record took to become visible, in seconds, and each answer, in milliseconds."""
    connection = HTTPConnection(*address, timeout=600)
    visible_s: list[float] = []
    answered_ms: dict[str, list[float]] = {question: [] for question in QUESTIONS}
    while not visible_s or time.perf_counter() < until_s:
        did, began_s = str(uuid.uuid4()), time.perf_counter()
        now_ms = time.time_ns() // 1_000_000
        record = {"did": did, "finalState": "COMPLETE", "created": now_ms, "completed": now_ms}
        record |= {"systemName": "probe", "dataSource": "probe", "filename": did}
        _answer(connection, "POST", "/provenance", json.dumps([record]).encode())
        while not json.loads(_answer(connection, "GET", f"/api/v1/records?did={did}")):
            time.sleep(0.01)
        visible_s.append(time.perf_counter() - began_s)
        for question in QUESTIONS:
            began_s = time.perf_counter()
            _answer(connection, "GET", question)
            answered_ms[question].append((time.perf_counter() - began_s) * 1_000)
        time.sleep(PROBE_EVERY_S)
    connection.close()
    return visible_s, answered_ms


def _answer(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    connection.request(method, path, body, JSON)
    response = connection.getresponse()
    answer = response.read()
    assert response.status in {200, 202}, answer
    return answer


def _send(address: tuple[str, int], rate: int, seconds: float, pipe: Connection) -> None:
    """Send at a rate; this runs in another process, so that the probe does not delay it."""
    bodies = _templates()
    pipe.send(None)
    pipe.recv()
    count = int(rate * seconds) // BATCH
    before_s, began_s = cpu_s(), time.perf_counter()
    # A free connection takes the next batch and sends it when it is due.
    batches = iter([(at, began_s + at * BATCH / rate) for at in range(count)])
    threads = [
        threading.Thread(target=_send_some, args=(address, batches, bodies)) for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send((count * BATCH, cpu_s() - before_s))


def _send_some(address: tuple[str, int], batches: Iterator[tuple[int, float]], bodies: list[bytes]) -> None:
    connection = HTTPConnection(*address, timeout=60)
    for at, due_s in batches:
        time.sleep(max(0.0, due_s - time.perf_counter()))
        now = b"%d" % (time.time_ns() // 1_000_000)
        body = bodies[at % TEMPLATES].replace(_PLACE, b"%07x-" % at).replace(_NOW, now)
        _answer(connection, "POST", "/provenance", body)
    connection.close()


def _templates() -> list[bytes]:
    """Bodies with placeholders for the batch number, in each `did`, and for the current time."""
    lines = []
    for line in record_lines(TEMPLATES * BATCH):
        record = json.loads(line)
        record |= {"did": _PLACE.decode() + record["did"], "created": int(_NOW), "completed": int(_NOW)}
        lines.append(json.dumps(record, separators=(",", ":")).encode())
    return [b"[" + b",".join(lines[at : at + BATCH]) + b"]" for at in range(0, len(lines), BATCH)]


def _cpu_s(server: int, home: Path) -> tuple[float, float]:
    """The CPU times of the server and of its runner."""
    runner = locks.holder(home)
    return cpu_s_of(server), cpu_s_of(runner) if runner else 0.0


def _behind(home: Path) -> dict[str, int]:
    with contextlib.closing(Journal(home)) as journal:
        last = journal.last_seq()
        return {name: last - at for name, at in journal.cursors().items() if name in PROJECTIONS}


if __name__ == "__main__":
    main()
