"""How soon each view of the page is there, as a page and as JSON, and how much a browser loads for it.

    python -m benchmarks.page                      # one million records and 100,000 jobs

The records are those of `benchmarks.lineage`, over a week by hours, and the jobs are those of
`benchmarks.datasets`. Each view is asked for on one connection of a collector that has answered it once:
the first time, it reads what it then keeps. *First byte* is the time to the end of the header. *Weight* is
what a browser loads that has nothing of the page: the view with its stylesheet, its script and its pictures.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from benchmarks.datasets import file_events, job_events, table_name
from benchmarks.ingest import collector
from benchmarks.measuring import Results, in_folder, parser_of
from benchmarks.roots import Sample, fill, flush_one
from waybill.transport import Settings

ANSWER_MAX_MS: Final = 100
FIRST_BYTE_MAX_MS: Final = 50
WEIGHT_MAX_KB: Final = 150

_HOURS: Final = 168
_LOADED: Final = re.compile(rb'(?:href|src)="(/static/[^"]+)"')


def main() -> None:
    """Fill a home, and ask a collector for each view."""
    parser = parser_of(__doc__, rounds=50)
    parser.add_argument("--records", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--jobs", type=int, default=100_000, help="default 100,000")
    in_folder(parser.parse_args(), _measure)


def _measure(arguments: argparse.Namespace, folder: Path) -> Results:
    home = folder / "home"
    some, _ = fill(home, count=arguments.records, hours=_HOURS, sampled=arguments.rounds)
    settings = Settings.load(
        {"home": home, "provenance_enabled": True, "archive_enabled": False}, env={}, cwd=folder
    )
    file_events(settings, job_events(arguments.jobs))
    flush_one(home, "last")
    print(f"{arguments.records:,} records and {arguments.jobs:,} jobs\n")
    columns = ("view", "form", "p50 ms", "p95 ms", "first byte p95 ms", "kB", "weight kB")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    server, address = collector(home, "--no-archive-enabled", "--runner", "none")
    results: Results = []
    try:
        with contextlib.closing(HTTPConnection(*address, timeout=600)) as connection:
            for name, paths in _views(some, arguments.jobs).items():
                for form, accept in (("page", "text/html"), ("JSON", "application/json")):
                    figures = _asked(connection, paths, accept)
                    results.append({"view": name, "form": form, **figures})
                    shown = " | ".join(f"{value:,.1f}" for value in figures.values())
                    print(f"| {name} | {form} | {shown} |", flush=True)
    finally:
        server.terminate()
        server.wait()
    goals = {"p95_ms": ANSWER_MAX_MS, "first_byte_p95_ms": FIRST_BYTE_MAX_MS, "weight_kb": WEIGHT_MAX_KB}
    pages = [one for one in results if one["form"] == "page"]
    told = (f"{name} {max(one[name] for one in pages):.0f} (goal: {goal})" for name, goal in goals.items())
    print(f"\nthe most of a page: {', '.join(told)}")
    return results


def _views(some: Sample, jobs: int) -> dict[str, list[str]]:
    """The addresses of each view, each about something else."""
    one = some[0]
    datasets = [f"s3://lake/{table_name(at % (jobs // 50), 25)}" for at in range(len(some))]
    day = {"from": "2026-01-03T00:00", "to": "2026-01-04T00:00"}
    every = {
        "start": [_path("/")],
        "find, all": [_path("/find")],
        "find, state and source": [
            _path("/find", final_state="ERROR", data_source=row["data_source"]) for row in some
        ],
        "find, one day": [_path("/find", **day)],
        "find, filename": [_path("/find", filename=row["filename"]) for row in some],
        "find, annotation": [
            _path("/find", annotation=f"batchId={row['annotations']['batchId']}") for row in some
        ],
        "find, annotation, counted": [
            _path("/find", annotation=f"customer={row['annotations']['customer']}", count="true")
            for row in some
        ],
        "open files": [_path("/open")],
        "search, words": [_path("/search", q=f"chain {at}") for at in range(len(some))],
        "search, a filename": [_path("/search", q=row["filename"]) for row in some],
        "health": [_path("/health")],
        "service levels": [_path("/slis")],
        "file": [_path("/file", did=row["did"]) for row in some],
        "dataset": [_path("/dataset", node=name) for name in datasets],
        "job": [_path("/job", node=f"etl/job-{at * 50 + 25}") for at in range(len(some))],
        "column": [_path("/column", node="s3://lake/customers", column="email")],
    }
    return {name: [paths[at % len(paths)] for at in range(len(some))] for name, paths in every.items() if one}


def _path(path: str, **given: object) -> str:
    return f"{path}?{urlencode(given)}" if given else path


def _asked(connection: HTTPConnection, paths: list[str], accept: str) -> dict[str, float]:
    taken_ms, first_ms, sizes = [], [], []
    weight = 0
    for path in (paths[0], *paths):
        began_s = time.perf_counter()
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        first_ms.append((time.perf_counter() - began_s) * 1_000)
        content = answer.read()
        taken_ms.append((time.perf_counter() - began_s) * 1_000)
        if answer.status not in {200, 303}:
            raise SystemExit(f"{path}: {answer.status} {content[:300]!r}")
        sizes.append(len(content))
        weight = weight or len(content) + sum(
            _size(connection, url.decode()) for url in set(_LOADED.findall(content))
        )
    return {
        "p50_ms": statistics.median(taken_ms[1:]),
        "p95_ms": sorted(taken_ms[1:])[int(len(paths) * 0.95)],
        "first_byte_p95_ms": sorted(first_ms[1:])[int(len(paths) * 0.95)],
        "kb": max(sizes) / 1_000,
        "weight_kb": weight / 1_000,
    }


def _size(connection: HTTPConnection, path: str) -> int:
    connection.request("GET", path)
    return len(connection.getresponse().read())


if __name__ == "__main__":
    main()
