"""Delivery of waiting events to a backend: throughput, memory and delay.

    python -m benchmarks.delivery             # throughput beside a bare load generator
    python -m benchmarks.delivery --url URL   # the same with a real Marquez, which is filled with test data
    python -m benchmarks.delivery --waiting   # a million waiting events: memory, delay after an outage
    python -m benchmarks.delivery --flow      # 5,000 files a second, for an hour: how late the graph is

Throughput: both send the same events over the same number of connections, to a backend that answers after
100 ms; over eight connections, that is the rate of Marquez. The generator takes the events from memory and
does not track them. Waybill reads them from the journal, keeps the order within runs, and makes each answer
durable. Each measurement is a fresh process; the two alternate, and the median of the rounds is shown.

The hour of the flow is an hour of a simulated clock, which advances by 25 ms with each event that the
backend accepts, by the CPU time of the delivery itself, and by its pauses; the CPU time of the layout is
shown separately. Its 18 million files take about an hour on two idle cores; `--minutes 10` takes a sixth of
that, and shows each kind of minute several times. `--waiting` takes about 5 minutes, mostly to fill the
journal; the throughput takes about 5, too.

`python -m benchmarks.emit --backends` and `python -m benchmarks.ingest --backends` show emitters and the
collector while a backend is down, hangs or fails.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from benchmarks import flow
from benchmarks.backend import StandIn
from benchmarks.measuring import measured, peak_mb

if TYPE_CHECKING:
    from waybill.marquez import Delivery
    from waybill.transport import Journal

CASES: Final = ("bare", "waybill")
RATIO_MIN: Final = 0.95
MEMORY_MAX_MB: Final = 300
FIRST_MAX_S: Final = 5.0
LAG_MAX_S: Final = 120.0
OUTAGE_S: Final = 45.0
"""Long enough for the back-off to reach its maximum."""
EVENTS_PER_RUN: Final = 2
FILL_BATCH: Final = 5_000
SENT_WITH_MANY_WAITING: Final = 500


def main() -> None:
    """Have both deliver in turn and print the table, or measure memory or lag."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, help="default 4,000; with --waiting 1,000,000")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--connections", type=int, default=8, help="default 8")
    parser.add_argument(
        "--answer-ms",
        type=float,
        default=100.0,
        help="how long the local backend takes to answer (default 100)",
    )
    parser.add_argument("--url", help="a backend of your own")
    parser.add_argument("--waiting", action="store_true", help="measure the memory instead")
    parser.add_argument("--flow", action="store_true", help="measure the lag of a busy flow instead")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --flow, simulated (default 60)")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        case, url, events, connections = arguments.worker
        print(json.dumps(_work(case, url, int(events), int(connections))))
        return None
    if arguments.flow:
        return flow.measure(arguments.minutes, LAG_MAX_S)
    if arguments.waiting:
        return _waiting(arguments)
    if arguments.url is not None:
        return _throughput(arguments, arguments.url)
    with StandIn("answering", answer_s=arguments.answer_ms / 1000) as backend:
        return _throughput(arguments, backend.url)


def _throughput(arguments: argparse.Namespace, url: str) -> None:
    events = arguments.events or 4_000
    per_s: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(arguments.rounds):
        for case in CASES:
            wall_s = _measure(case, arguments, url, events)["wall_s"]
            per_s[case].append(events / wall_s)
    print(f"{events:,} events, {arguments.connections} connections\n\n            events/s")
    for case in CASES:
        print(f"{case:10} {statistics.median(per_s[case]):9.1f}")
    ratio = statistics.median(per_s["waybill"]) / statistics.median(per_s["bare"])
    print(f"\nwaybill / bare: {ratio:.3f} (goal: at least {RATIO_MIN})")


def _waiting(arguments: argparse.Namespace) -> None:
    events = arguments.events or 1_000_000
    with StandIn("refusing") as nobody:
        figures = _measure("waiting", arguments, nobody.url, events)
    print(
        f"{events:,} events waiting: {figures['peak_mb']:.0f} MB at most (goal: under {MEMORY_MAX_MB})\n"
        f"first one delivered {figures['first_s']:.2f} s after an outage of {OUTAGE_S:.0f} s "
        f"(goal: within {FIRST_MAX_S:.0f} s)"
    )


