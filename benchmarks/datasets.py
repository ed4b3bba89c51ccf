"""How long it takes to ask what datasets and jobs depend on, beside a recursive query in plain SQLite.

    python -m benchmarks.datasets                  # 100,000 jobs and 200,000 datasets

The jobs are chains of 50, of which each reads what the one before wrote, and one more dataset. One dataset,
the hub, is read by 5,000 further jobs, of which each writes one. The middles of the chains are asked for 20
edges each way, the hub for all that depends on it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
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
    settings = Settings.load({"home": folder / "home"}, env={}, cwd=folder)
    with contextlib.closing(Journal(settings.home)) as journal:
        bodies: list[bytes] = []
        for event in _events(jobs):
            bodies.append(json.dumps(event).encode())
            if len(bodies) == _BATCH:
                journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
                bodies = []
        journal.append_many((Kind.OPENLINEAGE, body, "") for body in bodies)
    began_s, before_s = time.perf_counter(), cpu_s()
    flush(settings)
    took_s = time.perf_counter() - began_s
    size_mb = (settings.home / INDEX_NAME).stat().st_size / 1e6
    print(
        f"{jobs:,} events filed in {took_s:.0f} s ({cpu_s() - before_s:.0f} CPU s), index {size_mb:.0f} MB\n"
    )
    lineage = Lineage.open(settings.home)
    plain = sqlite3.connect(settings.home / INDEX_NAME)

    def middle(at: int) -> str:
        return _name(at % (jobs // _CHAIN), _CHAIN // 2)

    def by_cte(name: str, depth: int, *, is_up: bool) -> int:
        near, far = ("target", "source") if is_up else ("source", "target")
        (count,) = plain.execute(_CTE.format(near=near, far=far), (name, depth)).fetchone()
        return int(count)

    cases: dict[str, Callable[[int], int]] = {
        "20 edges each way": lambda at: _count(lineage, middle(at), 20, 20),
        "20 edges each way, SQLite": lambda at: sum(
            by_cte(middle(at), 20, is_up=is_up) for is_up in (True, False)
        ),
        "all below the hub": lambda _: _count(lineage, _HUB, 0, None),
        "all below the hub, SQLite": lambda _: by_cte(_HUB, 2, is_up=False),
    }
    print("| question | nodes | p50 ms | p95 ms | CPU ms |\n|---|---|---|---|---|")
    results: Results = []
    for name, ask in cases.items():
        taken_ms, used_s = [], cpu_s()
        for at in range(arguments.rounds):
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


def _count(lineage: Lineage, name: str, up: int, down: int | None) -> int:
    found = lineage.dependencies(f"s3://lake/{name}", up=up, down=down)
    return len(found.upstream.nodes) + len(found.downstream.nodes)


def _name(chain: int, place: int) -> str:
    return f"zone-{chain % 7}/chain-{chain}/table-{place}"


def _events(jobs: int) -> Iterator[dict[str, Any]]:
    for number in range(jobs):
        chain, place = divmod(number, _CHAIN)
        inputs = [_name(chain, place), f"zone-{chain % 7}/beside-{number}"]
        yield _event(number, inputs, _name(chain, place + 1))
    for number in range(jobs, jobs + _HUB_READERS):
        yield _event(number, [_HUB], f"leaf-{number}")


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
