"""How long it takes to ask what datasets and jobs depend on, beside a recursive query in plain SQLite.

    python -m benchmarks.datasets                  # 100,000 jobs and 200,000 datasets

The jobs are chains of 50, of which each reads what the one before wrote, and one more dataset. One dataset,
the hub, is read by 5,000 further jobs, of which each writes one; another one, the fan, by 1,000. From one
column, 2,000 jobs make a column each. The middles of the chains are asked for 20 edges each way, the others
for all that depends on them, in a process of its own: Python's garbage collector would also go through what
the filling has left in memory, of which a program that only asks has nothing. First, events of 1,000 jobs,
each with 20 columns, are filed into an empty home.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring import Results, cpu_s, in_folder, parser_of
from waybill.lineage import Lineage
from waybill.lineage.index import INDEX_NAME
from waybill.transport import Journal, Kind, Settings, flush

_CHAIN: Final = 50
_BATCH: Final = 1_000
_HUB: Final = "hub"
_HUB_READERS: Final = 5_000
_FAN: Final = "fan"
_FAN_READERS: Final = 1_000
_COLUMN: Final = "customers.email"
_COLUMN_READERS: Final = 2_000
_COLUMNS: Final = 20
_KEPT_EVENTS: Final = 30_000

_CTE: Final = """
WITH RECURSIVE reached (number, distance) AS (
    SELECT number, 0 FROM node WHERE kind = 'dataset' AND name = ?1
    UNION
    SELECT edge.{far}, distance + 1 FROM reached JOIN edge ON edge.{near} = number
    WHERE edge.kind IN ('read', 'write') AND distance < ?2
)
SELECT count(DISTINCT number) - 1 FROM reached
"""


def main() -> None:
    """Fill a home, and ask."""
    parser = parser_of(__doc__, rounds=50)
    parser.add_argument("--jobs", type=int, default=100_000, help="in chains of 50 (default 100,000)")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    jobs = arguments.jobs
    kept = Settings.load({"home": folder / "kept"}, env={}, cwd=folder)
    took_s, used_s = file_events(kept, (_with_columns(number) for number in range(_KEPT_EVENTS)))
    rate, each_us = _KEPT_EVENTS / took_s, used_s / _KEPT_EVENTS * 1e6
    print(f"{rate:,.0f} events/s with {_COLUMNS} columns each are filed ({each_us:.0f} µs CPU)")
    settings = Settings.load({"home": folder / "home"}, env={}, cwd=folder)
    took_s, used_s = file_events(settings, job_events(jobs))
    size_mb = (settings.home / INDEX_NAME).stat().st_size / 1e6
    print(f"{jobs:,} jobs filed in {took_s:.0f} s ({used_s:.0f} CPU s), index {size_mb:.0f} MB\n")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_ask, settings.home, jobs, arguments.rounds).result()


def _ask(home: Path, jobs: int, rounds: int) -> Results:
    lineage = Lineage.open(home)
    plain = sqlite3.connect(home / INDEX_NAME)

    def middle(at: int) -> str:
        return table_name(at % (jobs // _CHAIN), _CHAIN // 2)

    def by_cte(name: str, depth: int, *, is_up: bool) -> int:
        near, far = ("target", "source") if is_up else ("source", "target")
        (count,) = plain.execute(_CTE.format(near=near, far=far), (name, depth)).fetchone()
        return int(count)

    cases: dict[str, Callable[[int], int]] = {
        "20 edges each way": lambda at: _count(lineage, middle(at), 20, 20),
        "20 edges each way, SQLite": lambda at: sum(
            by_cte(middle(at), 20, is_up=is_up) for is_up in (True, False)
        ),
        "all below the fan": lambda _: _count(lineage, _FAN, 0, None),
        "all below the hub": lambda _: _count(lineage, _HUB, 0, None),
        "all below the hub, SQLite": lambda _: by_cte(_HUB, 2, is_up=False),
        "impact of the hub": lambda _: len(lineage.impact(f"s3://lake/{_HUB}").nodes),
        "impact of the column": lambda _: len(lineage.impact(f"s3://lake/{_COLUMN}").nodes),
        "search for a chain": lambda at: len(lineage.search(f"chain {at}").nodes),
        "search for a word of all": lambda _: len(lineage.search("table").nodes),
    }
    print("| question | nodes | p50 ms | p95 ms | CPU ms |\n|---|---|---|---|---|")
    results: Results = []
    for name, ask in cases.items():
        taken_ms, used_s = [], cpu_s()
        for at in range(rounds):
            began_s = time.perf_counter()
            nodes = ask(at)
            taken_ms.append((time.perf_counter() - began_s) * 1_000)
        figures = {
            "nodes": nodes,
            "p50_ms": statistics.median(taken_ms),
            "p95_ms": sorted(taken_ms)[int(len(taken_ms) * 0.95)],
            "cpu_ms": (cpu_s() - used_s) * 1_000 / len(taken_ms),
        }
        results.append({"question": name, **figures})
        shown = (f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in figures.values())
        print(f"| {name} | {' | '.join(shown)} |")
    return results


def file_events(settings: Settings, events: Iterator[dict[str, Any]]) -> tuple[float, float]:
    """Put events into a home and file them; returns how long the filing took, in seconds, and in CPU s."""
    with contextlib.closing(Journal(settings.home)) as journal:
        while some := list(itertools.islice(events, _BATCH)):
            journal.append_many((Kind.OPENLINEAGE, json.dumps(event).encode(), "") for event in some)
    began_s, before_s = time.perf_counter(), cpu_s()
    flush(settings)
    return time.perf_counter() - began_s, cpu_s() - before_s


def _count(lineage: Lineage, name: str, up: int, down: int | None) -> int:
    found = lineage.dependencies(f"s3://lake/{name}", up=up, down=down)
    return len(found.upstream.nodes) + len(found.downstream.nodes)


def table_name(chain: int, place: int) -> str:
    """The name of a dataset of a chain."""
    return f"zone-{chain % 7}/chain-{chain}/table-{place}"


def job_events(jobs: int) -> Iterator[dict[str, Any]]:
    """The events of so many jobs in chains, and of those that read the hub, the fan and the column."""
    for number in range(jobs):
        chain, place = divmod(number, _CHAIN)
        inputs = [table_name(chain, place), f"zone-{chain % 7}/beside-{number}"]
        yield _event(number, inputs, table_name(chain, place + 1))
    for number in range(jobs, jobs + _HUB_READERS):
        yield _event(number, [_HUB], f"leaf-{number}")
    jobs += _HUB_READERS
    for number in range(jobs, jobs + _FAN_READERS):
        yield _event(number, [_FAN], f"leaf-{number}")
    jobs += _FAN_READERS
    dataset, _, column = _COLUMN.partition(".")
    for number in range(jobs, jobs + _COLUMN_READERS):
        event = _event(number, [dataset], f"leaf-{number}")
        yield _derive(event, dataset, {"sender": column})


def _with_columns(number: int) -> dict[str, Any]:
    """One of the runs of 1,000 jobs, each of which makes the columns of a table from those of another."""
    job = number % 1_000
    event = _event(number, [f"in-{job}"], f"out-{job}") | {"job": {"namespace": "etl", "name": f"job-{job}"}}
    return _derive(event, f"in-{job}", {f"column_{at}": f"source_{at}" for at in range(_COLUMNS)})


def _derive(event: dict[str, Any], dataset: str, columns: dict[str, str]) -> dict[str, Any]:
    """Add the facets of an output whose columns come from those of a dataset."""
    fields = {
        name: {"inputFields": [{"namespace": "s3://lake", "name": dataset, "field": source}]}
        for name, source in columns.items()
    }
    schema = [{"name": name, "type": "string"} for name in columns]
    event["outputs"][0]["facets"] = {"schema": {"fields": schema}, "columnLineage": {"fields": fields}}
    return event


def _event(number: int, inputs: list[str], output: str) -> dict[str, Any]:
    return {
        "eventTime": "2026-01-31T12:00:00Z",
        "eventType": "COMPLETE",
        "producer": "https://example.org/benchmarks",
        "run": {"runId": f"01a1fd6a-9e75-7d78-870f-{number:012}"},
        "job": {"namespace": "etl", "name": f"job-{number}"},
        "inputs": [{"namespace": "s3://lake", "name": name} for name in inputs],
        "outputs": [{"namespace": "s3://lake", "name": output}],
    }


if __name__ == "__main__":
    main()
