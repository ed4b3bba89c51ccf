"""The cost of one `emit`: with Waybill's transport, with the client's own, and with the backend up and down.

    python -m benchmarks.emit              # the transports, 1 and 8 threads
    python -m benchmarks.emit --backends   # Waybill's, while Marquez answers, refuses, hangs or fails

Each measurement is a fresh process; the cases alternate for several rounds and the median of the rounds is
shown, so that a machine that becomes slower affects all cases alike. The client's own work is measured with
a transport that does nothing, and subtracted from every case. Waybill's transport runs as it does in a
pipeline: meanwhile its runner writes the Parquet files and delivers to the same backend.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Final, NoReturn

from benchmarks.backend import STATES, StandIn
from benchmarks.measuring import Results, in_folder, measured, median, parser_of

CASES: Final = ("nothing", "file", "async_http", "waybill process", "waybill power")
FIGURES: Final = ("events_per_s", "p50_us", "p99_us")
WARM_UP: Final = 200


def main() -> None:
    """Run the measurement that the arguments select, and print its table."""
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--backends", action="store_true", help="our p99 with the backend up and down")
    parser.add_argument("--events", type=int, default=4000, help="events of one measurement (default 4000)")
    parser.add_argument("--worker", nargs=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _work(json.loads(arguments.worker[0]))
    else:
        in_folder(arguments, _compare_backends if arguments.backends else _compare_cases)


def _compare_cases(arguments: argparse.Namespace, folder: Path) -> Results:
    results = []
    with StandIn("answering") as backend:
        for round_ in range(arguments.rounds):
            for threads in (1, 8):
                for case in CASES:
                    home = folder / f"{round_}-{threads}-{case.replace(' ', '-')}"
                    job = {
                        "case": case,
                        "threads": threads,
                        "events": arguments.events,
                        "home": str(home),
                        "url": backend.url,
                    }
                    results.append(_measured(job))
                    end_runner(home)
                    shutil.rmtree(home, ignore_errors=True)
    fdatasync_us = median(results, ("fdatasync_us",))["fdatasync_us"]
    print(f"fdatasync of 4 KiB appended on this disk: {fdatasync_us:.0f} µs (median)\n")
    print(
        f"{'transport':<16} {'threads':>7} {'events/s':>9} {'p50 µs':>8} {'p99 µs':>8} "
        f"{'p50 net':>8} {'p99 net':>8}"
    )
    net: dict[tuple[str, int], float] = {}
    for threads in (1, 8):
        base = median(results, FIGURES, case="nothing", threads=threads)
        for case in CASES:
            row = median(results, FIGURES, case=case, threads=threads)
            net[case, threads] = row["p50_us"] - base["p50_us"]
            print(
                f"{case:<16} {threads:>7} {row['events_per_s']:>9.0f} "
                f"{row['p50_us']:>8.1f} {row['p99_us']:>8.1f} "
                f"{net[case, threads]:>8.1f} {row['p99_us'] - base['p99_us']:>8.1f}"
            )
    ratio = net["waybill process", 1] / net["async_http", 1]
    allowed_us = 1.3 * fdatasync_us + 40
    print(f"\nprocess / async_http, p50 net, 1 thread: {ratio:.2f} (goal: at most 0.40)")
    print(
        f"power, p50 net, 1 thread: {net['waybill power', 1]:.0f} µs "
        f"(goal: at most 1.3 x fdatasync + 40 = {allowed_us:.0f} µs)"
    )
    return results


def _compare_backends(arguments: argparse.Namespace, folder: Path) -> Results:
    results = []
    for round_ in range(arguments.rounds):
        for state in STATES:
            with StandIn(state) as backend:
                home = folder / f"{round_}-{state}"
                job = {
                    "case": "waybill power",
                    "threads": 1,
                    "events": arguments.events,
                    "home": str(home),
                    "url": backend.url,
                }
                results.append(_measured({**job, "state": state}))
                end_runner(home)
                shutil.rmtree(home, ignore_errors=True)
    columns = f"{'p50 µs':>8} {'p99 µs':>8} {'p99 / answering':>16} {'events/s':>9} {'/ answering':>12}"
    print(f"{'Marquez':<12} {columns}")
    medians = {state: median(results, FIGURES, state=state) for state in STATES}
    for state, of in medians.items():
        up = medians["answering"]
        print(
            f"{state:<12} {of['p50_us']:>8.1f} {of['p99_us']:>8.1f} {of['p99_us'] / up['p99_us']:>16.2f} "
            f"{of['events_per_s']:>9.0f} {of['events_per_s'] / up['events_per_s']:>12.2f}"
        )
    print("\nevents/s against answering (goal: at least 0.95)")
    return results


def _measured(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, **measured("benchmarks.emit", json.dumps(job))}


def end_runner(home: Path) -> None:
    """Kill the runner that an emitter or a collector left running."""
    from waybill.transport import locks

    while locks.is_held(home):
        pid = locks.holder(home)
        if pid is not None:  # else it is still starting
            os.kill(pid, 9)
        time.sleep(0.05)


# -- one measurement, in its own process ---------------------------------------------------------------------


def _work(job: dict[str, Any]) -> NoReturn:
    from openlineage.client import OpenLineageClient

    home = Path(job["home"])
    home.mkdir(parents=True)
    fdatasync_us = _fdatasync_us(home)
    client = OpenLineageClient(transport=_transport(job, home))
    events = [_event(number) for number in range(job["events"] + WARM_UP)]
    for event in events[:WARM_UP]:
        client.emit(event)
    shares = [events[WARM_UP + thread :: job["threads"]] for thread in range(job["threads"])]
    durations_ns: list[int] = []

    def emit(share: list[Any]) -> None:
        mine = []
        for event in share:
            start_ns = time.perf_counter_ns()
            client.emit(event)
            mine.append(time.perf_counter_ns() - start_ns)
        durations_ns.extend(mine)

    threads = [threading.Thread(target=emit, args=(share,)) for share in shares]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - start_s
    durations_ns.sort()
    client.close(0)
    result = {
        "events_per_s": len(durations_ns) / elapsed_s,
        "p50_us": durations_ns[len(durations_ns) // 2] / 1000,
        "p99_us": durations_ns[len(durations_ns) * 99 // 100] / 1000,
        "fdatasync_us": fdatasync_us,
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # otherwise async_http would continue to send its queue


def _transport(job: dict[str, Any], home: Path) -> Any:  # noqa: ANN401 - the client's transports share no public type
    case = job["case"]
    if case.startswith("waybill"):
        from waybill.transport import WaybillConfig, WaybillTransport

        settings = {
            "home": home,
            "durability": case.split()[1],
            "marquez_url": job["url"],
            "provenance_enabled": True,
        }
        return WaybillTransport(WaybillConfig.from_dict(settings))
    if case == "nothing":
        from openlineage.client.transport.transport import Transport

        nothing = Transport()
        nothing.emit = lambda _event: None  # type: ignore[assignment]  # does nothing
        return nothing
    from openlineage.client.transport import get_default_factory

    config = (
        {"type": case, "log_file_path": str(home / "events.jsonl"), "append": True}
        if case == "file"
        else {"type": case, "url": job["url"]}
    )
    return get_default_factory().create(config)


def _event(number: int) -> Any:  # noqa: ANN401 - imported late, so that the driver stays light
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import schema_dataset
    from openlineage.client.uuid import generate_new_uuid

    from waybill.facets import DELTA_FILE_FACET
    from waybill.facets.delta_file import WaybillDeltaFileRunFacet

    did = str(generate_new_uuid())
    facet = WaybillDeltaFileRunFacet(
        did=did,
        dataSource="sftp-in",
        filename=f"orders-{number}.csv.gz",
        transforms=["decompress", "validate", "enrich"],
        dataSink="lake",
        finalState="COMPLETE",
        created="2026-11-21T10:00:00.000Z",
        completed="2026-11-21T10:00:01.000Z",
        annotations={"customer": f"c{number % 50}"},
    )
    fields = [schema_dataset.SchemaDatasetFacetFields(name=f"c{column}", type="int") for column in range(5)]
    inputs = [
        InputDataset("bench", "sftp-in", facets={"schema": schema_dataset.SchemaDatasetFacet(fields=fields)})
    ]
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime="2026-11-21T10:00:01.000Z",
        run=Run(did, {DELTA_FILE_FACET: facet}),
        job=Job("bench", "sftp-in"),
        inputs=inputs,
        outputs=[OutputDataset("bench", "lake")],
        producer="https://example.com/bench",
    )


def _fdatasync_us(folder: Path, count: int = 300) -> float:
    """The median time of an fdatasync after appending 4 KiB, in microseconds."""
    path = folder / "fdatasync"
    durations_ns = []
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(bytes(4096))
            start_ns = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            durations_ns.append(time.perf_counter_ns() - start_ns)
    path.unlink()
    return statistics.median(durations_ns) / 1000


if __name__ == "__main__":
    main()