def _measure(case: str, arguments: argparse.Namespace, url: str, events: int) -> dict[str, Any]:
    words = (case, url, events, arguments.connections)
    return measured("benchmarks.delivery", *words, errors=subprocess.DEVNULL)


def _work(case: str, url: str, events: int, connections: int) -> dict[str, float]:
    if case == "bare":
        return _bare(url, events, connections)
    with tempfile.TemporaryDirectory() as folder:
        from waybill.marquez import Backend, Delivery
        from waybill.transport import Journal

        journal = Journal(Path(folder))
        _fill(journal, events)
        started_s = time.perf_counter()
        delivery = Delivery(journal, Backend(url), connections=connections)
        try:
            if case == "waiting":
                return _outlast(delivery, url, events)
            while delivery.pending():
                delivery.step()
            return {"wall_s": time.perf_counter() - started_s}
        finally:
            delivery.finish()
            delivery.close()
            journal.close()


def _fill(journal: Journal, events: int) -> None:
    from waybill.transport import Kind

    for first in range(0, events, FILL_BATCH):
        count = min(FILL_BATCH, events - first) // EVENTS_PER_RUN
        bodies = [body for _ in range(count) for body in _run()]
        journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    journal.checkpoint()


def _outlast(delivery: Delivery, url: str, events: int) -> dict[str, float]:
    """Start the backend after an outage, deliver some events to it, and return the figures."""
    ends_s = time.perf_counter() + OUTAGE_S
    while time.perf_counter() < ends_s:
        step = delivery.step()
        if not step.applied:
            time.sleep(step.retry_s or 0.0)
    with StandIn("answering", answer_s=0.001, port=urlsplit(url).port or 0):
        recovered_s, first_s = time.perf_counter(), None
        while (pending := delivery.pending()) > events - SENT_WITH_MANY_WAITING:
            if first_s is None and pending < events:
                first_s = time.perf_counter() - recovered_s
            step = delivery.step()
            if not step.applied:
                time.sleep(step.retry_s or 0.0)
        delivery.finish()
    return {"peak_mb": peak_mb(), "first_s": first_s or 0.0}


def _bare(url: str, events: int, connections: int) -> dict[str, float]:
    runs: SimpleQueue[list[bytes]] = SimpleQueue()
    for _ in range(events // EVENTS_PER_RUN):
        runs.put(_run())
    threads = [threading.Thread(target=_post, args=(url, runs)) for _ in range(connections)]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"wall_s": time.perf_counter() - started_s}


def _post(url: str, runs: SimpleQueue[list[bytes]]) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    while True:
        try:
            bodies = runs.get_nowait()
        except Empty:
            return
        for body in bodies:
            connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == http.HTTPStatus.CREATED, answer.status


def _run() -> list[bytes]:
    """A run's START and COMPLETE, with two inputs, an output and a schema."""
    run_id = str(uuid.uuid4())
    fields = [{"name": f"column_{number}", "type": "string"} for number in range(10)]
    schema = {
        "_producer": "https://example.com/benchmark",
        "_schemaURL": "https://openlineage.io/spec/facets/1-1-1/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
        "fields": fields,
    }
    datasets = [
        {"namespace": "benchmark", "name": f"dataset-{number}", "facets": {"schema": schema}}
        for number in range(3)
    ]
    return [
        json.dumps(
            {
                "eventType": kind,
                "eventTime": f"2026-01-01T00:00:0{second}Z",
                "run": {"runId": run_id, "facets": {}},
                "job": {"namespace": "benchmark", "name": "job", "facets": {}},
                "inputs": datasets[:2],
                "outputs": datasets[2:],
                "producer": "https://example.com/benchmark",
                "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            }
        ).encode()
        for second, kind in enumerate(("START", "COMPLETE"))
    ]


if __name__ == "__main__":
    main()
